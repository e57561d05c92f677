"""Looking at a whole pipeline: gateways, the queries that read them, and the gateways these write to."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.arguments import seconds
from penstock.observe.clients import endpoints_of, joined, local_clients
from penstock.observe.judge import judge_each
from penstock.observe.model import Hop, RecentError, Snapshot, Verdict
from penstock.observe.publication import look_at_process
from penstock.observe.stream_names import StreamNames

if TYPE_CHECKING:
    from penstock.aquifer import CurveClient, GatewayStatus
    from penstock.observe.status_hops import GatewayHops

__all__ = ["Observer", "snapshots", "why"]

_MOST_STREAMS: Final = 64
_TOO_MANY: Final = "streams"
"""The place of the error that there are more."""
_ERRORS: Final = 50
_WINDOW: Final = 5.0
"""Seconds that a verdict looks back: the slowest hop is found from what has happened since then."""
_TIMEOUT: Final = 2.5


class Observer:
    """Takes snapshots of the gateways at some endpoints and of all that can be reached from them.

    An endpoint without a name stands for all streams of its gateway, and one with a name for that stream and
    its dead letters. The number of a process stands for the streams of that process, if it publishes them.

    ::

        with Observer("tcp://127.0.0.1:5556") as observer:
            observer.look()
            time.sleep(2)
            print(observer.look().verdict.sentence)

    ``curve`` are the keys for gateways that need some. One thread uses an observer.
    """

    def __init__(
        self,
        *endpoints: str,
        curve: CurveClient | None = None,
        timeout: float = _TIMEOUT,
        looks: Mapping[str, Callable[[], GatewayStatus]] | None = None,
    ) -> None:
        """``looks`` has functions that return the status of gateways in this process, by endpoint.

        :meth:`penstock.aquifer.Gateway.looks` has one for each stream. An endpoint that has one stands for
        the stream that the function looks at, and for no other.
        """
        if not endpoints:
            raise ValueError("Observer() needs the endpoint of a gateway, for instance tcp://127.0.0.1:5556")
        # A process by its number is asked over a Unix socket: see penstock.observe.publish().
        self._endpoints = endpoints
        self._curve = curve
        self._looks = dict(looks or {})
        self._timeout = seconds(timeout, "Observer(timeout=…)", positive=True)
        self._past: deque[Snapshot] = deque()
        self._errors: deque[RecentError] = deque(maxlen=_ERRORS)
        self._told: dict[str, str] = {}
        """The errors of this moment, by hop."""
        self._silent: list[Hop] = []
        """For each gateway that did not answer the last time, a hop in the state ``failed``."""
        self._unheard: set[str] = set()
        """Gateways that nobody has named here, and that did not answer: they are not asked again."""
        self._limiting: dict[str | None, float] | None = None
        """Since when each hop limits the flow that does so now; None if nobody does."""

    def look(self) -> Snapshot:
        """A snapshot of this moment, with a verdict if it is not the first one.

        Raises :class:`~penstock.aquifer.AquiferError` if none of the endpoints answers. Of several gateways,
        one that does not answer has a hop in the state ``failed``, and is among the errors of the snapshot.
        """
        snapshot = self._gather()
        while self._past and snapshot.clock - self._past[0].clock > _WINDOW and len(self._past) > 1:
            self._past.popleft()
        if self._past:
            verdict, *others = self._dated(judge_each(self._past[0], snapshot), snapshot.clock)
            snapshot = replace(snapshot, verdict=verdict, other_verdicts=tuple(others))
        self._past.append(snapshot)
        return replace(snapshot, hops=(*snapshot.hops, *self._silent))  # nothing can be said about those

    def _dated(self, verdicts: Sequence[Verdict], now: float) -> list[Verdict]:
        """The verdicts, with the time since which this observer has seen each, or longer in its first look.

        A log may have been full for longer than the hop that limits the flow now has done so.
        """
        first, before = self._limiting is None, self._limiting or {}
        began = self._past[0].clock
        self._limiting = {
            each.limiting: before.get(
                each.limiting, min(began, now - (each.since or 0.0)) if first else began
            )
            for each in verdicts
        }
        return [replace(each, since=now - self._limiting[each.limiting]) for each in verdicts]

    def _gather(self) -> Snapshot:
        from penstock.aquifer import AquiferError, probe
        from penstock.observe.status_hops import bad_elements, hops_of

        found: dict[str, GatewayHops] = {}
        names = StreamNames()
        waiting = list(self._endpoints)
        failure: AquiferError | None = None
        processes: list[Hop] = []
        bad: list[RecentError] = []
        asked: set[str] = set()
        beside: set[str] = set()
        self._silent = []
        while waiting and len(found) < _MOST_STREAMS:
            endpoint = waiting.pop(0)
            if endpoint in asked or endpoint in self._unheard:
                continue
            asked.add(endpoint)
            if _is_process(endpoint):
                shown = look_at_process(int(endpoint)).hops
                processes += shown
                waiting += endpoints_of(shown)
                continue
            try:
                look = self._looks.get(endpoint)
                status = probe(endpoint, self._timeout, self._curve) if look is None else look()
            except AquiferError as error:
                if endpoint not in self._endpoints and endpoint not in beside:
                    self._unheard.add(endpoint)
                failure = failure or error
                silent = Hop(id=f"{endpoint}/log", kind="log", name="log", where=endpoint, state="failed")
                self._silent.append(silent)
                self._note(silent.id, str(error))
                continue
            home = names.add(endpoint, status)
            if endpoint in self._endpoints and look is None:
                others = names.beside(endpoint, status)
                beside.update(others)
                waiting += others
            if home in found:
                continue
            if home != endpoint:
                self._note(f"{endpoint}/log", None)  # It answers now, and has a name.
            self._note(f"{home}/log", status.stalled)
            self._note(f"{home}/intake", status.failure or _down(status))
            found[home] = hops_of(home, status)
            bad += bad_elements(home, status)
            waiting += [sink for sink in found[home].sinks.values() if sink.startswith("tcp://")]
        self._note(_TOO_MANY, _left_out(waiting, asked))
        if not found and not processes and failure is not None:
            raise failure
        gateways = list(found.values())
        served = list(_linked(found, names))
        if served:
            processes += local_clients(
                served, names, (int(each) for each in self._endpoints if _is_process(each))
            )
        errors = sorted((*self._errors, *bad), key=lambda each: each.at)
        return Snapshot(
            at=time.time(),
            clock=time.monotonic(),
            hops=joined(served, processes, names),
            errors=tuple(errors[-_ERRORS:]),
            batches=tuple(batch for each in gateways for batch in each.batches),
            subscribers=tuple(one for each in gateways for one in each.subscribers),
        )

    def _note(self, hop: str, message: str | None) -> None:
        """Keep an error once, and again when it comes back after it was gone."""
        if message is None:
            self._told.pop(hop, None)
        elif self._told.get(hop) != message:
            self._told[hop] = message
            self._errors.append(RecentError(at=time.time(), hop=hop, message=message))

    def close(self) -> None:
        """Forget what was seen."""
        self._past.clear()

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_process(endpoint: str) -> bool:
    """Whether this is the number of a process; other scripts have digits, too, and not all of them count."""
    return endpoint.isascii() and endpoint.isdigit()


def _down(status: GatewayStatus) -> str | None:
    """Why the feed gives nothing at the moment, if it says so."""
    source = status.source
    return f"the source is down: {source.reason}" if source.state == "down" and source.reason else None


def _left_out(waiting: Iterable[str], asked: Container[str]) -> str | None:
    """What to say if there are more streams than an observer looks at."""
    if left := len({endpoint for endpoint in waiting if endpoint not in asked}):
        return f"{left} more streams are not shown: name those that matter, as in tcp://HOST:PORT/STREAM"
    return None


def _linked(gateways: Mapping[str, GatewayHops], names: StreamNames) -> Iterator[Hop]:
    """The hops of all gateways; a producer stands below the query that writes under its name."""
    writers: dict[str, list[str]] = {}
    for each in gateways.values():
        for query, endpoint in each.sinks.items():
            sink = names.home(endpoint)
            for producer in gateways[sink].producers.values() if sink in gateways else ():
                writers.setdefault(producer, []).append(query)
    for each in gateways.values():
        for hop in each.hops:
            yield replace(hop, upstream=tuple(writers[hop.id])) if hop.id in writers else hop


def snapshots(*endpoints: str, every: float = 1.0, curve: CurveClient | None = None) -> Iterator[Snapshot]:
    """Look again and again, ``every`` so many seconds; the first snapshot has no verdict."""
    pause = seconds(every, "snapshots(every=…)", positive=True)
    with Observer(*endpoints, curve=curve) as observer:
        while True:
            began = time.monotonic()
            yield observer.look()
            time.sleep(max(0.0, pause - (time.monotonic() - began)))


def why(*endpoints: str, within: float = 2.0, curve: CurveClient | None = None) -> Verdict:
    """Look at the gateways twice, ``within`` so many seconds, and say which hop limits the flow."""
    pause = seconds(within, "why(within=…)", positive=True)
    with Observer(*endpoints, curve=curve) as observer:
        observer.look()
        time.sleep(pause)
        verdict = observer.look().verdict
    assert verdict is not None, "the second snapshot has a verdict"
    return verdict
