"""Where a query stands, and how a batch is cut: from what Spark has logged, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark import BadCheckpoint
from penstock.spark.source.positions import OffsetRange, QueryPosition, cut_ranges, partition_count

A, B = "tcp://127.0.0.1:5001", "tcp://127.0.0.1:5002"
OFFSETS = st.integers(0, 10**6)


@st.composite
def batches(draw: st.DrawFn) -> tuple[QueryPosition, QueryPosition]:
    """Two positions of one query, the second not before the first."""
    endpoints = draw(st.sampled_from([(A,), (A, B)]))
    initial = {e: draw(OFFSETS) for e in endpoints}
    start = {e: initial[e] + draw(st.integers(0, 5000)) for e in endpoints}
    end = {e: start[e] + draw(st.integers(0, 5000)) for e in endpoints}
    begin = QueryPosition(
        start, {e: f"epoch of {e}" for e in endpoints}, initial, "q", draw(st.integers(1, 9))
    )
    return begin, begin.at(end, draw(st.integers(1, 64)))


@given(batches())
def test_the_ranges_of_a_batch_cover_it_exactly_and_in_order(
    batch: tuple[QueryPosition, QueryPosition],
) -> None:
    start, end = batch
    for endpoint in end.offsets:
        cut = [part for part in cut_ranges(start, end) if part.endpoint == endpoint]
        offsets = [offset for part in cut for offset in range(part.start, part.stop)]
        assert offsets == list(range(start.offsets[endpoint], end.offsets[endpoint]))
        assert all(part.start < part.stop for part in cut)
        assert len(cut) <= end.partitions
        assert {part.epoch for part in cut} <= {end.epochs[endpoint]}


@given(batches())
def test_a_batch_is_cut_the_same_after_its_positions_went_through_sparks_log(
    batch: tuple[QueryPosition, QueryPosition],
) -> None:
    start, end = (QueryPosition.from_json(json.loads(json.dumps(position.to_json()))) for position in batch)
    assert (start, end) == batch
    assert cut_ranges(start, end) == cut_ranges(*batch)


@given(batches())
def test_equal_positions_are_the_same_text_whatever_the_order_of_their_gateways(
    batch: tuple[QueryPosition, QueryPosition],
) -> None:
    end = batch[1]
    shuffled = QueryPosition(
        offsets=dict(reversed(end.offsets.items())),
        epochs=dict(reversed(end.epochs.items())),
        initial=dict(reversed(end.initial.items())),
        name=end.name,
        partitions=end.partitions,
        query=end.query,
        batch=end.batch,
    )
    assert json.dumps(end.to_json()) == json.dumps(shuffled.to_json())


def test_a_position_of_an_earlier_version_is_understood() -> None:
    logged = QueryPosition({A: 5}, {A: "e"}, {A: 0}, "cursor", 2).to_json()
    del logged["query"], logged["batch"]

    here = QueryPosition.from_json(logged)

    assert (here.query, here.batch, here.at({A: 9}, 1).batch) == ("cursor", 0, 1)


@given(batches(), OFFSETS, st.sampled_from(["q", "another name"]))
def test_the_first_batch_is_read_again_from_where_it_began_though_the_start_is_another_now(
    batch: tuple[QueryPosition, QueryPosition], offset: int, name: str
) -> None:
    end = batch[1]
    first = replace(end, offsets=end.initial)
    other = dict.fromkeys(end.offsets, offset)
    derived_anew = replace(first, offsets=other, initial=other, name=name)
    assert cut_ranges(derived_anew, end) == cut_ranges(first, end)


@pytest.mark.parametrize(
    "logged", [17, {"topic": {"0": 4}}, {"logOffset": 3}, {"offsets": 1, "epochs": 2}, "x" * 10_000]
)
def test_a_position_of_another_source_is_told_in_a_sentence(logged: object) -> None:
    with pytest.raises(
        BadCheckpoint, match="the checkpoint belongs to another query, or its sources"
    ) as told:
        QueryPosition.from_json(logged)  # type: ignore[arg-type]
    assert len(str(told.value)) < 500


def test_a_later_batch_starts_where_spark_says() -> None:
    start = QueryPosition({A: 10}, {A: "e"}, {A: 3}, "q", 1)
    assert cut_ranges(start, start.at({A: 14}, 2)) == [
        OffsetRange(A, "e", 10, 12, "q"),
        OffsetRange(A, "e", 12, 14, "q"),
    ]


def test_a_new_log_of_a_gateway_is_read_from_its_first_record() -> None:
    start = QueryPosition({A: 500, B: 7}, {A: "old", B: "e"}, {A: 0, B: 0}, "q", 1)
    end = start.with_new_log(A, "new", 2)
    end = end.at({A: 900, B: 9}, 1)
    assert cut_ranges(start, end) == [OffsetRange(A, "new", 2, 900, "q"), OffsetRange(B, "e", 7, 9, "q")]


def test_a_position_moves_with_its_gateways() -> None:
    start = QueryPosition({A: 5, B: 7}, {A: "a", B: "b"}, {A: 1, B: 2}, "q", 1)
    there = start.moved({A: B, B: A})
    assert (there.offsets, there.epochs, there.initial) == ({B: 5, A: 7}, {B: "a", A: "b"}, {B: 1, A: 2})


@pytest.mark.parametrize(
    ("wanted", "counts", "count"),
    [(7, [1, 0], 7), (None, [10], 1), (None, [10**6] * 1000, 1)],
)
def test_few_records_are_read_by_few_tasks_unless_the_user_wants_more(
    wanted: int | None, counts: list[int], count: int
) -> None:
    assert partition_count(wanted, counts) == count


@given(
    counts=st.lists(st.integers(0, 50) | st.integers(0, 10**9), min_size=1, max_size=4),
    wanted=st.none() | st.integers(1, 9),
    least=st.integers(1, 64),
)
def test_a_batch_has_the_fewest_tasks_wherever_its_records_are(
    counts: list[int], wanted: int | None, least: int
) -> None:
    endpoints = [f"tcp://127.0.0.1:{5001 + number}" for number in range(len(counts))]
    zero = dict.fromkeys(endpoints, 0)
    start = QueryPosition(zero, dict.fromkeys(endpoints, "e"), zero, "q", 1)
    end = start.at(dict(zip(endpoints, counts, strict=True)), partition_count(wanted, counts, least))
    assert len(cut_ranges(start, end)) >= min(least, sum(counts))
    if wanted is not None:
        assert end.partitions >= wanted
