"""The words of a verdict: one sentence, the figures behind it, and what to try."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.observe.model import Hop, HopRates, Snapshot, Verdict

__all__ = ["LimitingHop", "amount", "sentence_for", "span"]


@dataclass(frozen=True, slots=True)
class LimitingHop:
    """What the search has found, before it is put into words."""

    hop: Hop | None
    why: str
    """``slow``, ``behind``, ``stalled``, ``away``, ``unread``, ``down``, ``idle``, ``slower``, ``ended``."""
    log: Hop | None = None
    """The log that it holds up, or feeds."""
    operator: str = ""
    """The operator that takes most of a stage's time."""
    rate: float = 0.0
    possible: float | None = None


_ADVICE: Final = {
    "query": "more cores for Spark, a simpler query, or `targetBatchSeconds`",
    "cursor": "a faster reader, several readers side by side, or `keep=False` if it may miss records",
    "log": "a faster disk, larger batches, or a journal in memory if records may be lost with the process",
    "stage": "`map_parallel` or `map_async` for the slow function, or `publish_on` for a thread of its own",
    "boundary": "a scheduler with more threads, or `map_parallel` for the slow function",
    "connection": "`--codec bytes` and decoding in the readers, or several gateways that share the senders",
    "reader": "less work for each record, several readers side by side, or `keep=False` if it may miss "
    "records",
}
_STATES: Final = {
    "stalled": "free space on the disk, or end the program that locks the journal",
    "away": "start the reader again, or `penstock gateway forget` its id if it will not come back",
    "unread": "start a reader; the source waits for the first one",
    "down": "see why the server does not answer; the feed connects again by itself",
}


def sentence_for(found: LimitingHop, snapshot: Snapshot, rates: Mapping[str, HopRates]) -> Verdict:
    """Put a finding into words."""
    hop, log = found.hop, found.log
    if hop is None:
        return Verdict(sentence=_nobody(found), rate=found.rate, since=None)
    evidence = tuple(_evidence(found, snapshot, rates))
    sentence = f"{_name(hop, found.operator)} {_verb(found)}"
    if found.why in ("slow", "behind"):
        sentence += f": {_cost(found)}"
    if evidence:
        sentence += ("; " if found.why in ("slow", "behind") else ": ") + ", and ".join(evidence)
    advice = _STATES.get(found.why) or _ADVICE.get(hop.kind, "")
    since = log.full_seconds if log is not None else None
    return Verdict(
        sentence=f"{sentence}.",
        limiting=hop.id,
        since=since,
        rate=found.rate,
        possible=found.possible,
        evidence=evidence,
        advice=advice,
    )


def _nobody(found: LimitingHop) -> str:
    if found.why == "ended":
        return "Nobody limits the flow: the source has ended."
    if found.why == "idle":
        return "Nobody limits the flow: the source is idle."
    return f"Nobody limits the flow: the source gives {amount(found.rate)} records/s, and all else keeps up."


def _name(hop: Hop, operator: str) -> str:
    where = f" at {hop.where}" if hop.where else ""
    if hop.kind == "query":
        return f"The query `{hop.name}`{f' of the stream `{hop.stream}`' if hop.stream else ''}"
    if hop.kind == "cursor":
        return f"The reader `{hop.name}`{where}"
    if hop.kind == "log":
        return f"The {hop.name}{where}"
    if hop.kind == "connection":
        count = hop.details.get("open", 1)
        return f"Reading from {f'{count:.0f} senders' if count > 1 else f'`{hop.name}`'}{where}"
    if hop.kind == "reader":
        return f"The program that reads as `{hop.name}`{where}"
    if hop.kind == "intake":
        return f"The source{where}"
    if operator == "its subscriber":
        return f"The subscriber of `{hop.name}`"
    if operator:
        return f"`{operator}`{where}"
    return f"The {hop.kind} `{hop.name}`{where}"


def _verb(found: LimitingHop) -> str:
    return {
        "stalled": "cannot be written, and limits the flow",
        "away": "is away, and limits the flow",
        "unread": "waits for its first reader, and limits the flow",
        "down": "is down, and limits the flow",
        "behind": "limits the flow and falls behind",
    }.get(found.why, "limits the flow")


def _cost(found: LimitingHop) -> str:
    if found.possible is None or found.possible <= found.rate * 1.05:
        return f"{amount(found.rate)} records/s"
    return f"{amount(found.rate)} of {amount(found.possible)} records/s"


def _evidence(found: LimitingHop, snapshot: Snapshot, rates: Mapping[str, HopRates]) -> list[str]:
    hop, said = found.hop, []
    assert hop is not None
    if found.why == "down":
        since = hop.details.get("state_since", snapshot.at)
        said.append(
            f"{hop.reason or 'its server does not answer'} (for {span(max(snapshot.at - since, 0.0))})"
        )
    seconds = hop.details.get("batch_seconds", 0.0)
    if hop.kind == "query" and seconds > 0:
        phases = {name: spent for name, spent in hop.details.items() if name in _PHASES}
        if phases:
            phase = max(phases, key=lambda name: phases[name])
            sink = next(
                (each for each in snapshot.hops if each.kind == "sink" and hop.id in each.upstream), None
            )
            does = f", which computes and writes to {sink.name}" if sink and phase == "addBatch" else ""
            said.append(f"{min(phases[phase] / seconds, 1):.0%} of each batch in `{phase}`{does}")
    own = rates.get(hop.id)
    if own is not None and own.working is not None and hop.kind in ("stage", "boundary", "connection", "log"):
        said.append(f"it works {own.working:.0%} of the time")
    if found.log is not None and found.log.full_seconds is not None:
        said.append(f"the {found.log.name} has been full for {span(found.log.full_seconds)}")
    if hop.lag_seconds:
        said.append(f"it is {amount(hop.lag_records or 0)} records, {span(hop.lag_seconds)} behind")
    for each in sorted(snapshot.hops, key=lambda each: not each.id.endswith("/connections")):
        share = rates[each.id].waiting_for_demand if each.id in rates else None
        if each.kind == "connection" and share:
            said.append(f"the senders' sockets are paused {share:.0%} of the time")
            break
    return said


_PHASES: Final = frozenset(
    {"addBatch", "commitOffsets", "getBatch", "latestOffset", "queryPlanning", "walCommit", "commitBatch"}
)


def amount(value: float) -> str:
    """A number of records as people say it: 950, 4.1 k, 20 k."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= 0.9995 * size:
            scaled = value / size
            return f"{scaled:.1f} {unit}" if scaled < 9.95 else f"{scaled:.0f} {unit}"
    return f"{value:.0f}" if value >= 9.95 or value == int(value) else f"{value:.1f}"


def span(seconds: float) -> str:
    """A time as people say it: 0.4 s, 38 s, 12 min, 3 h."""
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
