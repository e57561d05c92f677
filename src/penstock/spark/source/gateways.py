"""The gateways of a source, as its driver sees them: how far their logs go, and what they keep for it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from penstock.aquifer.errors import EpochChanged, GatewayUnreachable, OffsetGone
from penstock.aquifer.subscriber.log_client import LogClient, LogState
from penstock.spark.options import BadOption, SourceOptions, naming_the_options
from penstock.spark.source.positions import Position
from penstock.spark.source.reading import DataLoss, curve_client

__all__ = ["Gateways", "offset_in"]

_log = logging.getLogger("penstock.spark")

_PATIENCE_AT_END: Final = 2.0
"""Seconds to look for a gateway that has nothing more to say."""
_SHORT_LEASE: Final = 300.0
"""Seconds that a place is kept which nobody may ever come back to."""


class Gateways:
    """Connections to all gateways of a source; used by one thread."""

    def __init__(self, options: SourceOptions) -> None:
        self.endpoints = options.endpoints
        self._options = options
        self._clients: dict[str, LogClient] = {}
        self._ended: dict[str, LogState] = {}
        """The last state of those gateways whose streams have ended: they may leave."""
        self._moves: Mapping[str, str] = {}
        """Where gateways are now that were elsewhere when the query's checkpoint was written."""

    def look(self, endpoint: str, **wishes: Any) -> LogState:
        """How a gateway's log is; see :meth:`~penstock.aquifer.subscriber.log_client.LogClient.look`."""
        if endpoint not in self._clients:
            options = self._options
            curve = curve_client(options.curve_key, options.curve_server)
            self._clients[endpoint] = LogClient(endpoint, patience=options.patience, curve=curve)
        ended = self._ended.get(endpoint)
        if ended is not None:
            wishes["patience"] = min(self._options.patience, _PATIENCE_AT_END)
        try:
            with naming_the_options(self._options.curve_key):
                state = self._clients[endpoint].look(**wishes)
        except GatewayUnreachable:
            if ended is None:
                raise
            return ended  # An end that was announced is one, also when the gateway has left since.
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
    def lease(self, here: Position) -> float:
        """How long the gateways keep the place of a query of which they hear nothing.

        Until Spark has logged the first batch nothing remembers the name under which the place is kept. If
        the query ends before that, the place is of no use to anybody, and must not hold up the source.
        """
        lease = self._options.lease
        nameless = here.is_beginning and self._options.subscription is None
        return min(lease, _SHORT_LEASE) if nameless else lease

    def keep(self, endpoint: str, here: Position, lease: float | None = None) -> int:
        """Have everything from a position on kept, or what is left of it: who reads it will see what is gone.

        Returns the offset from which on it is kept. Does nothing if the gateway has started a new log
        meanwhile: the offset means nothing in that.
        """
        offset, epoch = here.offsets[endpoint], here.epochs[endpoint]
        lease = self.lease(here) if lease is None else lease
        while True:
            try:
                self.look(endpoint, name=here.name, epoch=epoch, lease=lease, acknowledge=offset)
            except OffsetGone as gone:
                if gone.first is None or gone.first <= offset:
                    raise
                offset = gone.first  # And again: the log may have gone on once more.
            except EpochChanged as error:
                _log.warning("%s: %s", endpoint, error)
                return offset
            else:
                return offset

    def release(self, here: Position) -> None:
        """Nobody will come back to this place."""
        for endpoint in self.endpoints:
            self.look(endpoint, name=here.name, lease=0.001)

    # ---------------------------------------------------------------- is everything still there
    def checked(self, endpoint: str, state: LogState, here: Position) -> Position:
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
        elif state.acknowledged is None:
            # The gateway was restarted without a journal on disk, or heard nothing for longer than the lease.
            self.keep(endpoint, here)
        return here

    def found(self, logged: Position) -> Position:
        """A position with the endpoints of today: a log is known by its epoch, wherever it is now."""
        strangers = [endpoint for endpoint in logged.offsets if endpoint not in self.endpoints]
        newcomers = [endpoint for endpoint in self.endpoints if endpoint not in logged.offsets]
        if not strangers and not newcomers:
            return logged
        if len(strangers) != len(newcomers) or any(endpoint not in self._moves for endpoint in strangers):
            self._moves = self._matched(logged, strangers, newcomers)
        return logged.moved(self._moves)

    def _matched(self, logged: Position, strangers: list[str], newcomers: list[str]) -> Mapping[str, str]:
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


def offset_in(state: LogState, wanted: str | dict[str, int], endpoint: str, option: str) -> int:
    """The offset that an option names, in the log as it is now."""
    if isinstance(wanted, str):
        return state.first if wanted == "earliest" else state.head
    offset = wanted[endpoint]
    if not state.first <= offset <= state.head:
        there = f"the offsets {state.first} to {state.head - 1}" if state.first < state.head else "no records"
        raise BadOption(option, offset, f"{endpoint} has {there}, and the next will be {state.head}")
    return offset
