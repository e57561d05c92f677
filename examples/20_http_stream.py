"""Streams over HTTP: an endless response, events, and an upload, each at the pace of its reader.

The service sends endless readings as JSON lines and news as server-sent events, and reads an upload line by
line. It is a plain ASGI application that any server runs, here uvicorn in the same process. The client takes
ten readings of the endless stream and leaves: the source made a few more than that, and is cancelled at once.
"""

import asyncio
import itertools

import uvicorn

from penstock.net.framing import lines
from penstock.net.http import Event, Http, get, post, sse
from penstock.streams import Flux

made = 0
source_left = asyncio.Event()


def readings() -> Flux[dict[str, float]]:
    def measure(number: int) -> dict[str, float]:
        global made
        made = number + 1
        return {"number": number, "celsius": 20 + number % 7}

    return Flux.from_iterable(itertools.count()).map(measure).do_on_cancel(source_left.set)


def news() -> Flux[Event]:
    return Flux.just(Event("gate opened", id="1"), Event("gate closed", id="2"))


app = (
    Http()
    .get("/readings", lambda request: readings())
    .get("/news", lambda request: sse(news()))
    .post("/count", lambda request: request.body().transform(lines()).count())
)


async def main() -> None:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    address = f"http://127.0.0.1:{port}"

    # Each reading has some 30 bytes; what the sockets and the window hold is far below a million of them.
    ten = await get(f"{address}/readings").ndjson().take(10).map(lambda each: each["celsius"]).collect_list()
    await source_left.wait()
    print("ten readings:", ten)
    print("the source made more than that, but not without end:", 10 <= made < 1_000_000)

    async for event in get(f"{address}/news").events():
        print(f"news {event.id}: {event.data}")

    upload = Flux.range(100_000).map(lambda number: f"line {number}\n".encode())
    async for count in post(f"{address}/count", upload).ndjson():
        print("lines that arrived:", count)

    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main())
