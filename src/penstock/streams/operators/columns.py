"""Columns: Arrow record batches as elements of a stream.

pyarrow belongs to an extra. It is imported only here, and only when a stream uses it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.arguments import describe
from penstock.streams.source import IterableSource

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Rebatching", "arrow_source", "rows_of", "rows_to_batch"]


def _pyarrow(operator: str) -> Any:
    try:
        import pyarrow
    except ImportError as missing:
        raise ImportError(f"{operator} needs pyarrow: pip install 'penstock-streams[arrow]'") from missing
    return pyarrow


def arrow_source(data: Any) -> IterableSource:
    """A source of the record batches of ``data``."""
    pa = _pyarrow("from_arrow()")
    if isinstance(data, pa.RecordBatch):
        return IterableSource.over("from_arrow", [data], data)
    if isinstance(data, pa.Table):
        return IterableSource.over("from_arrow", data.to_batches(), data)
    if isinstance(data, pa.RecordBatchReader):
        return IterableSource.over("from_arrow", iter(data), data)
    if hasattr(data, "__arrow_c_stream__"):
        return IterableSource("from_arrow", lambda: pa.RecordBatchReader.from_stream(data), data)
    if callable(getattr(data, "to_batches", None)):  # a dataset, which reads its files anew each time
        return IterableSource("from_arrow", data.to_batches, data)
    raise TypeError(
        f"from_arrow() needs a table, a record batch, a reader or a dataset of Arrow, not {describe(data)}; "
        "for an iterable of record batches use from_iterable()"
    )


def rows_to_batch(schema: Any) -> Callable[[list[Any]], pyarrow.RecordBatch]:
    """The function that makes a record batch of rows."""
    pa = _pyarrow("to_arrow()")
    if isinstance(schema, Mapping):
        schema = pa.schema([pa.field(name, kind) for name, kind in schema.items()])
    if not isinstance(schema, pa.Schema):
        raise TypeError(
            f"to_arrow() needs a pyarrow.Schema, or a dict of names and types such as {{'id': 'int64'}}, "
            f"not {describe(schema)}"
        )
    names = frozenset(schema.names)

    def to_batch(rows: list[Any]) -> pyarrow.RecordBatch:
        for row in rows:
            if not isinstance(row, Mapping):
                raise TypeError(f"to_arrow() needs dicts as rows, not {describe(row)}; make them with map()")
            if not names.issuperset(row):
                unknown = next(name for name in row if name not in names)
                raise ValueError(
                    f"to_arrow() met a row with {unknown!r}, which is not in the schema; "
                    "add the column, or leave the value out with map()"
                )
        return pa.RecordBatch.from_pylist(rows, schema=schema)

    return to_batch


def rows_of(batch: Any) -> Iterable[dict[str, Any]]:
    """The rows of a record batch as dicts."""
    rows: list[dict[str, Any]] = _a_batch(batch, "unbatch()", "for lists use flat_map_iterable()").to_pylist()
    return rows


def _a_batch(element: Any, operator: str, instead: str) -> Any:
    if not isinstance(element, _pyarrow(operator).RecordBatch):
        raise TypeError(f"{operator} needs pyarrow record batches, not {describe(element)}; {instead}")
    return element


class Rebatching:
    """Cuts record batches of any length into batches of ``rows`` rows; copies only where two meet."""

    __slots__ = ("_parts", "_rows", "_waiting")

    def __init__(self, rows: int) -> None:
        _pyarrow("batch()")
        self._rows = rows
        self._parts: deque[Any] = deque()
        self._waiting = 0

    def push(self, batch: Any) -> list[Any]:
        """Add a record batch; return those that are full."""
        if _a_batch(batch, "batch()", "for lists of other elements use buffer()").num_rows:
            self._parts.append(batch)
            self._waiting += batch.num_rows
        return [self._take(self._rows) for _ in range(self._waiting // self._rows)]

    def rest(self) -> list[Any]:
        """What is left when the stream ends."""
        return [self._take(self._waiting)] if self._waiting else []

    def _take(self, rows: int) -> Any:
        self._waiting -= rows
        taken: list[Any] = []
        while rows:
            part = self._parts.popleft()
            taken.append(part.slice(0, rows))
            rows -= taken[-1].num_rows
            if part.num_rows > taken[-1].num_rows:
                self._parts.appendleft(part.slice(taken[-1].num_rows))
        if len(taken) == 1:
            return taken[0]
        table = _pyarrow("batch()").Table.from_batches(taken)
        return table.combine_chunks().to_batches()[0]
