"""Publishers whose elements come over ØMQ, from a gateway in the same process."""

from typing import Any

from penstock.aquifer import AquiferPublisher
from tests.conformance.gateways import Gateways
from tests.conformance.jvm.subject import Kind, Subject

gateways = Gateways()


def aquifer(**settings: Any) -> Subject:
    """An AquiferPublisher with these settings."""

    def create(elements: int) -> AquiferPublisher:
        return AquiferPublisher(gateways.endpoint(elements), codec="json", **settings)

    return Subject(Kind.PUBLISHER, create, lambda: AquiferPublisher(gateways.failed(), **settings))


PUBLISHERS = {
    "aquifer_extended": aquifer(dialect="extended"),
    "aquifer_smallest_window": aquifer(dialect="extended", window=1),
    "aquifer_plain": aquifer(dialect="plain"),
}
