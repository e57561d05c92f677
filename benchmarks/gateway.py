"""The two sides of the Aquifer layer, each for a process of its own."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

from benchmarks.processes import LONGEST, RECORD, Facts, Line, now
from benchmarks.workload import Counting
from penstock.aquifer import AquiferPublisher, Gateway, Journal, MemoryJournal, SqliteJournal
from penstock.streams import Flux

__all__ = ["loop", "serve", "serve_elements", "serve_from_disk", "serve_lists", "subscribe"]

JOURNAL_BYTES = 16 * 2**20
"""The bound of the memory journal: about 160 000 records."""
LIST = 2500
"""Records in a list, where the source has lists."""


def serve(line: Line, receivers: int, warm_up: int, records: int) -> Facts:
    """A gateway that keeps the last 16 MiB in memory; its source has one record at a time."""
    return serve_elements(line, MemoryJournal(max_bytes=JOURNAL_BYTES), warm_up, records, _one_by_one)


def serve_lists(line: Line, receivers: int, warm_up: int, records: int) -> Facts:
    """The same with a source that has 2500 records at a time, as one that reads files or tables would."""
    return serve_elements(
        line, MemoryJournal(max_bytes=JOURNAL_BYTES), warm_up, records, _in_lists, batched=True
    )


def serve_from_disk(line: Line, receivers: int, warm_up: int, records: int) -> Facts:
    """A gateway that has every record on the disk before it sends it."""
    with tempfile.TemporaryDirectory() as folder:
        return serve_elements(line, SqliteJournal(Path(folder) / "journal.db"), warm_up, records, _one_by_one)


def serve_elements(
    line: Line,
    journal: Journal,
    warm_up: int,
    records: int,
    elements: Callable[[int], Iterator[Any]],
    look: Callable[[Gateway], Facts] = lambda gateway: {},
    **settings: Any,
) -> Facts:
    """``look`` is called when all receivers have gone, for what there is to tell."""
    going_on = threading.Event()

    def pause() -> Iterator[Any]:
        going_on.wait()
        yield from ()

    # The gateway asks for records on a thread that a source may block. Nobody is overtaken meanwhile, since
    # the journal has room for the whole warm-up.
    source = Flux.from_iterable(chain(elements(warm_up), pause(), elements(records)))
    with Gateway(source, "tcp://127.0.0.1:0", journal=journal, **settings) as gateway:
        line.say(gateway.endpoint)
        try:
            line.hear()
            line.say(now())
        finally:
            going_on.set()
        line.hear()
        return look(gateway)


def _one_by_one(records: int) -> Iterator[bytes]:
    return repeat(RECORD, records)


def _in_lists(records: int) -> Iterator[list[bytes]]:
    source = repeat(RECORD, records)
    while some := list(islice(source, LIST)):
        yield some


class CountingLists(Counting):
    """Counts the records of lists."""

    def on_next(self, element: Any, /) -> None:
        """A list came."""
        self.count += len(element)


def subscribe(line: Line, endpoint: str, warm_up: int, records: int, **settings: Any) -> Facts:
    """A plain Subscriber that counts, with unbounded demand; the clock stops when its stream completes."""
    counting = CountingLists() if settings.get("batches") else Counting()
    AquiferPublisher(endpoint, **settings).subscribe(counting)
    while counting.count < warm_up and not counting.ended.is_set():
        time.sleep(0.002)
    line.say("warm")
    counting.ended.wait(LONGEST)
    if counting.error is not None:
        raise counting.error
    line.say((counting.ended_at, counting.count - warm_up))
    line.hear()
    return {"window": counting.subscription.metrics().window}


def loop(line: Line, endpoint: str, warm_up: int, records: int, **settings: Any) -> Facts:
    """The same in a plain ``for``, which asks for 192 records at a time."""
    elements = iter(AquiferPublisher(endpoint, **settings).flux())
    for _ in islice(elements, warm_up):
        pass
    line.say("warm")
    count = 0
    for _ in elements:
        count += 1
    line.say((now(), count))
    line.hear()
    return {}
