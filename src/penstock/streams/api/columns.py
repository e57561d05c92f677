"""Columns: rows become Arrow record batches, and record batches become rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.arguments import a_count
from penstock.streams.fusion import operator
from penstock.streams.operators.columns import Rebatching, arrow_source, rows_of, rows_to_batch
from penstock.streams.stream import Stream, T, flux_of

if TYPE_CHECKING:
    import pyarrow

    from penstock.streams.flux import Flux

__all__ = ["FluxColumns"]

ROWS = 1024
"""How many rows a record batch has by default."""


class FluxColumns(Stream[T]):
    """Operators of a Flux whose elements are Arrow record batches, or become ones."""

    __slots__ = ()

    @classmethod
    def from_arrow(cls, data: Any) -> Flux[pyarrow.RecordBatch]:
        """Send the record batches of a table, a record batch, a reader or a dataset of Arrow.

        Anything that speaks Arrow's C stream interface will do, such as a frame of polars. A reader can be
        read once, everything else by every subscriber anew. Needs ``pip install 'penstock-streams[arrow]'``.

        >>> import pyarrow
        >>> table = pyarrow.table({"id": [1, 2, 3]})
        >>> Flux.from_arrow(table).map(lambda batch: batch.num_rows).collect_list().block()
        [3]

        Emits when there is demand; no batch is read before.
        Completes when there is no further batch.

        Marble::

            a: 1-2-3-|
            a.map(lambda x: {"x": x}).to_arrow({"x": "int64"}, 2).concat_map(Flux.from_arrow).map(len)
            >  --2---(1|)
        """
        return flux_of(arrow_source(data))

    def to_arrow(
        self, schema: pyarrow.Schema | Mapping[str, Any], rows: int = ROWS
    ) -> Flux[pyarrow.RecordBatch]:
        """Send record batches of ``rows`` rows, made of elements that are dicts; the last may be shorter.

        The schema is a ``pyarrow.Schema``, or a dict of names and types. A value that a row does not have is
        null, one that the schema does not have is an error. Needs ``pip install 'penstock-streams[arrow]'``.

        >>> people = Flux.just({"name": "Ann", "age": 31}, {"name": "Bob", "age": 27})
        >>> batch = people.to_arrow({"name": "string", "age": "int64"}).first().block()
        >>> batch.num_rows, batch.column("age").to_pylist()
        (2, [31, 27])

        Emits when ``rows`` rows have come, and for what is left over when the source completes.
        Backpressures when its subscriber does; for each batch that is asked for, ``rows`` rows are.
        Completes when the source has completed and what was left over has passed.
        Cancels when its subscriber cancels, or a row does not fit the schema.

        Marble::

            a: 1-2-3-|
            a.map(lambda x: {"x": x}).to_arrow({"x": "int64"}, 2).map(lambda batch: batch.num_rows)
            >  --2---(1|)
        """
        to_batch = rows_to_batch(schema)
        lists = operator("buffer", a_count(rows, "to_arrow()"), label="to_arrow")
        return self._with(lists)._with(operator("map", to_batch, label="to_arrow", shows=()))

    def batch(self, rows: int) -> Flux[pyarrow.RecordBatch]:
        """Cut record batches of any length into batches of ``rows`` rows; the last may be shorter.

        Only a batch that is made of parts of several is copied.

        >>> ids = Flux.range(5).map(lambda n: {"id": n}).to_arrow({"id": "int64"}, 2)
        >>> ids.batch(3).map(lambda batch: batch.num_rows).collect_list().block()
        [3, 2]

        Emits when ``rows`` rows have come, and for what is left over when the source completes.
        Backpressures when its subscriber does; batches are asked for one by one until there are enough rows.
        Completes when the source has completed and what was left over has passed.
        Cancels when its subscriber cancels, or an element is not a record batch.

        Marble::

            a: 1-2-3-|
            a.map(lambda x: {"x": x}).to_arrow({"x": "int64"}, 1).batch(2).map(lambda batch: batch.num_rows)
            >  --2---(1|)
        """
        size = a_count(rows, "batch()")
        return self._with(operator("regroup", lambda: Rebatching(size), label="batch", shows=(size,)))

    def unbatch(self) -> Flux[dict[str, Any]]:
        """Send the rows of record batches, one by one, as dicts.

        >>> import pyarrow
        >>> table = pyarrow.table({"id": [1, 2], "name": ["Ann", "Bob"]})
        >>> Flux.from_arrow(table).unbatch().collect_list().block()
        [{'id': 1, 'name': 'Ann'}, {'id': 2, 'name': 'Bob'}]

        Emits when the present batch has a row.
        Backpressures when its subscriber does; the batch waits.
        Completes when the source has completed and the last row was sent.
        Cancels when its subscriber cancels, or an element is not a record batch.

        Marble::

            a: 1-2-3-|
            a.map(lambda x: {"x": x}).to_arrow({"x": "int64"}, 2).unbatch().map(lambda row: row["x"])
            >  --(12)---(3|)
        """
        return self._with(operator("flat", rows_of, label="unbatch", shows=()))
