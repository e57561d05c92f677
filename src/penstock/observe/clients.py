"""Programs that read or write a gateway, from their own point of view, put next to the hops of the gateway.

A reader or a producer knows the endpoint of its gateway, and the name under which it is known there. That is
enough to find its cursor, or its place among the writers. So a slow program is followed into its own streams:
"the reader is slow" becomes "its `map(parse)` is slow".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from penstock.observe.model import Hop
from penstock.observe.publication import NotPublished, look_at_process, published_processes
from penstock.observe.stream_names import StreamNames, plain, split_peer

__all__ = ["endpoints_of", "joined", "local_clients"]

_PATIENCE: Final = 0.25
"""Seconds for a process of this machine to answer; one that cannot is left out."""
_MOST_PROCESSES: Final = 16


def local_clients(gateways: Sequence[Hop], names: StreamNames, known: Iterable[int] = ()) -> list[Hop]:
    """The readers and producers of these gateways in processes of this user that show their streams.

    ``known`` are processes that were looked at already. Other streams of a process are left out.
    """
    places = _Places(gateways, names)
    found: list[Hop] = []
    for pid in published_processes(_MOST_PROCESSES, besides=known):
        try:
            hops = look_at_process(pid, patience=_PATIENCE).hops
        except NotPublished:
            continue
        ours = {hop.id for hop in hops if hop.peer and places.find(hop.peer) is not None}
        for hop in _downwards(hops):
            if hop.id in ours or not ours.isdisjoint(hop.upstream):
                ours.add(hop.id)
                found.append(hop)
    return found


def endpoints_of(hops: Iterable[Hop]) -> list[str]:
    """The endpoints of the gateways that readers among these hops read from."""
    return [split_peer(hop.peer)[0] for hop in hops if hop.kind == "reader" and hop.peer]


def joined(gateways: Sequence[Hop], clients: Sequence[Hop], names: StreamNames) -> tuple[Hop, ...]:
    """All of them, with each reader below its cursor, and each producer above its place at the gateway."""
    places = _Places(gateways, names)
    above: dict[str, list[str]] = {}
    hops: list[Hop] = []
    for hop in (*gateways, *clients):
        place = places.find(hop.peer) if hop.peer else None
        if place is not None and hop.kind == "reader":
            hop = replace(hop, upstream=(*hop.upstream, place))
        elif place is not None and hop.kind == "producer":
            above.setdefault(place, []).append(hop.id)
        hops.append(hop)
    if above:
        hops = [
            replace(hop, upstream=(*hop.upstream, *above[hop.id])) if hop.id in above else hop for hop in hops
        ]
    return tuple(_downwards(hops))


class _Places:
    """The cursors and writers of some gateways, by the names that their clients have for them."""

    def __init__(self, gateways: Iterable[Hop], names: StreamNames) -> None:
        self._names = names
        self._by_name: dict[str, str] = {}
        nameless: dict[str, list[str]] = {}
        for hop in gateways:
            if hop.kind in ("cursor", "producer"):
                self._by_name[plain(hop.id)] = hop.id
            if hop.kind == "cursor" and "#" in hop.name:
                nameless.setdefault(f"{plain(hop.where)}/cursor/", []).append(hop.id)
        # Of several readers without an id it cannot be said which one is which.
        self._by_name |= {name: ids[0] for name, ids in nameless.items() if len(ids) == 1}

    def find(self, peer: str) -> str | None:
        """The id of the hop at the gateway, if it is among them."""
        endpoint, who = split_peer(peer)
        return self._by_name.get(plain(f"{self._names.home(endpoint)}{who}"))


def _downwards(hops: Sequence[Hop]) -> Iterator[Hop]:
    """The same hops, each after those above it."""
    by_id = {hop.id: hop for hop in hops}
    given: set[str] = set()
    for hop in hops:
        waiting = [hop.id]
        while waiting:
            current = by_id[waiting[-1]]
            above = [
                each
                for each in current.upstream
                if each in by_id and each not in given and each not in waiting
            ]
            if above:
                waiting.append(above[0])
                continue
            waiting.pop()
            if current.id not in given:
                given.add(current.id)
                yield current
