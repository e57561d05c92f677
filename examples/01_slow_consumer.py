"""A fast source and a slow consumer: demand holds the source back.

The source runs on a thread of its own. The loop below requests 64 elements and, whenever three quarters of
them are used up, 48 more. So the source is never more than 64 elements ahead, and the queue between the two
stays small, however long this runs.
"""

import itertools
import time
from collections.abc import Iterator

from penstock.streams import Flux, schedulers

AHEAD = 64
made = 0


def readings() -> Iterator[int]:
    """Make readings without end and without a pause."""
    global made
    for number in itertools.count():
        made += 1
        yield number


def main() -> None:
    taken = lead = 0
    with schedulers.single("source") as source:
        stream = Flux.from_iterable(readings()).map(lambda number: number * 2).subscribe_on(source).take(300)
        print(stream.explain())

        for _ in stream.to_iterable(prefetch=AHEAD):
            taken += 1
            lead = max(lead, made - taken)
            time.sleep(0.001)

    print(f"taken {taken} elements, made {made}")
    print(f"never more than {AHEAD} ahead: {lead <= AHEAD}")


if __name__ == "__main__":
    main()
