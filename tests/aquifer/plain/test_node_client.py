"""A client in another language, which knows nothing but the document, reads from a gateway of ours."""

import json
import re

import pytest

from penstock.aquifer import Limits, MemoryJournal
from penstock.streams import Flux
from tests.aquifer.plain.conftest import Serve
from tests.aquifer.plain.node_client import SOURCES, digest, run_client

RECORDS = [b"record %d " % number + b"." * (number % 50) for number in range(5000)]


def records() -> Flux[bytes]:
    return Flux.from_iterable(RECORDS)


@pytest.mark.parametrize("count", [1, 7, 1000])
def test_it_gets_every_record_in_order_and_never_more_than_it_asked_for(serve: Serve, count: int) -> None:
    wanted = RECORDS[: 300 * count]
    gateway = serve(Flux.from_iterable(wanted))

    seen = run_client(gateway.endpoint, "--count", str(count))

    assert seen["sha256"] == digest(wanted)
    assert seen["records"] == len(wanted)
    assert seen["largest"] <= count
    assert seen["undeclared"] == 0
    assert seen["end"] == {"jsonClass": "OnComplete", "complete": True}


def test_a_slow_one_gets_every_record_from_a_log_that_is_smaller_than_the_source(serve: Serve) -> None:
    gateway = serve(records(), journal=MemoryJournal(max_records=500), prefetch=64)

    seen = run_client(gateway.endpoint, "--count", "250", "--pause-ms", "5")

    assert seen["sha256"] == digest(RECORDS)
    assert seen["batches"] >= 20


def test_what_javascript_makes_of_the_largest_number_means_unbounded(serve: Serve) -> None:
    # Room for a part of them: as long as the source has not ended, nobody knows how many there will be.
    gateway = serve(records(), journal=MemoryJournal(max_records=4000), limits=Limits(plain_batch=2000))

    seen = run_client(gateway.endpoint, "--whole-size")

    assert json.loads(seen["asked"])["count"] == 9223372036854776000
    assert "9223372036854776000" in seen["asked"]
    assert seen["sha256"] == digest(RECORDS)
    assert seen["largest"] <= 2000


def test_its_cancel_is_answered_and_ends_the_subscription(serve: Serve) -> None:
    gateway = serve(records())

    seen = run_client(gateway.endpoint, "--count", "10", "--cancel-after", "3")

    assert seen["end"] == {"jsonClass": "OnComplete", "complete": True}
    assert seen["records"] <= 30
    assert seen["sha256"] == digest(RECORDS[: seen["records"]])
    assert seen["undeclared"] == 0
    assert gateway.status()["subscribers"] == []


def test_asking_for_no_record_is_an_error_that_names_the_rule(serve: Serve) -> None:
    gateway = serve(records())

    seen = run_client(gateway.endpoint, "--count", "0")

    assert seen["end"].keys() == {"jsonClass", "message"}
    assert seen["end"]["jsonClass"] == "OnError"
    assert "3.9" in seen["end"]["message"]
    assert seen["records"] == seen["undeclared"] == 0


def test_what_it_is_made_of_is_pinned_by_hash_and_not_by_place() -> None:
    lock = json.loads((SOURCES / "package-lock.json").read_text())

    packages = {name: package for name, package in lock["packages"].items() if name}
    assert packages
    for package in packages.values():
        assert re.match("sha512-", package["integrity"])
        assert "resolved" not in package
