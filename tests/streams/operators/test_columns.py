"""Columns: Arrow record batches as elements."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow
import pyarrow.dataset
import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux
from tests.streams.operators.rigs import Counting, Elsewhere
from tests.streams.recording import Recorder

TABLE = pyarrow.table({"id": [1, 2, 3, 4], "name": ["a", "b", None, "d"]})
ROWS = TABLE.to_pylist()
IDS = pyarrow.schema({"id": pyarrow.int64()})


def ids(*lengths: int) -> Flux[Any]:
    """Record batches of these lengths, with the numbers from 0 on."""
    batches, first = [], 0
    for length in lengths:
        batches.append(pyarrow.record_batch({"id": list(range(first, first + length))}, IDS))
        first += length
    return Flux.from_iterable(batches)


class Capsule:
    """Something that speaks Arrow's C stream interface, and is not of pyarrow."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return TABLE.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "data",
    [
        TABLE,
        pyarrow.Table.from_batches([*TABLE.slice(0, 1).to_batches(), *TABLE.slice(1).to_batches()]),
        TABLE.to_batches()[0],
        Capsule(),
        pyarrow.dataset.dataset(TABLE),
    ],
)
def test_everything_of_arrow_is_read_by_each_subscriber(data: Any) -> None:
    rows = Flux.from_arrow(data).unbatch()

    assert [rows.collect_list().block() for _ in range(2)] == [ROWS, ROWS]


def test_a_reader_can_be_read_once() -> None:
    rows = Flux.from_arrow(TABLE.to_reader(max_chunksize=3)).unbatch()
    assert rows.collect_list().block() == ROWS

    with pytest.raises(RuntimeError, match="used up"):
        rows.block_last()


def test_batches_are_read_as_they_are_asked_for() -> None:
    seen = Recorder.of(Flux.from_arrow(TABLE.to_reader(max_chunksize=1)), 2)

    assert [batch.to_pylist() for batch in seen.items] == [[row] for row in ROWS[:2]]
    seen.check()


@pytest.mark.parametrize("wrong", [None, [1], {"id": [1]}, "table"])
def test_other_things_are_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="a table, a record batch, a reader or a dataset of Arrow"):
        Flux.from_arrow(wrong)


@pytest.mark.parametrize("schema", [IDS, {"id": "int64"}, {"id": pyarrow.int64()}])
def test_rows_become_batches_of_the_schema(schema: Any) -> None:
    batches = Flux.range(5).map(lambda n: {"id": n}).to_arrow(schema, 2).collect_list().block()

    assert batches is not None
    assert [batch.column("id").to_pylist() for batch in batches] == [[0, 1], [2, 3], [4]]
    assert {batch.schema for batch in batches} == {IDS}


def test_a_batch_asks_for_its_rows() -> None:
    source = Elsewhere(*({"id": n} for n in range(100)))
    seen = Recorder.of(Flux.from_publisher(source).to_arrow(IDS, 10))
    assert source.asked == 0

    seen.request(2)

    assert source.asked == 20
    assert [batch.num_rows for batch in seen.items] == [10, 10]


def test_a_missing_value_is_null_and_an_unknown_one_an_error() -> None:
    schema = {"id": "int64", "name": "string"}
    batch = Flux.just({"id": 1}).to_arrow(schema).first().block()
    assert batch is not None
    assert batch.to_pylist() == [{"id": 1, "name": None}]

    with pytest.raises(ValueError, match="a row with 'colour', which is not in the schema"):
        Flux.just({"id": 1, "colour": "red"}).to_arrow(schema).block_last()


def test_a_row_that_does_not_fit_is_an_error_that_cancels() -> None:
    source = Counting(10)
    with pytest.raises(pyarrow.ArrowInvalid):
        Flux.from_iterable(source).map(lambda n: {"id": "x"}).to_arrow(IDS, 2).block_last()
    assert source.closed

    with pytest.raises(TypeError, match="to_arrow\\(\\) needs dicts as rows, not 1"):
        Flux.just(1).to_arrow(IDS).block_last()


def test_a_schema_is_needed() -> None:
    with pytest.raises(TypeError, match=r"a pyarrow\.Schema, or a dict"):
        Flux.just({}).to_arrow(["id"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lengths", "rows", "expected"),
    [
        ((), 3, []),
        ((0, 0), 3, []),
        ((5,), 2, [2, 2, 1]),
        ((1, 1, 1, 1), 3, [3, 1]),
        ((2, 0, 5, 1), 4, [4, 4]),
        ((7, 1), 10, [8]),
    ],
)
def test_batches_are_cut_to_length_in_order(lengths: tuple[int, ...], rows: int, expected: list[int]) -> None:
    batches = ids(*lengths).batch(rows).collect_list().block() or []

    assert [batch.num_rows for batch in batches] == expected
    numbers = [number for batch in batches for number in batch.column("id").to_pylist()]
    assert numbers == list(range(sum(lengths)))


def test_cut_batches_wait_for_demand() -> None:
    seen = Recorder.of(ids(9, 1).batch(2), 3)
    assert [batch.num_rows for batch in seen.items] == [2, 2, 2]

    seen.request(UNBOUNDED)

    assert [batch.column("id").to_pylist() for batch in seen.items[3:]] == [[6, 7], [8, 9]]
    assert seen.check().completed


def test_batches_of_different_schemas_do_not_mix() -> None:
    other = pyarrow.record_batch({"name": ["a"]})

    with pytest.raises(pyarrow.ArrowInvalid):
        ids(1).concat_with(Flux.just(other)).batch(2).block_last()


@pytest.mark.parametrize("operator", [lambda f: f.batch(2), lambda f: f.unbatch()])
def test_other_elements_are_refused_with_the_operator_for_them(operator: Any) -> None:
    with pytest.raises(TypeError, match="needs pyarrow record batches, not 1; for lists"):
        operator(Flux.just(1)).block_last()


def test_rows_are_sent_one_by_one() -> None:
    seen = Recorder.of(ids(3, 3).unbatch(), 4)

    assert [row["id"] for row in seen.items] == [0, 1, 2, 3]
    seen.check()


@pytest.mark.parametrize(
    "use",
    [
        lambda: Flux.from_arrow(TABLE),
        lambda: Flux.just({"id": 1}).to_arrow(IDS),
        lambda: Flux.just(1).batch(2).block_last(),
        lambda: Flux.just(1).unbatch().block_last(),
    ],
)
def test_without_the_extra_one_sentence_says_what_to_install(
    use: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(ImportError, match=r"needs pyarrow: pip install 'penstock-streams\[arrow\]'"):
        use()
