"""What we say about the speed of Penstock, as data, so that each run tells whether it is so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from statistics import median

from benchmarks.measuring import Answer

__all__ = ["CLAIMS", "Claim", "Direction", "FactClaim", "Finding", "RowClaim", "examine"]


class Direction(Enum):
    """On which side of the bound the ratio has to be."""

    AT_MOST = "at most"
    AT_LEAST = "at least"


@dataclass(frozen=True, slots=True)
class Claim:
    """``of`` takes at most, or at least, ``bound`` times as long as ``to``.

    Without ``to`` it takes at most, or at least, ``bound`` milliseconds: no ratio, and so a claim about this
    machine.
    """

    name: str
    question: str
    of: str
    to: str | None
    direction: Direction
    bound: float

    @property
    def unit(self) -> str:
        """What stands after its figures."""
        return "" if self.to is not None else " ms"

    def figures(self, answer: Answer) -> tuple[float, float]:
        """What was measured, by the median of the rounds and by the best."""
        if self.to is None:
            return answer.median(self.of) / 1e6, answer.best(self.of) / 1e6
        return answer.ratio(self.of, self.to), answer.ratio_of_best(self.of, self.to)

    def met_by(self, ratio: float) -> bool:
        """Whether this ratio bears the claim out."""
        return ratio <= self.bound if self.direction is Direction.AT_MOST else ratio >= self.bound


@dataclass(frozen=True, slots=True)
class RowClaim(Claim):
    """The same for each row of a matrix that has both columns: it is the worst row that counts."""

    middle: bool = False
    """Whether it is the median of the rows that counts instead."""

    def figures(self, answer: Answer) -> tuple[float, float]:
        """What was measured of that row, or of the middle one."""
        pairs = [
            (f"{row}: {self.of}", f"{row}: {self.to}")
            for row in dict.fromkeys(name.split(": ")[0] for name in answer.rounds)
            if f"{row}: {self.of}" in answer.rounds and f"{row}: {self.to}" in answer.rounds
        ]
        worst = max if self.direction is Direction.AT_MOST else min
        choose = median if self.middle else worst
        return (
            choose([answer.ratio(of, to) for of, to in pairs]),
            choose([answer.ratio_of_best(of, to) for of, to in pairs]),
        )


@dataclass(frozen=True, slots=True)
class FactClaim(Claim):
    """The same for something else that was seen of ``of``, in milliseconds."""

    fact: str = ""
    """Its heading."""

    def figures(self, answer: Answer) -> tuple[float, float]:
        """What was seen, in the median round and in the best."""
        seen = answer.facts[self.of][self.fact]
        return median(seen), min(seen)


@dataclass(frozen=True, slots=True)
class Finding:
    """A claim and what was measured."""

    claim: Claim
    ratio: float
    ratio_of_best: float

    @property
    def met(self) -> bool:
        """Judged by the median of the ratios within the rounds."""
        return self.claim.met_by(self.ratio)


def _at_most(bound: float, name: str, question: str, of: str, to: str) -> Claim:
    return Claim(name, question, of, to, Direction.AT_MOST, bound)


def _milliseconds(bound: float, name: str, question: str, of: str) -> Claim:
    return Claim(name, question, of, None, Direction.AT_MOST, bound)


def _fact_at_most(bound: float, name: str, question: str, of: str, fact: str) -> Claim:
    return FactClaim(name, question, of, None, Direction.AT_MOST, bound, fact)


def _times_faster(bound: float, name: str, question: str, ours: str, theirs: str) -> Claim:
    return Claim(name, question, theirs, ours, Direction.AT_LEAST, bound)


def _of_raw_uvloop(bound: float, traffic: str, ours: str) -> Claim:
    how = "as fast" if bound == 1 else f"{bound:g} as fast"
    return _times_faster(
        bound,
        f"an echo ({ours}) is {how} as the raw uvloop protocol: {traffic}",
        "net.echo",
        f"{traffic}: {ours}",
        f"{traffic}: raw uvloop protocol",
    )


def _of_raw_lines(bound: float, traffic: str, ours: str) -> Claim:
    return _at_most(
        bound,
        f"lines ({ours}) cost at most {bound:g} times as much as with a raw uvloop protocol: {traffic}",
        "net.lines",
        f"{traffic}: {ours}",
        f"{traffic}: raw uvloop protocol",
    )


CLAIMS: tuple[Claim, ...] = (
    _at_most(1.15, "a chain costs what the plain loop costs", "chain", "Penstock, sum()", "plain loop"),
    _at_most(1.2, "a chain in a loop costs little more than it", "chain", "Penstock, for", "plain loop"),
    _times_faster(3, "a chain is faster than reactivex", "chain", "Penstock, for", "reactivex"),
    _at_most(
        1.25,
        "a Subscriber with unbounded demand costs what its hand loop costs",
        "subscriber",
        "Penstock, unbounded",
        "hand loop, unbounded",
    ),
    _at_most(
        1.25,
        "a Subscriber that asks for windows costs what its hand loop costs",
        "subscriber",
        "Penstock, windows of 256",
        "hand loop, windows of 256",
    ),
    _at_most(
        2,
        "a Subscriber that asks one by one costs twice its hand loop at most",
        "subscriber",
        "Penstock, one by one",
        "hand loop, one by one",
    ),
    *(
        _at_most(
            0.6,
            f"a push into a {sink} sink is faster than a Subject",
            "hot_push",
            f"Penstock, {sink} sink",
            "reactivex Subject",
        )
        for sink in ("unicast", "multicast")
    ),
    *(
        _at_most(
            0.6,
            f"{name} is faster than reactivex",
            "inner_streams",
            f"Penstock {name}",
            f"reactivex {theirs}",
        )
        for name, theirs in (("flat_map", "flat_map"), ("concat_map", "flat_map"), ("merge", "merge"))
    ),
    _at_most(
        0.3,
        "a stream of one element is put together and run quickly",
        "starting",
        "Penstock, Subscriber",
        "reactivex",
    ),
    RowClaim(
        "no operator is slower than reactivex's", "operators", "Penstock", "reactivex", Direction.AT_MOST, 1
    ),
    RowClaim(
        "the median operator is 3 times as fast as reactivex's",
        "operators",
        "reactivex",
        "Penstock",
        Direction.AT_LEAST,
        3,
        middle=True,
    ),
    _at_most(
        1.4,
        "async for costs little more than the plain loop",
        "asynchronous",
        "Penstock, async for",
        "plain loop",
    ),
    _times_faster(3, "a thread hop is faster than queue.Queue", "thread_hop", "Penstock", "queue.Queue(256)"),
    _times_faster(
        5,
        "from a thread to asyncio is faster than janus",
        "thread_to_loop",
        "Penstock, async for",
        "janus.Queue(256)",
    ),
    _times_faster(
        5,
        "a gateway delivers 5 times as fast as PUSH/PULL with a message per record",
        "aquifer_throughput",
        "Penstock, extended, lists in and out",
        "PUSH/PULL, a message per record",
    ),
    _times_faster(
        0.6,
        "a gateway delivers lists 0.6 as fast as PUB/SUB with frames",
        "aquifer_throughput",
        "Penstock, extended, lists in and out",
        "PUB/SUB, frames of 2500, no call",
    ),
    _times_faster(
        0.6,
        "a gateway delivers 0.6 as fast as PUB/SUB with frames and a call per record",
        "aquifer_throughput",
        "Penstock, extended, a source of lists of 2500",
        "PUB/SUB, frames of 2500 and a call per record",
    ),
    _times_faster(
        0.6,
        "a gateway delivers records that come and go one by one 0.6 as fast as lists of them",
        "aquifer_throughput",
        "Penstock, extended",
        "Penstock, extended, lists in and out",
    ),
    _times_faster(
        0.8,
        "a gateway delivers to a plain subscriber 0.8 as fast as PUB/SUB with a message per record",
        "aquifer_throughput",
        "Penstock, plain, REQ/SUB by hand, Next 10 000",
        "PUB/SUB, a message per record",
    ),
    _times_faster(
        0.6,
        "a gateway with an SQLite journal delivers 0.6 as fast as one with a memory journal",
        "aquifer_throughput",
        "Penstock, extended, SQLite journal",
        "Penstock, extended",
    ),
    _at_most(
        1.03, "a chain costs 3 % more when it is observed", "observed_chain", "observed", "not observed"
    ),
    _at_most(
        1.03,
        "a gateway takes 3 % longer when it is observed: a dashboard, and a scrape every second",
        "observed_gateway",
        "1 subscriber, observed",
        "1 subscriber, not observed",
    ),
    _at_most(
        1.02,
        "a scrape every second slows 500 subscribers down by 2 %",
        "observed_gateway",
        "500 subscribers, scraped every second",
        "500 subscribers, not scraped",
    ),
    _at_most(
        1.03,
        "a gateway costs 3 % more processor time when it exports metrics and spans every second",
        "telemetry",
        "metrics and spans",
        "without OpenTelemetry",
    ),
    _milliseconds(
        50,
        "a scrape of a gateway with 500 subscribers takes 50 ms of the thread that serves them",
        "scrape",
        "the thread that serves them",
    ),
    _of_raw_uvloop(0.9, "1 connection", "Penstock, not fused"),
    _of_raw_uvloop(0.9, "10 connections", "Penstock, not fused"),
    _of_raw_uvloop(0.9, "100 connections", "Penstock, not fused"),
    _of_raw_uvloop(0.97, "64 KiB writes", "Penstock, not fused"),
    _of_raw_uvloop(1.0, "1 connection", "Penstock, fused"),
    _of_raw_uvloop(1.0, "10 connections", "Penstock, fused"),
    _of_raw_uvloop(1.0, "100 connections", "Penstock, fused"),
    _of_raw_uvloop(0.9, "10 connections", "Penstock, an operator between"),
    _of_raw_uvloop(0.9, "100 connections", "Penstock, an operator between"),
    _of_raw_lines(1.3, "saturated", "Penstock, lines → map → send"),
    _of_raw_lines(1.5, "one in flight", "Penstock, lines → map → send"),
    _of_raw_lines(3, "saturated", "Penstock, async for … await send"),
    _of_raw_lines(3, "one in flight", "Penstock, async for … await send"),
    _at_most(
        1.5,
        "small elements cost at most 1.5 times as much as elements joined by hand before",
        "net.small_elements",
        "Penstock",
        "raw uvloop protocol, 128 joined by hand before",
    ),
    _times_faster(
        20,
        "small elements go out 20 times as fast as with a write for each of them",
        "net.small_elements",
        "Penstock",
        "raw uvloop protocol, a write per element",
    ),
    _times_faster(
        0.95,
        "Spark reads from a gateway, which encodes meanwhile, 0.95 as fast as Arrow batches in memory",
        "spark_throughput",
        "aquifer, as they come in",
        "Arrow in memory",
    ),
    _times_faster(
        0.85,
        "Spark reads from the SQLite journal of a gateway 0.85 as fast as Arrow batches in memory",
        "spark_throughput",
        "aquifer, from an SQLite journal",
        "Arrow in memory",
    ),
    _times_faster(
        0.6,
        "Spark reads records that were never columns 0.6 as fast as Arrow batches in memory",
        "spark_throughput",
        "aquifer, as they come in, records of 100 bytes",
        "Arrow in memory",
    ),
    _times_faster(
        3,
        "Spark reads from a gateway 3 times as fast as from a source that yields tuples",
        "spark_throughput",
        "aquifer, as they come in",
        "tuples in memory",
    ),
    _times_faster(
        1,
        "the source makes columns of JSON as fast as Spark's from_json",
        "spark_json",
        "value=json",
        "from_json of Spark",
    ),
    _milliseconds(60, "a trigger of Spark costs 60 ms", "spark_trigger", "aquifer, one partition"),
    _milliseconds(100, "a trigger with state costs 100 ms", "spark_trigger", "aquifer, counted by key"),
    *(
        claim
        for when in ("", ", after a minute")
        for where, way in (
            ("in a function of the query", "into a function of the query"),
            ("at a subscriber of the sink", "through the aquifer sink to a subscriber"),
        )
        for claim in (
            _milliseconds(
                80, f"half of the records are {where} within 80 ms{when}", "spark_latency", f"{way}{when}"
            ),
            _fact_at_most(
                130,
                f"99 % of the records are {where} within 130 ms{when}",
                "spark_latency",
                f"{way}{when}",
                "p99, ms",
            ),
        )
    ),
)


def examine(answers: Mapping[str, Answer], claims: Iterable[Claim] = CLAIMS) -> list[Finding]:
    """Those claims about which something was measured, with the figures."""
    findings = []
    for claim in claims:
        answer = answers.get(claim.question)
        if answer is not None:
            findings.append(Finding(claim, *claim.figures(answer)))
    return findings
