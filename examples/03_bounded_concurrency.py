"""An asynchronous call for each element, at most eight at a time, with the answers in order.

`map_async` takes a new element only when an answer has been passed on. So a slow reader slows down the calls,
and the calls slow down the source.
"""

import asyncio

from penstock.streams import Flux

running = most = 0


async def fetch(number: int) -> str:
    """Stand for an HTTP request."""
    global running, most
    running += 1
    most = max(most, running)
    try:
        for _ in range(number % 5 + 1):
            await asyncio.sleep(0)
    finally:
        running -= 1
    return f"page {number}"


async def main() -> None:
    pages = await Flux.range(1000).map_async(fetch, concurrency=8).collect_list()

    print(f"{len(pages)} pages, never more than {most} requests at once")
    print(f"in the order of the questions: {pages == [f'page {number}' for number in range(1000)]}")

    three = await Flux.range(1_000_000).map_async(fetch, concurrency=8, ordered=False).take(3).collect_list()
    await asyncio.sleep(0)
    print(f"{len(three)} are enough; requests still running: {running}")


if __name__ == "__main__":
    asyncio.run(main())
