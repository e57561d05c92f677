"""What does it cost that readers share a stream by key, beside one reader of everything?

Each member is a process. Members that only count are as quick as one that counts everything. So this is what
the group itself costs, in the gateway and on the way, and not what is gained where the work on a record takes
its time. The processor time of the gateway and of a member, for each record that goes through it, does not
depend on what else the machine has to do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice

from benchmarks.gateway import JOURNAL_BYTES, serve_elements
from benchmarks.measuring import Alternative, Clock, Question, Timed
from benchmarks.processes import LONGEST, RECORD, Facts, Line, exchange
from benchmarks.workload import Counting
from penstock.aquifer import AquiferPublisher, Gateway, MemoryJournal, Record

__all__ = ["question", "shared_by"]

PARTITIONS = 4
MEMBERS = (1, 2, 4)
KEYS = 100
ONE = "one reader of everything"


@contextmanager
def question() -> Iterator[Question]:
    """All records, for one reader or for the members of a group together."""
    yield Question(
        name="aquifer_groups",
        title=f"records of 100 bytes with {KEYS} keys to a reader group with {PARTITIONS} partitions",
        elements=200_000,
        base=ONE,
        expected=lambda n: n,
        unit="record",
        clock=Clock.BETWEEN_PROCESSES,
        fewest_rounds=2,
        alternatives=(
            Alternative(ONE, partial(shared_by, 0)),
            *(Alternative(f"a group of {count}", partial(shared_by, count), base=ONE) for count in MEMBERS),
        ),
    )


def shared_by(members: int, records: int) -> Timed:
    """Let so many members of a group, or with 0 one reader, get so many records together."""
    receive = partial(read, members=members)
    return exchange(records, send=serve, receive=receive, receivers=max(members, 1), warm_up=0)


def serve(line: Line, receivers: int, warm_up: int, records: int) -> Facts:
    """A gateway whose records have keys; the receivers share them."""
    began, total = time.process_time(), receivers * records

    def look(gateway: Gateway) -> Facts:
        return {"gateway, ns": (time.process_time() - began) * 1e9 / total}

    return serve_elements(line, MemoryJournal(max_bytes=JOURNAL_BYTES), 0, total, _keyed, look)


def _keyed(records: int) -> Iterator[Record]:
    return islice(cycle([Record(RECORD, key=b"key-%d" % number) for number in range(KEYS)]), records)


def read(line: Line, endpoint: str, warm_up: int, records: int, *, members: int) -> Facts:
    """A Subscriber that counts what comes to it: all, or as one of so many members."""
    counting, began = Counting(), time.process_time()
    group = {"group": "counters", "partitions": PARTITIONS} if members else {}
    publisher = AquiferPublisher(endpoint, **group)  # type: ignore[arg-type]
    publisher.subscribe(counting)
    own = PARTITIONS // members if members else 1
    stop = time.monotonic() + LONGEST
    while sum(each.connected for each in publisher.metrics()) != own:
        if counting.error is not None:
            raise counting.error
        if time.monotonic() > stop:
            raise TimeoutError(f"a member did not get {own} of {PARTITIONS} partitions")
        time.sleep(0.01)
    line.say("warm")
    counting.ended.wait(LONGEST)
    if counting.error is not None:
        raise counting.error
    taken = time.process_time() - began
    line.say((counting.ended_at, counting.count))
    line.hear()
    return {"member, ns": taken * 1e9 / max(counting.count, 1)}
