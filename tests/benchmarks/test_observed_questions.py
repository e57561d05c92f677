"""What is asked about observing: the claims are about alternatives that there are, and the load is real."""

from __future__ import annotations

import time
from typing import Any

import pytest

from benchmarks import crowd
from benchmarks.claims import CLAIMS
from benchmarks.measuring import WrongResult
from benchmarks.observed_gateway import MANY, _Served
from benchmarks.processes import beside
from benchmarks.questions import ask
from penstock.aquifer import probe
from tests.aquifer.faults.rigs import eventually


@pytest.mark.parametrize(
    ("name", "claims"), [("observed_chain", 1), ("observed_gateway", 2), ("scrape", 1), ("telemetry", 1)]
)
def test_every_claim_is_about_alternatives_that_there_are(name: str, claims: int) -> None:
    """And no gateway is started to find out."""
    with ask(name) as question:
        names = {alternative.name for alternative in question.alternatives}

    made = [claim for claim in CLAIMS if claim.question == name]
    assert len(made) == claims
    assert {question.base, *(base for each in question.alternatives if (base := each.base))} <= names
    for claim in made:
        assert {claim.of, claim.to or claim.of} <= names
    assert MANY == 500, "the claims say so"


def test_every_subscriber_of_the_crowd_gets_every_record() -> None:
    subscribers, records = 5, 400
    with beside(crowd.serve, subscribers, 1000, records) as gateway:
        endpoint, _ = gateway.hear()
        with beside(crowd.follow, endpoint, subscribers, 4000) as readers:
            assert readers.hear() == "here"
            readers.say(subscribers * records)
            end, came = readers.hear()
            assert came == subscribers * records
            assert end <= time.monotonic_ns()
            eventually(lambda: probe(endpoint).low_watermark == records, "not all is acknowledged")
            gateway.say("how long?")
            thread, process = gateway.hear()
            assert 0 < thread <= process


class Told:
    """A line to a process that always says the same."""

    def __init__(self, says: tuple[int, int]) -> None:
        self._says = says

    def say(self, something: object) -> None: ...

    def hear(self) -> tuple[int, int]:
        return self._says


def test_a_clock_that_is_read_too_early_is_noticed() -> None:
    """Such a run once said that observing costs nothing at all."""
    at_once: Any = Told((time.monotonic_ns(), 1000))
    served = _Served(Told((0, 0)), at_once, "")  # type: ignore[arg-type]

    with pytest.raises(WrongResult, match="at the wrong moment"):
        served.alone(1000)
