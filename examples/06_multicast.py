"""One sink, a fast and a slow subscriber: both receive every element, and the slow one sets the pace.

`await sink.emit(x)` waits while the slowest subscriber is a full sink behind. Nothing is lost, and the memory
is bounded.
"""

import asyncio

from penstock.streams import Sink, Sinks

CAPACITY = 8
COUNT = 300


async def main() -> None:
    sink: Sink[int] = Sinks.multicast(CAPACITY)
    received: dict[str, list[int]] = {"fast": [], "slow": []}
    lead = 0

    async def read(name: str, pause: float) -> None:
        async for number in sink.flux().to_async_iterable(prefetch=1):
            received[name].append(number)
            if pause:
                await asyncio.sleep(pause)

    readers = [asyncio.create_task(read("fast", 0)), asyncio.create_task(read("slow", 0.001))]
    while sink.subscriber_count() < 2:
        await asyncio.sleep(0)

    for number in range(COUNT):
        await sink.emit(number)
        lead = max(lead, number + 1 - len(received["slow"]))
    sink.try_complete()
    await asyncio.gather(*readers)

    for name, numbers in received.items():
        print(f"{name}: {len(numbers)} elements, all in order: {numbers == list(range(COUNT))}")
    # The slow reader works on one element and has one more waiting; the rest is in the sink.
    print(f"never more than the sink's {CAPACITY} and these two ahead: {lead <= CAPACITY + 2}")


if __name__ == "__main__":
    asyncio.run(main())
