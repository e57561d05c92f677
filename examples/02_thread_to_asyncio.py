"""A source that blocks, on a thread; a consumer on an event loop, which must not block; a bound between them.

`subscribe_on` moves the source to a pool of threads, and `async for` reads it on the loop. Up to 256 elements
wait between the two; then the thread stops reading until the loop has caught up.
"""

import asyncio
import time
from collections.abc import Iterator

from penstock.streams import Flux, schedulers


def lines() -> Iterator[str]:
    """Stand for a serial port, a driver or a slow file: something that blocks."""
    for number in range(200):
        time.sleep(0.001)
        yield f"line {number}"


async def main() -> None:
    turns = 0

    async def others() -> None:
        """Stand for everything else on the event loop."""
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.001)

    busy = asyncio.create_task(others())
    stream = Flux.from_iterable(lines()).map(str.upper).subscribe_on(schedulers.shared_pool())
    print(stream.explain())

    received = [line async for line in stream]
    busy.cancel()

    print(f"received {len(received)} lines, from {received[0]!r} to {received[-1]!r}")
    print(f"the loop was free meanwhile: {turns > 20}")


if __name__ == "__main__":
    asyncio.run(main())
