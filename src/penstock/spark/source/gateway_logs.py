"""The logs of a source's gateways: how far they go, and the cursors that they keep for the query."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final, TypedDict, Unpack

from penstock.aquifer import (
    EpochChanged,
    GatewayUnreachable,
    LogReader,
    LogState,
    OffsetGone,
    QueryReport,
)
from penstock.spark.errors import BadCheckpoint, BadOption, DataLoss, SharedSubscription
from penstock.spark.options import Offsets, SourceOptions
from penstock.spark.source.positions import QueryPosition

__all__ = ["QUERY_PREFIX", "READ_PREFIX", "GatewayLogs", "StateOptions", "offset_in"]

_log = logging.getLogger("penstock.spark")

QUERY_PREFIX: Final = "spark-"
"""What the name of a query's cursor begins with, if the user has not chosen it,"""
READ_PREFIX: Final = "spark-read-"
"""and that of a batch read."""
_SILENT: Final = 10.0
"""Seconds after which a query that a gateway has not heard from is probably not running."""
_PATIENCE_AT_END: Final = 2.0
"""Seconds to wait for the answer of a gateway whose stream has ended."""
_PAUSE_AT_END: Final = 30.0
"""Seconds before a gateway that did not answer then is asked again: each batch would wait for it."""
_SHORT_LEASE: Final = 300.0
"""Seconds for which a cursor is kept that the query may never use again."""
_A_MOMENT: Final = 0.02
"""Seconds in which a gateway notices that a lease has expired."""


class StateOptions(TypedDict, total=False):
    """The parameters of :meth:`penstock.aquifer.LogReader.state`."""

    name: str
    epoch: str
    lease: float
    acknowledge: int
    beyond: int
    wait: float
    start: int
    within: int
    report: QueryReport
    patience: float


