"""Rows of a Parquet file, from any row on; those of earlier row groups are not read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from penstock.feeds.feed import FeedOptions
from penstock.feeds.lines import BadLines

__all__ = ["ParquetRows", "check_parquet"]

_ROWS: Final = 1024
"""Rows of one delivery."""


def check_parquet() -> None:
    """Raise an ImportError that names the extra if pyarrow is missing."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "Parquet files need pyarrow, which is not installed: pip install 'penstock-streams[arrow]'"
        ) from error


class ParquetRows:
    """One file. Its rows become JSON, objects, or with ``columns`` Arrow batches."""

    def __init__(self, path: Path, options: FeedOptions, bad: BadLines) -> None:
        import pyarrow as pa
        import pyarrow.parquet

        try:
            self._file = pa.parquet.ParquetFile(path)
        except pa.ArrowException as error:
            raise ValueError(
                f"{path} is not a complete Parquet file ({error}); give a file its name when it is complete"
            ) from None
        self._options = options
        self._bad = bad
        self._path = path
        self.position = 0
        """How many rows were read, or passed over."""
        with path.open("rb") as file:
            file.seek(-min(path.stat().st_size, 1024), 2)
            self.tail = file.read()
        """The last bytes, which tell a file from another."""

    @property
    def count(self) -> int:
        """How many rows there are."""
        return int(self._file.metadata.num_rows)

    def read(self) -> Iterator[list[Any]]:
        """The records of the rows from the position on, some hundred at a time."""
        before = 0
        for group in range(self._file.num_row_groups):
            rows = self._file.metadata.row_group(group).num_rows
            if before + rows > self.position:
                skip = self.position - before
                for batch in self._file.iter_batches(_ROWS, row_groups=[group]):
                    part = batch.slice(min(skip, batch.num_rows))
                    skip -= batch.num_rows - part.num_rows
                    if part.num_rows:
                        self.position += part.num_rows
                        yield self._records(part)
            before += rows

    def _records(self, batch: Any) -> list[Any]:
        if self._options.columns:
            return [batch]
        from penstock.aquifer import ARROW, Batch, to_arrow_stream, values_of

        lines = values_of(Batch(0, batch.num_rows, to_arrow_stream(batch), b"", ARROW))
        decode = self._options.decoder()
        if decode is None:
            return lines
        made: list[Any] = []
        for number, line in enumerate(lines, self.position - batch.num_rows):
            try:
                made.append(decode(line))
            except (ValueError, RecursionError, OverflowError) as error:
                made += self._bad.refuse(error, line, at=f"{self._path}: row {number}")
        return made

    def close(self) -> None:
        """Close the file."""
        self._file.close()
