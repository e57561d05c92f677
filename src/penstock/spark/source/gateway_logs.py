"""The gateways of a source, as its driver sees them: how far their logs go, and what they keep for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from penstock.aquifer import EpochChanged, GatewayUnreachable, LogReader, LogState, OffsetGone
from penstock.spark.errors import BadOption, DataLoss, SharedSubscription
from penstock.spark.options import SourceOptions
from penstock.spark.source.positions import QueryPosition

__all__ = ["GatewayLogs", "offset_in"]

_log = logging.getLogger("penstock.spark")

_PATIENCE_AT_END: Final = 2.0
"""Seconds to look for a gateway that has nothing more to say."""
_SHORT_LEASE: Final = 300.0
"""Seconds that a place is kept which nobody may ever come back to."""
_A_MOMENT: Final = 0.02
"""Seconds in which a gateway notices that a lease has ended."""


class GatewayLogs:
    """Connections to all gateways of a source; used by one thread."""

    def __init__(self, options: SourceOptions) -> None:
        self.endpoints = options.endpoints
        self._options = options
        self._clients: dict[str, LogReader] = {}
        self._ended: dict[str, LogState] = {}
        """The last state of those gateways whose streams have ended: they may leave."""
        self._moves: Mapping[str, str] = {}
        """Where gateways are now that were elsewhere when the query's checkpoint was written."""
        self._kept: dict[str, tuple[str, str, int]] = {}
        """The name, the epoch and the offset under which a place was last kept, by endpoint."""

    def look(self, endpoint: str, **wishes: Any) -> LogState:
        """How a gateway's log is; see :meth:`~penstock.aquifer.LogReader.state`."""
        if endpoint not in self._clients:
            options = self._options
            self._clients[endpoint] = LogReader(
                endpoint, patience=options.patience, curve=options.curve_client()
            )
        ended = self._ended.get(endpoint)
        if ended is not None:
            wishes["patience"] = min(self._options.patience, _PATIENCE_AT_END)
        try:
            with self._options.connection_hints():
                state = self._clients[endpoint].state(**wishes)
        except GatewayUnreachable:
            if ended is None or "within" in wishes:
                raise
            # An end that was announced is one, also when the gateway has left since. It grants nothing more.
            return ended._replace(lease=None, fits=None)
        if state.end is not None:
            self._ended[endpoint] = state
        else:
            self._ended.pop(endpoint, None)  # It was started again, and goes on.
        return state

    @property
    def ended(self) -> list[str]:
        """The gateways that have said that nothing more will come."""
        return sorted(self._ended)

    def close(self) -> None:
        """Let go of the connections."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    # ---------------------------------------------------------------- keeping a place
    def lease(self, here: QueryPosition) -> float:
        """How long the gateways keep the place of a query of which they hear nothing.

        Until Spark has logged the first batch nothing remembers the name under which the place is kept. If
        the query ends before that, the place is of no use to anybody, and must not hold up the source.
        """
        lease = self._options.stream_lease
        nameless = here.is_beginning and self._options.subscription is None
        return min(lease, _SHORT_LEASE) if nameless else lease

    def keep(self, endpoint: str, here: QueryPosition, lease: float | None = None) -> int:
        """Have everything from a position on kept, or what is left of it: who reads it will see what is gone.

        Returns the offset from which on it is kept. Does nothing if the gateway has started a new log
        meanwhile: the offset means nothing in that.
        """
        offset, epoch = here.offsets[endpoint], here.epochs[endpoint]
        lease = self.lease(here) if lease is None else lease
        while True:
            try:
                state = self.look(endpoint, name=here.name, epoch=epoch, lease=lease, acknowledge=offset)
            except OffsetGone as gone:
                if gone.first is None or gone.first <= offset:
                    raise
                offset = gone.first  # And again: the log may have gone on once more.
            except EpochChanged as error:
                _log.warning("%s: %s", endpoint, error)
                return offset
            else:
                self._check_lease(endpoint, lease, state)
                self._check_place(endpoint, here, state, offset)
                self._kept[endpoint] = here.name, epoch, max(offset, state.acknowledged or 0)
                return offset

    def _check_lease(self, endpoint: str, lease: float, state: LogState) -> None:
        if state.lease is not None and state.lease < lease - 1:
            raise BadOption(
                "leaseSeconds",
                f"{lease:g}",
                f"{endpoint} keeps a place for {state.lease:g} seconds at most. Ask for less, or start the "
                f"gateway with a higher limit: Limits(max_lease={lease:g})",
            )

    def _check_place(self, endpoint: str, here: QueryPosition, state: LogState, moved_to: int = 0) -> None:
        """Nobody but this query moves its place on. If it is further than that, it is not ours alone."""
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
            f"{shared} is reading from {endpoint}: it has let go of everything before {state.acknowledged}, "
            f"and this one needs what comes after {offset}. Stop one of them; each query needs a "
            "subscription, and a checkpoint, of its own"
        )

    def forget(self, endpoint: str, name: str) -> None:
        """Give up a place, and wait until the gateway has: only then can one before it be kept."""
        deadline = time.monotonic() + self._options.patience
        while self.look(endpoint, name=name, lease=0.001).acknowledged is not None:
            if time.monotonic() > deadline:
                raise SharedSubscription(
                    f"somebody else keeps the place of {name!r} at {endpoint}; stop that first"
                )
            time.sleep(_A_MOMENT)

    def reach(self, endpoint: str, start: int, most: int, nbytes: int) -> tuple[int, int]:
        """How many records from an offset on have no more than so many bytes, and how many they have."""
        taken = used = 0
        while taken < most:
            fits = self.look(endpoint, start=start + taken, within=nbytes - used).fits
            if fits is None:
                remedy = f"the gateway at {endpoint} is too old to count bytes: update it"
                raise BadOption("maxBytesPerTrigger", self._options.max_bytes, remedy)
            if not fits[0]:
                break
            taken, used = taken + fits[0], used + fits[1]
        return min(taken, most), used

    def release(self, here: QueryPosition) -> None:
        """Nobody will come back to this place."""
        for endpoint in self.endpoints:
            self.look(endpoint, name=here.name, lease=0.001)

    # ---------------------------------------------------------------- is everything still there
    def checked(self, endpoint: str, state: LogState, here: QueryPosition) -> QueryPosition:
        """Where the query stands in the log that the gateway has now, and has its place kept there."""
        if state.epoch != here.epochs[endpoint]:
            text = (
                f"{endpoint} has started a new log (epoch {state.epoch}, not {here.epochs[endpoint]}): the "
                "offsets of the old one mean nothing in it. Start the query with a new checkpoint; or set "
                'option("failOnDataLoss", "false"), and it goes on with the first record of the new log'
            )
            if self._options.fail_on_data_loss:
                raise DataLoss(text)
            _log.warning("%s", text)
            here = here.with_new_log(endpoint, state.epoch, state.first)
            self.keep(endpoint, here)
        elif state.head < here.offsets[endpoint]:
            raise DataLoss(
                f"{endpoint} has lost its last records: its log ends before {state.head}, and the query has "
                f"read up to {here.offsets[endpoint]}. Start the query with a new checkpoint"
            )
        self._check_place(endpoint, here, state)
        if state.epoch == here.epochs[endpoint] and state.acknowledged is None:
            # The gateway was restarted without a journal on disk, or heard nothing for longer than the lease.
            self.keep(endpoint, here)
        return here

    def found(self, logged: QueryPosition) -> QueryPosition:
        """A position with the endpoints of today: a log is known by its epoch, wherever it is now."""
        strangers = [endpoint for endpoint in logged.offsets if endpoint not in self.endpoints]
        newcomers = [endpoint for endpoint in self.endpoints if endpoint not in logged.offsets]
        if not strangers and not newcomers:
            return logged
        if len(strangers) != len(newcomers) or any(endpoint not in self._moves for endpoint in strangers):
            self._moves = self._matched(logged, strangers, newcomers)
        return logged.moved(self._moves)

    def _matched(
        self, logged: QueryPosition, strangers: list[str], newcomers: list[str]
    ) -> Mapping[str, str]:
        now_at = {self.look(endpoint).epoch: endpoint for endpoint in newcomers}
        moves = {endpoint: now_at.pop(logged.epochs[endpoint], "") for endpoint in strangers}
        if now_at or not all(moves.values()):
            raise BadOption(
                "endpoint",
                ",".join(self.endpoints),
                f"the checkpoint is of a query that reads from {', '.join(sorted(logged.offsets))}; name "
                "these, or start with a new checkpoint",
            )
        for before, after in moves.items():
            _log.info("the gateway that was at %s is at %s now", before, after)
        return moves


def offset_in(state: LogState, wanted: str | dict[str, int] | None, endpoint: str, option: str) -> int:
    """The offset that an option names, in the log as it is now; the oldest, if it says nothing."""
    if wanted is None:
        return state.first
    if isinstance(wanted, str):
        return state.first if wanted == "earliest" else state.head
    offset = wanted[endpoint]
    if not state.first <= offset <= state.head:
        there = f"the offsets {state.first} to {state.head - 1}" if state.first < state.head else "no records"
        raise BadOption(option, offset, f"{endpoint} has {there}, and the next will be {state.head}")
    return offset
