"""What is asked about compression: every alternative delivers everything, and tells what it took."""

from __future__ import annotations

import pytest

from benchmarks.compression import records_of
from benchmarks.measuring import Timed
from benchmarks.questions import ask


def test_every_alternative_is_compared_with_one_that_there_is() -> None:
    with ask("compression") as question:
        names = {each.name for each in question.alternatives}
        assert {question.base, *(each.base for each in question.alternatives)} <= names


def test_over_the_slow_line_everything_comes_and_compressed_it_is_less() -> None:
    with ask("compression") as question:
        plain, packed = (each.run(300) for each in question.alternatives if "360 kbit/s" in each.name)
    assert isinstance(plain, Timed)
    assert isinstance(packed, Timed)
    assert (plain.result, packed.result) == (300, 300)
    assert packed.facts["sent bytes"] < plain.facts["sent bytes"] / 3


@pytest.mark.slow
def test_through_a_gateway_everything_comes() -> None:
    with ask("compression") as question:
        for each in question.alternatives:
            if each.name in ("JSON, 100 bytes: zstd", "random, 100 bytes: zstd"):
                timed = each.run(20_000)
                assert isinstance(timed, Timed)
                assert timed.result == 20_000
                assert timed.facts["stored bytes"] > 0
                assert timed.facts["sent bytes"] == pytest.approx(timed.facts["stored bytes"], rel=0.2)


def test_the_records_have_the_sizes_that_the_titles_say() -> None:
    for kind, size in (("JSON, 100 bytes", 100), ("JSON, 1 kB", 1000), ("random, 100 bytes", 100)):
        records = records_of(kind)
        assert sum(map(len, records)) / len(records) == pytest.approx(size, rel=0.1)
