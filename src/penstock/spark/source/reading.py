"""What a task does: subscribe to its range of offsets, and yield Arrow batches at Spark's pace."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.aquifer.errors import EpochChanged, OffsetGone
from penstock.aquifer.security import CurveClient, load_keys, load_public
from penstock.aquifer.subscriber.pulling import frames
from penstock.spark.columns import Columns
from penstock.spark.options import BadOption, SourceOptions
from penstock.spark.source.positions import Piece

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DataLoss", "curve_client", "read_piece"]

_log = logging.getLogger("penstock.spark")


class DataLoss(RuntimeError):
    """Records that the query has to read are gone."""


def read_piece(piece: Piece, columns: Columns, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The records of a piece.

    The gateway is granted more only when Spark comes back for the next batch: a query that stands still makes
    the gateway stand still.
    """
    start = piece.start
    try:
        for frame in frames(
            piece.endpoint,
            start=start,
            stop=piece.stop,
            epoch=piece.epoch,
            format=columns.wire_format,
            patience=options.patience,
            curve=curve_client(options.curve_key, options.curve_server),
        ):
            yield columns.batch(piece.endpoint, frame)
            start = frame.first + frame.count
    except (OffsetGone, EpochChanged) as error:
        text = (
            f"records {start} to {piece.stop - 1} of {piece.endpoint} are gone: {error}. The gateway keeps "
            'them while the query runs, and for option("leaseSeconds") after it stopped; to go on without '
            'them set option("failOnDataLoss", "false")'
        )
        if options.fail_on_data_loss:
            raise DataLoss(text) from error
        _log.warning("%s", text)
        yield from _what_is_left(piece, error, columns, options)


def _what_is_left(
    piece: Piece, error: Exception, columns: Columns, options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    first = error.first if isinstance(error, OffsetGone) else None
    if first is not None and piece.start < first < piece.stop:
        yield from read_piece(Piece(piece.endpoint, piece.epoch, first, piece.stop), columns, options)


def curve_client(key: str | None, server: str | None) -> CurveClient | None:
    """The keys that the options name, if any."""
    if key is None and server is None:
        return None
    if key is None or server is None:
        missing = "curveKey" if key is None else "curveServer"
        raise BadOption(
            missing, None, "curveKey (a key file) and curveServer (the gateway's key) go together"
        )
    return CurveClient(load_keys(key), load_public(server))
