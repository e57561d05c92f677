"""Gateways for the conformance kits, ours and the JVM's: one for each number of elements.

A gateway keeps its whole log, so one of them serves every test that wants as many elements: each subscriber
reads it from the oldest record, in the same order (rule 1.12).
"""

from __future__ import annotations

from itertools import count

from penstock.aquifer import Gateway, MemoryJournal
from penstock.streams import Flux

ENDLESS = 2**31
"""From here on the kit means a stream without an end."""


class Gateways:
    """One gateway for each number of elements."""

    def __init__(self) -> None:
        self._running: dict[int, Gateway] = {}

    def endpoint(self, elements: int) -> str:
        """Where so many elements can be had."""
        if elements not in self._running:
            endless = elements >= ENDLESS
            numbers = Flux.from_iterable(count()) if endless else Flux.range(elements)
            self._running[elements] = Gateway(
                numbers, "tcp://127.0.0.1:0", codec="json", journal=MemoryJournal(max_records=10_000)
            ).start()
        return self._running[elements].endpoint

    def failed(self) -> str:
        """Where nothing but an error can be had."""
        if -1 not in self._running:
            self._running[-1] = Gateway(Flux.error(OSError("no such file")), "tcp://127.0.0.1:0").start()
        return self._running[-1].endpoint

    def close(self) -> None:
        for gateway in self._running.values():
            gateway.close()
