"""The verdict: which hop limits the flow, found from two snapshots.

In a chain with backpressure the slowest hop works, the hops above it wait for demand, and those below it wait
for data. So the search begins at the log of the first gateway. If the log has no space, or a required reader
falls behind, the reader that needs the oldest record is followed downwards: it may be a query that waits for
the gateway it writes to, or a program that shows which of its own stages is slow. If the journal works all
the time while elements wait for it, the disk is slow. Otherwise the search goes up, to the stage that works
while everything below it waits. A feed that is down limits the flow, too. If nothing works all the time,
nobody limits the flow: the source is slower than everything else.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from penstock.observe.model import Hop, HopRates, Snapshot, Verdict, rates
from penstock.observe.sentences import LimitingHop, sentence_for

__all__ = ["judge", "judge_each"]

_HELD_UP: Final = 0.2
"""A hop that waits for demand for this share of the time is held up."""
_BUSY: Final = 0.5
"""A hop that works for this share of the time may be the one that limits the flow."""
_BEHIND: Final = 0.1
"""A reader that gets so much less than comes in falls behind,"""
_BEHIND_SECONDS: Final = 1.0
"""if it is behind by so many seconds already."""
_NOBODY: Final = 100
"""The gravity of a pipeline in which no hop limits the flow."""
_WORKERS: Final = ("stage", "boundary", "connection")
"""Kinds of hops above a log, or below a reader, that can be slow by themselves."""


def judge(before: Snapshot, after: Snapshot) -> Verdict:
    """Say which hop limits the flow between two snapshots of the same observer."""
    return judge_each(before, after)[0]


def judge_each(before: Snapshot, after: Snapshot) -> list[Verdict]:
    """One verdict for each pipeline in which a hop limits the flow, the gravest first; if none does, one."""
    pipelines = _pipelines(after.hops)
    judges = [_Judge(before, replace(after, hops=hops)) for hops in pipelines]
    limited = [each for each in judges if each.found.hop is not None]
    if not limited:
        return [(judges[0] if len(judges) == 1 else _Judge(before, after)).verdict()]
    return [each.verdict() for each in sorted(limited, key=lambda each: each.gravity)]


def _pipelines(hops: Sequence[Hop]) -> list[tuple[Hop, ...]]:
    """The hops that have to do with each other, together; in the order of their first hops."""
    leads: dict[str, str] = {}

    def lead(id: str) -> str:
        while leads.setdefault(id, id) != id:
            leads[id] = id = leads[leads[id]]
        return id

    for hop in hops:
        for above in hop.upstream:
            leads[lead(hop.id)] = lead(above)
    found: dict[str, list[Hop]] = {}
    for hop in hops:
        found.setdefault(lead(hop.id), []).append(hop)
    return [tuple(each) for each in found.values()]


class _Judge:
    def __init__(self, before: Snapshot, after: Snapshot) -> None:
        self._before = {hop.id: hop for hop in before.hops}
        self._after = after
        self._rates = rates(before, after)
        self._hops = {hop.id: hop for hop in after.hops}
        self._below: dict[str, list[Hop]] = {}
        for hop in after.hops:
            for above in hop.upstream:
                self._below.setdefault(above, []).append(hop)

        self.gravity, self.found = self._search()
        """What limits the flow; the smaller the first figure, the more is known about it."""

    def verdict(self) -> Verdict:
        verdict = sentence_for(self.found, self._after, self._rates)
        return replace(verdict, also=tuple(self._also(self.found)))

    # ---------------------------------------------------------------- the search
    def _search(self) -> tuple[int, LimitingHop]:
        logs = [hop for hop in self._after.hops if hop.kind == "log"]
        found = next(
            ((gravity, each) for gravity, each in enumerate(self._candidates(logs)) if each is not None), None
        )
        return found if found is not None else (_NOBODY, self._nobody())

    def _candidates(self, logs: Sequence[Hop]) -> Iterator[LimitingHop | None]:
        """What each way to search finds, the surest way first."""
        yield _first(self._held_up_by(log, set()) for log in logs)
        yield _first(self._falls_behind(log) for log in logs)
        yield _first(self._above(log) for log in logs)
        ends = [hop for hop in self._after.hops if hop.id not in self._below]
        yield _first(self._upwards(end) for end in ends if end.kind not in ("log", "cursor"))
        down = (hop for hop in self._after.hops if hop.state == "down")
        yield _first(self._found(hop, "down", None) for hop in down)

    def _held_up_by(self, log: Hop, seen: set[str]) -> LimitingHop | None:
        """What keeps a log full, or does not let it be written."""
        if log.id in seen:
            return None
        if log.state == "stalled":
            return self._found(log, "stalled", log)
        if log.full_seconds is None and self._share(log, "waiting_for_demand") < _HELD_UP:
            return None
        if log.full_seconds is None and log.state != "full":
            return None
        reader = self._needs_the_oldest(log)
        if reader is None:
            return self._found(log, "unread", log)
        return self._slow_reader(reader, log, "slow", seen | {log.id})

    def _slow_reader(self, cursor: Hop, log: Hop, why: str, seen: set[str]) -> LimitingHop:
        """The reader, or what it waits for itself."""
        for query in self._below.get(cursor.id, []):
            if query.kind != "query":
                continue
            for producer in self._below.get(query.id, []):
                for sink in self._below.get(producer.id, []):
                    if (found := self._sink_is_slow(query, producer, sink, seen)) is not None:
                        return found
            return self._found(query, why, log)
        for reader in self._below.get(cursor.id, []):
            if reader.kind == "reader" and (found := self._slow_client(reader, seen)) is not None:
                if found.log is not None or found.hop is None:
                    return found
                return self._found(found.hop, why, log, found.operator)
        if cursor.state == "away" and not self._rate(cursor).records_out:
            return self._found(cursor, "away", log)
        return self._found(cursor, why, log)

    def _slow_client(self, reader: Hop, seen: set[str]) -> LimitingHop | None:
        """What is slow below a reader: its stages, its program, or the gateway that it feeds."""
        below = {reader.id}
        for hop in self._after.hops:
            if not below.isdisjoint(hop.upstream):
                below.add(hop.id)
        for log in (self._hops[id] for id in below if self._hops[id].kind == "log"):
            if (found := self._held_up_by(log, seen)) is not None:
                return found
        for end in (self._hops[id] for id in below if id not in self._below):
            if (found := self._upwards(end, below)) is not None:
                return found
        return None

    def _sink_is_slow(self, query: Hop, producer: Hop, sink: Hop, seen: set[str]) -> LimitingHop | None:
        if self._share(producer, "waiting_for_demand") >= _HELD_UP or sink.state == "full":
            found = self._held_up_by(sink, seen)
            if found is not None:
                return found
        if self._share(producer, "working") >= _BUSY:
            return self._found(sink, "slow", sink)
        return None

    def _needs_the_oldest(self, log: Hop) -> Hop | None:
        readers = [hop for hop in self._below.get(log.id, []) if hop.required and hop.kind == "cursor"]
        return min(readers, key=lambda hop: hop.records_out, default=None)

    def _falls_behind(self, log: Hop) -> LimitingHop | None:
        """A required reader whose lag grows although the log still has space."""
        coming = self._rate(log).records_in
        slowest = self._needs_the_oldest(log)
        if slowest is None or coming <= 0 or slowest.id not in self._rates:
            return None
        grown = (slowest.lag_records or 0) - (self._before[slowest.id].lag_records or 0)
        grown_seconds = (slowest.lag_seconds or 0.0) - (self._before[slowest.id].lag_seconds or 0.0)
        behind = grown > _BEHIND * coming * self._rate(log).seconds and grown_seconds > 0
        if not behind or (slowest.lag_seconds or 0.0) < max(_BEHIND_SECONDS, self._batch_seconds(slowest)):
            return None
        return self._slow_reader(slowest, log, "behind", {log.id})

    def _batch_seconds(self, cursor: Hop) -> float:
        """A query is always behind by a batch or two."""
        queries = [hop for hop in self._below.get(cursor.id, []) if hop.kind == "query"]
        return max((2 * hop.details.get("batch_seconds", 0.0) for hop in queries), default=0.0)

    def _above(self, log: Hop) -> LimitingHop | None:
        """The journal, or a stage above it."""
        intakes = [self._hops[id] for id in log.upstream if id in self._hops]
        waits = any(
            self._share(hop, "waiting_for_demand") >= _BUSY or (hop.waiting or 0) > 0
            for hop in intakes
            if hop.kind in ("intake", "producer")
        )
        if self._share(log, "working") >= _BUSY and waits:
            return self._found(log, "slow", log)
        for intake in intakes:
            if intake.kind == "intake" and (found := self._upwards(intake)) is not None:
                return replace(found, log=log)
        return None

    def _upwards(self, hop: Hop, among: Container[str] | None = None) -> LimitingHop | None:
        """The lowest stage from here on up that works while what is below it waits for data."""
        seen: set[str] = set()
        waiting = [hop]
        while waiting:
            current = waiting.pop()
            if current.id in seen:
                continue
            seen.add(current.id)
            if self._share(current, "working") >= _BUSY and current.kind in _WORKERS:
                operator, _ = self._operator(current)
                return self._found(current, "slow", None, operator)
            if (
                current.kind in ("stage", "boundary", "reader")
                and current.id not in self._below
                and self._share(current, "waiting_for_demand") >= _BUSY
            ):
                return self._found(current, "slow", None, "its subscriber")
            above = [self._hops[id] for id in current.upstream if id in self._hops]
            waiting += [
                each for each in above if each.kind != "cursor" and (among is None or each.id in among)
            ]
        return None

    def _operator(self, stage: Hop) -> tuple[str, float]:
        """The operator that took most of the time between the two snapshots."""
        before = self._before[stage.id].details if stage.id in self._before else {}
        spent = {name: total - before.get(name, 0.0) for name, total in stage.details.items()}
        return max(spent.items(), key=lambda item: item[1], default=("", 0.0))

    def _nobody(self) -> LimitingHop:
        firsts = [
            log for pipeline in _pipelines(self._after.hops) if (log := _first_log(pipeline)) is not None
        ]
        first = firsts[0] if firsts else None
        if firsts and all(log.state in ("ended", "failed") for log in firsts):
            return LimitingHop(None, "ended", first)
        moving = [hop for hop in self._after.hops if self._rate(hop).records_out > 0]
        rate = sum(self._rate(log).records_in for log in firsts)
        return LimitingHop(None, "slower" if moving else "idle", first, rate=rate)

    # ---------------------------------------------------------------- figures
    def _found(self, hop: Hop, why: str, log: Hop | None, operator: str = "") -> LimitingHop:
        rate = self._rate(hop).records_out
        possible: float | None = None
        if log is not None and log.id != hop.id:
            coming, free = self._rate(log).records_in, 1 - self._share(log, "waiting_for_demand")
            possible = coming if why == "behind" else coming / max(free, 0.05)
        return LimitingHop(hop, why, log, operator, rate, possible)

    def _also(self, found: LimitingHop) -> Iterator[str]:
        """Other stages that would limit the flow next: they work most of the time as well."""
        for hop in self._after.hops:
            limiting = found.hop is not None and hop.id == found.hop.id
            if not limiting and hop.kind in _WORKERS and self._share(hop, "working") >= _BUSY:
                yield hop.id

    def _rate(self, hop: Hop) -> HopRates:
        return self._rates.get(hop.id) or HopRates(hop=hop.id, seconds=1.0)

    def _share(self, hop: Hop, of: str) -> float:
        value = getattr(self._rate(hop), of)
        return 0.0 if value is None else float(value)


def _first(found: Iterable[LimitingHop | None]) -> LimitingHop | None:
    return next((each for each in found if each is not None), None)


def _first_log(hops: Iterable[Hop]) -> Hop | None:
    return next((hop for hop in hops if hop.kind == "log"), None)