class GatewayLogs:
    """Connections to all gateways of a source; used by one thread."""

    def __init__(self, options: SourceOptions) -> None:
        self.endpoints = options.endpoints
        self._options = options
        self._logs: dict[str, LogReader] = {}
        self._ended: dict[str, LogState] = {}
        """The last state of gateways whose streams have ended; they may shut down."""
        self._asked_again: dict[str, float] = {}
        """When to ask those of them again that did not answer: they may have been restarted."""
        self._moves: Mapping[str, str] = {}
        """The new endpoints of gateways that have moved since the checkpoint was written; ``""`` if none."""
        self._added: dict[str, tuple[str, int]] = {}
        """The epochs and first offsets of endpoints that were added since then; of moved ones ``""``."""
        self._kept: dict[str, tuple[str, str, int]] = {}
        """The name, epoch and offset of the last cursor that was kept, by endpoint."""

    def state(self, endpoint: str, **options: Unpack[StateOptions]) -> LogState:
        """Return the state of a gateway's log; see :meth:`penstock.aquifer.LogReader.state`."""
        log = self._log(endpoint)
        ended = self._ended.get(endpoint)
        if ended is not None:
            if "within" not in options and time.monotonic() < self._asked_again.get(endpoint, 0.0):
                return ended._replace(lease=None, fits=None)
            options["patience"] = min(self._options.patience, _PATIENCE_AT_END)
        try:
            with self._options.connection_hints():
                state = log.state(**options)
        except GatewayUnreachable:
            if ended is None or "within" in options:
                raise
            # The gateway has shut down after the end of its stream. It keeps no cursor any more.
            self._asked_again[endpoint] = time.monotonic() + _PAUSE_AT_END
            return ended._replace(lease=None, fits=None)
        if state.end is not None:
            self._ended[endpoint] = state
        else:
            self._ended.pop(endpoint, None)  # It was restarted, and its stream goes on.
        return state

    def _log(self, endpoint: str) -> LogReader:
        if endpoint not in self._logs:
            curve = self._options.curve_client()
            self._logs[endpoint] = LogReader(endpoint, patience=self._options.patience, curve=curve)
        return self._logs[endpoint]

    @property
    def ended(self) -> list[str]:
        """The gateways whose streams have ended."""
        return sorted(self._ended)

    def close(self) -> None:
        """Close the connections."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()

    # ---------------------------------------------------------------- beginnings and ends
    def start_of(self, endpoint: str, state: LogState) -> int:
        """The offset at which the options want to start; the oldest if they say nothing."""
        options = self._options
        if options.starting_at is not None:
            return self.offset_at(endpoint, state, options.starting_at)
        return offset_in(state, options.starting, endpoint, "startingOffsets")

    def starts_with_oldest(self, endpoint: str) -> bool:
        """Whether the options want to start with the oldest record, whichever that is."""
        starting = self._options.starting
        if self._options.starting_at is not None:
            return False
        return (starting[endpoint] if isinstance(starting, dict) else starting) in (None, "earliest")

    def end_of(self, endpoint: str, state: LogState) -> int:
        """The offset before which the options want to end."""
        options = self._options
        if options.ending_at is not None:
            return self.offset_at(endpoint, state, options.ending_at)
        return offset_in(state, options.ending, endpoint, "endingOffsets")

    def check_different(self, epochs: Mapping[str, str]) -> None:
        """Raise BadOption if two endpoints, given with their epochs, are names of one log."""
        named: dict[str, str] = {}
        for endpoint, epoch in sorted(epochs.items()):
            other = named.setdefault(epoch, endpoint)
            if other != endpoint:
                raise BadOption(
                    "endpoint",
                    ",".join(self.endpoints),
                    f"{other} and {endpoint} are the same log, and each of its records would be read twice: "
                    "leave one of them out",
                )

    def offset_at(self, endpoint: str, state: LogState, instant: int) -> int:
        """The offset of the first record of a time, or later; the end of the log if there is none."""
        with self._options.connection_hints():
            return self._log(endpoint).offset_at(instant, state=state, format=self._format)

    def time_of(self, endpoint: str, offset: int) -> int | None:
        """The time of a record in microseconds since 1970; None if it is gone."""
        with self._options.connection_hints():
            return self._log(endpoint).time_of(offset, format=self._format)

    @property
    def _format(self) -> str:
        return "arrow" if self._options.value == "arrow" else "msgpack"

    # ---------------------------------------------------------------- cursors
    def lease(self, here: QueryPosition) -> float:
        """Seconds for which the gateways keep the cursor of a query that they do not hear from.

        Before Spark has logged the first batch, only this process knows the cursor's name. If the query ends
        before that, the cursor is useless, and must not hold back the source for long.
        """
        lease = self._options.stream_lease
        is_unknown = here.is_beginning and self._options.subscription is None
        return min(lease, _SHORT_LEASE) if is_unknown else lease

    def keep(self, endpoint: str, here: QueryPosition, lease: float | None = None) -> int:
        """Move the cursor to a position, and return the first offset that the gateway now keeps.

        That is a later offset if records are gone; the task that reads them reports it. If the gateway has
        started a new log, nothing happens: the offset means nothing in that log.
        """
        offset, epoch = here.offsets[endpoint], here.epochs[endpoint]
        lease = self.lease(here) if lease is None else lease
        while True:
            try:
                state = self.state(endpoint, name=here.name, epoch=epoch, lease=lease, acknowledge=offset)
            except OffsetGone as gone:
                if gone.first is None or gone.first <= offset:
                    raise
                offset = gone.first  # Try again: more records may have gone meanwhile.
            except EpochChanged as error:
                _log.warning("%s: %s", endpoint, error, extra={"endpoint": endpoint})
                return offset
            else:
                self._check_lease(endpoint, lease, state)
                self._check_cursor(endpoint, here, state, offset)
                self._kept[endpoint] = here.name, epoch, max(offset, state.acknowledged or 0)
                return offset

    def has_kept(self, endpoint: str, here: QueryPosition) -> bool:
        """Whether the cursor is where this position is, or behind it: there is nothing to acknowledge."""
        name, epoch, offset = self._kept.get(endpoint, ("", "", 0))
        return (name, epoch) == (here.name, here.epochs[endpoint]) and offset >= here.offsets[endpoint]

    def _check_lease(self, endpoint: str, lease: float, state: LogState) -> None:
        if state.lease is not None and state.lease < lease - 1:
            raise BadOption(
                "leaseSeconds",
                f"{lease:g}",
                f"{endpoint} keeps a cursor for {state.lease:g} seconds at most. Set less, or start the "
                f"gateway with a higher limit: Limits(max_lease={lease:g})",
            )

    def _check_cursor(self, endpoint: str, here: QueryPosition, state: LogState, moved_to: int = 0) -> None:
        """Raise if the cursor is further than this query has moved it: then another query moves it, too."""
        name, epoch, offset = self._kept.get(endpoint, ("", "", 0))
        offset = max(offset, moved_to)
        if (name, epoch) != (here.name, state.epoch) or (state.acknowledged or 0) <= offset:
            return
        shared = (
            "another run of this query, or a query with a copy of its checkpoint"
            if self._options.subscription is None
            else f'another query with option("subscription", "{name}")'
        )
        raise SharedSubscription(
            f"{shared} is reading from {endpoint}: it has acknowledged everything before "
            f"{state.acknowledged}, and this query needs the records from {offset} on. Stop one of them; "
            "each query needs a subscription and a checkpoint of its own"
        )

    def warn_of_silent_query(self, endpoint: str, state: LogState, begins: int) -> None:
        """Warn if this may be a query that has run before, and whose checkpoint was deleted.

        A new checkpoint has no trace of the old one. But the gateway still keeps the cursor of a query that
        has stopped. If several have, the warning names the one that was heard from last.
        """
        silent = {
            name: cursor.lease_ms / 1000 - cursor.remaining
            for name, cursor in state.saved.items()
            if name.startswith(QUERY_PREFIX)
            and not name.startswith(READ_PREFIX)
            and cursor.acknowledged != begins  # Otherwise both have the same records.
        }
        stopped = [name for name, seconds in silent.items() if seconds > _SILENT]
        if not stopped:
            return
        name = min(stopped, key=silent.__getitem__)
        _log.warning(
            "the checkpoint is new, so this query begins at offset %d of %s, which also keeps records from "
            "offset %d on for a query that has been silent for %.0f s. If that is the same query, and its "
            "checkpoint was deleted, records are processed again or left out: start it with another new "
            'checkpoint and option("subscription", "%s") to continue where it was',
            begins,
            endpoint,
            state.saved[name].acknowledged,
            silent[name],
            name,
            extra={"endpoint": endpoint},
        )

    def drop_cursor(self, endpoint: str, name: str) -> None:
        """Drop a cursor, and wait until the gateway has: only then can it be set to an earlier offset."""
        deadline = time.monotonic() + self._options.patience
        while self.state(endpoint, name=name, lease=0.001).acknowledged is not None:
            if time.monotonic() > deadline:
                raise SharedSubscription(
                    f"another query uses the cursor {name!r} at {endpoint}: stop that query"
                )
            time.sleep(_A_MOMENT)

    def count_within(self, endpoint: str, start: int, most: int, nbytes: int) -> tuple[int, int]:
        """How many records, and how many bytes, from an offset on fit into a number of bytes."""
        taken = used = 0
        while taken < most:
            fits = self.state(endpoint, start=start + taken, within=nbytes - used).fits
            if fits is None:
                remedy = f"the gateway at {endpoint} is too old to count bytes: update it"
                raise BadOption("maxBytesPerTrigger", self._options.max_bytes, remedy)
            if not fits[0]:
                break
            taken, used = taken + fits[0], used + fits[1]
        return min(taken, most), used

    def release(self, here: QueryPosition) -> None:
        """Drop the cursors of a position that the query will not use again."""
        for endpoint in self.endpoints:
            self.state(endpoint, name=here.name, lease=0.001)

    # ---------------------------------------------------------------- checks
    def checked(self, endpoint: str, state: LogState, here: QueryPosition) -> QueryPosition:
        """Check the state of a log, and return the position in the log that the gateway has now."""
        if state.epoch != here.epochs[endpoint]:
            text = (
                f"{endpoint} has started a new log (epoch {state.epoch}, not {here.epochs[endpoint]}): the "
                "offsets of the old log mean nothing in it. Start the query with a new checkpoint; or set "
                'option("failOnDataLoss", "false") to continue with the first record of the new log'
            )
            if self._options.fail_on_data_loss:
                raise DataLoss(text)
            _log.warning("%s", text, extra={"endpoint": endpoint})
            here = here.with_new_log(endpoint, state.epoch, state.first)
            self.keep(endpoint, here)
        elif state.head < here.offsets[endpoint]:
            raise DataLoss(
                f"{endpoint} has lost its last records: its log ends before {state.head}, and the query has "
                f"read up to {here.offsets[endpoint]}. Start the query with a new checkpoint"
            )
        self._check_checkpoint(endpoint, here, state)
        self._check_cursor(endpoint, here, state)
        if state.epoch == here.epochs[endpoint] and state.acknowledged is None:
            # The gateway was restarted without a journal on disk, or the lease has expired.
            self.keep(endpoint, here)
        return here

    def _check_checkpoint(self, endpoint: str, here: QueryPosition, state: LogState) -> None:
        """Raise if the query has acknowledged more than its checkpoint knows, when it plans its first batch.

        It acknowledges records when their batch is noted as done. So the checkpoint has lost that note.
        """
        kept = self._kept.get(endpoint)
        is_first = kept is None or kept[:2] != (here.name, state.epoch)
        is_added = self._added.get(endpoint, ("", 0))[0] != ""
        acknowledged, end = state.acknowledged or 0, here.offsets[endpoint]
        if not is_first or is_added or acknowledged <= end:
            return
        text = (
            f"this query has acknowledged the records of {endpoint} before {acknowledged}, and its "
            f"checkpoint ends at {end}: files of the checkpoint were deleted, or it is an older copy, or "
            "another run of the query is active. Put the checkpoint back; or start with a new one and "
            f'option("subscription", "{here.name}") to continue at {acknowledged}'
        )
        if self._options.fail_on_data_loss:
            raise BadCheckpoint(text)
        _log.warning("%s", text, extra={"endpoint": endpoint})

    def relocated(self, logged: QueryPosition) -> QueryPosition:
        """The same position with today's endpoints.

        The epoch identifies a log that has moved. An endpoint that the checkpoint does not know begins where
        the options want to start. One that is no longer wanted is left out.
        """
        gone = [endpoint for endpoint in logged.offsets if endpoint not in self.endpoints]
        added = [endpoint for endpoint in self.endpoints if endpoint not in logged.offsets]
        if not gone and not added:
            return logged
        if any(e not in self._moves for e in gone) or any(e not in self._added for e in added):
            self._match(logged, gone, added)
        moved = logged.moved({before: after for before, after in self._moves.items() if after})
        return moved.without([before for before, after in self._moves.items() if not after])

    def with_added(self, here: QueryPosition) -> QueryPosition:
        """The position with the endpoints that were added to the query since its checkpoint was written."""
        for endpoint, (epoch, offset) in self._added.items():
            if endpoint not in here.offsets and epoch:
                here = here.with_new_log(endpoint, epoch, offset)
        return here

    def _match(self, logged: QueryPosition, gone: list[str], added: list[str]) -> None:
        """Find out which endpoints have moved, and which are new or no longer wanted."""
        states = {endpoint: self.state(endpoint) for endpoint in added}
        # A log that the checkpoint knows may be among the added ones under a second name.
        kept = {e: epoch for e, epoch in logged.epochs.items() if e not in gone}
        self.check_different(kept | {endpoint: state.epoch for endpoint, state in states.items()})
        now_at = {state.epoch: endpoint for endpoint, state in states.items()}
        self._moves = {endpoint: now_at.pop(logged.epochs[endpoint], "") for endpoint in gone}
        removed = [before for before, after in self._moves.items() if not after]
        if removed and self._options.fail_on_data_loss:
            raise BadOption(
                "endpoint",
                ",".join(self.endpoints),
                f"the query of this checkpoint reads from {', '.join(sorted(logged.offsets))}, and records "
                f"that it has not read from {', '.join(removed)} would be left out. Give these endpoints; or "
                'set option("failOnDataLoss", "false") to go on without them; or start with a new checkpoint',
            )
        for before, after in self._moves.items():
            if after:
                _log.info("the gateway that was at %s is at %s now", before, after)
            else:
                _log.warning("the query no longer reads from %s", before)
        # Those that have moved are known: they have no beginning of their own.
        self._added = dict.fromkeys(added, ("", 0))
        for epoch, endpoint in now_at.items():
            self._added[endpoint] = epoch, self.start_of(endpoint, states[endpoint])
            _log.info("the query also reads from %s now, from %d on", endpoint, self._added[endpoint][1])


def offset_in(state: LogState, wanted: Offsets | None, endpoint: str, option: str) -> int:
    """The offset that an option stands for in a log; the oldest if the option is not set."""
    if wanted is None:
        return state.first
    offset = wanted if isinstance(wanted, str) else wanted[endpoint]
    if isinstance(offset, str):
        return state.first if offset == "earliest" else state.head
    if not state.first <= offset <= state.head:
        there = f"the offsets {state.first} to {state.head - 1}" if state.first < state.head else "no records"
        raise BadOption(option, offset, f"{endpoint} has {there}, and the next will be {state.head}")
    return offset
