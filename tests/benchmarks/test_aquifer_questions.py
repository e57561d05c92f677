"""The questions about gateways: every claim is about something that is measured, and all records arrive."""

import pytest

from benchmarks.aquifer_groups import shared_by
from benchmarks.questions import ask
from tests.benchmarks.claimed import assert_claims_have_alternatives


@pytest.mark.parametrize("name", ["aquifer_throughput", "aquifer_fan_out", "aquifer_groups"])
def test_every_claim_is_about_alternatives_that_there_are(name: str) -> None:
    assert_claims_have_alternatives(name)


def test_the_members_of_a_group_get_all_records_together() -> None:
    assert shared_by(2, 1000).result == 1000


def test_a_for_loop_gets_all_records() -> None:
    with ask("aquifer_throughput") as question:
        (loop,) = (each for each in question.alternatives if each.name == "Penstock, extended, read with for")
    timed = loop.run(1000)
    assert getattr(timed, "result", timed) == 1000
