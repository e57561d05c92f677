"""Forms: the fields of a short one, and the parts of a long one as streams with their own demand."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.net import ReceiverTaken
from penstock.net.http import BadForm, ClientGone, FormPart, Http, PartSkipped, Request
from penstock.streams import Flux, Mono, on_dropped, schedulers
from tests.net.http.conversing import PATIENCE, Exchange, Message, turns

HEAD = b'--b-o\r\nContent-Disposition: form-data; name="%s"\r\n\r\n'
END = b"\r\n--b-o--\r\n"


def exchange_of(*chunks: bytes, kind: bytes = b"multipart/form-data; boundary=b-o") -> Exchange:
    """A request with this body; the client has sent all of it."""
    exchange = Exchange(method="POST")
    exchange.scope["headers"] = [(b"content-type", kind)]
    for number, chunk in enumerate(chunks, 1):
        exchange.chunk(chunk, more=number < len(chunks))
    return exchange


def request_of(exchange: Exchange, body_limit: int | None = None) -> Request:
    return Request(exchange.scope, exchange.receive, {}, body_limit)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), PATIENCE))


def answer(exchange: Exchange, function: Any, http: Http | None = None) -> tuple[int, bytes]:
    app = (http or Http()).post("/", function)
    run(lambda: app(exchange.scope, exchange.receive, exchange.send))
    return exchange.status, b"".join(exchange.bodies)


async def content_of(part: FormPart) -> tuple[str, bytes]:
    return part.name, await part.content()


async def content_from_a_pool(part: FormPart) -> tuple[str, bytes]:
    content = b""
    async for chunk in part.body().publish_on(schedulers.shared_pool()):
        content += chunk
    return part.name, content


THREE = (HEAD % b"a" + b"first\r\n" + HEAD % b"b", b"sec", b"ond\r\n" + HEAD % b"c" + b"third" + END)
READ = [("a", b"first"), ("b", b"second"), ("c", b"third")]


# ---------------------------------------------------------------- parts


@pytest.mark.parametrize(
    "read",
    [
        lambda parts: parts.map_async(content_of, concurrency=1),
        lambda parts: parts.concat_map(lambda part: part.content().map(lambda content: (part.name, content))),
        lambda parts: parts.flat_map(lambda part: part.content().map(lambda content: (part.name, content))),
        lambda parts: parts.map_async(content_from_a_pool, concurrency=1).publish_on(
            schedulers.shared_pool()
        ),
    ],
    ids=["map_async", "concat_map", "flat_map", "on_a_pool"],
)
def test_every_part_can_be_read(read: Callable[[Flux[FormPart]], Flux[Any]]) -> None:
    async def ask() -> None:
        assert await read(request_of(exchange_of(*THREE)).parts()).collect_list() == READ

    run(ask)


def test_a_loop_that_skips_parts() -> None:
    async def ask() -> None:
        seen = []
        async for part in request_of(exchange_of(*THREE)).parts():
            seen.append(part.name)
            if part.name == "b":
                async for chunk in part.body():
                    seen.append(chunk.decode())
                    break  # and leaves the rest of this part
        assert seen == ["a", "b", "sec", "c"]

    run(ask)


def test_nothing_is_received_that_was_not_asked_for() -> None:
    async def ask() -> None:
        exchange = exchange_of(HEAD % b"a", b"1", b"2", b"3", b"4", b"5", b"\r\n" + HEAD % b"b", END)
        parts = aiter(request_of(exchange).parts())
        await turns()
        assert exchange.received == 0
        part = await anext(parts)
        await turns()
        assert (exchange.received, exchange.receiving) == (1, 0)
        chunks = aiter(part.body().to_async_iterable(prefetch=1))
        assert [await anext(chunks), await anext(chunks)] == [b"1", b"2"]
        await turns()
        assert (exchange.received, exchange.receiving) == (3, 0)
        await chunks.aclose()  # type: ignore[attr-defined]
        await turns()
        assert exchange.received == 3
        assert (await anext(parts)).name == "b"
        assert exchange.received == 7
        await parts.aclose()  # type: ignore[attr-defined]

    run(ask)


def test_a_part_that_is_being_read_holds_back_the_next() -> None:
    async def ask() -> None:
        exchange = Exchange(method="POST")
        exchange.scope["headers"] = [(b"content-type", b"multipart/form-data; boundary=b-o")]
        came: list[str] = []
        bodies: list[bytes] = []
        done = asyncio.Event()
        parts = request_of(exchange).parts()

        def take(part: FormPart) -> None:
            came.append(part.name)
            part.body().subscribe(bodies.append)

        parts.subscribe(take, on_complete=done.set)
        exchange.chunk(HEAD % b"a" + b"1")
        exchange.chunk(b"2")
        await turns()
        assert (came, bodies) == (["a"], [b"1", b"2"])
        exchange.chunk(b"\r\n" + HEAD % b"b" + END, more=False)
        await done.wait()
        assert came == ["a", "b"]

    run(ask)


def test_the_first_part_can_be_read_when_the_others_are_not_wanted() -> None:
    async def ask() -> None:
        wanted = request_of(exchange_of(*THREE)).parts().filter(lambda part: part.name == "b").take(1)
        assert await wanted.concat_map(lambda part: part.body()).collect_list() == [b"sec", b"ond"]

    run(ask)


def test_a_part_that_was_skipped_says_so() -> None:
    async def ask() -> None:
        parts = await request_of(exchange_of(*THREE)).parts().collect_list()
        assert [part.name for part in parts] == ["a", "b", "c"]
        with pytest.raises(PartSkipped, match=r"'a' was skipped.*concurrency=1"):
            await parts[0].content()

    run(ask)


def test_a_part_and_the_parts_have_one_subscriber() -> None:
    async def ask() -> None:
        parts = request_of(exchange_of(*THREE)).parts()
        async for part in parts:
            await part.content()
            with pytest.raises(ReceiverTaken, match="'a' already has a subscriber"):
                await part.content()
            break
        with pytest.raises(ReceiverTaken):
            await parts.collect_list()

    run(ask)


def test_a_cancel_before_the_first_step_lets_the_next_part_come() -> None:
    class Leaver:
        def on_subscribe(self, subscription: Any) -> None:
            subscription.cancel()

        def on_next(self, element: Any) -> None:
            raise AssertionError("an element after cancel")

        def on_error(self, error: BaseException) -> None:
            raise AssertionError(error)

        def on_complete(self) -> None:
            raise AssertionError("a completion after cancel")

    async def ask() -> None:
        names = []
        async for part in request_of(exchange_of(*THREE)).parts():
            names.append(part.name)
            part.body().subscribe(Leaver())
        assert names == ["a", "b", "c"]

    run(ask)


def test_a_client_that_leaves_fails_the_part_and_the_parts() -> None:
    async def ask() -> None:
        exchange = Exchange(method="POST")
        exchange.scope["headers"] = [(b"content-type", b"multipart/form-data; boundary=b-o")]
        exchange.chunk(HEAD % b"a" + b"1")
        exchange.disconnect()
        parts = aiter(request_of(exchange).parts())
        part = await anext(parts)
        with pytest.raises(ClientGone):
            await part.content()
        with pytest.raises(ClientGone):
            await anext(parts)

    run(ask)


def test_forms_are_read_on_any_thread() -> None:
    async def parts(request: Request) -> str:
        return ", ".join(await asyncio.to_thread(lambda: [part.name for part in request.parts()]))

    async def fields(request: Request) -> str:
        return ", ".join(await asyncio.to_thread(lambda: request.form().block()))

    assert answer(exchange_of(*THREE), parts) == (200, b"a, b, c")
    form = exchange_of(b"x=1&y=2", kind=b"application/x-www-form-urlencoded")
    assert answer(form, fields) == (200, b"x, y")


def test_a_reader_that_leaves_a_part_loses_nothing_of_the_next() -> None:
    """With a server that loses what arrives for a call that was cancelled, as granian does."""

    async def ask() -> None:
        arrived: asyncio.Queue[bytes] = asyncio.Queue()
        calls = 0

        async def receive() -> Message:
            nonlocal calls
            calls += 1
            chunk = asyncio.ensure_future(arrived.get())
            body = await asyncio.shield(chunk)
            return {"type": "http.request", "body": body, "more_body": not body.endswith(END)}

        scope = exchange_of().scope
        parts = aiter(Request(scope, receive, {}).parts())
        arrived.put_nowait(HEAD % b"a" + b"1")
        content = aiter((await anext(parts)).body())
        assert await anext(content) == b"1"
        await turns()
        assert calls == 2  # ahead, which nothing has arrived for
        del content
        await turns()
        arrived.put_nowait(b"2\r\n" + HEAD % b"b")
        arrived.put_nowait(b"3" + END)
        assert await content_of(await anext(parts)) == ("b", b"3")

    run(ask)


def test_cancelling_everything_leaves_nothing_waiting() -> None:
    async def ask() -> None:
        exchange = Exchange(method="POST")
        exchange.scope["headers"] = [(b"content-type", b"multipart/form-data; boundary=b-o")]
        exchange.chunk(HEAD % b"a" + b"1")
        reading = request_of(exchange).parts().concat_map(lambda part: part.body()).subscribe()
        await turns()
        assert exchange.receiving == 1
        reading.cancel()
        await turns()
        assert exchange.receiving == 0
        assert len(asyncio.all_tasks()) == 2  # this one, and the one that waits for it

    run(ask)


def test_a_part_larger_than_its_content_may_be() -> None:
    async def read(request: Request) -> Any:
        async for part in request.parts():
            await part.content(max_bytes=3)

    assert answer(exchange_of(HEAD % b"a" + b"1234" + END), read) == (
        413,
        b"the part 'a' of the form has more than 3 bytes\n",
    )


@pytest.mark.parametrize(
    "read",
    [
        lambda parts: parts.concat_map(lambda part: part.body()),
        lambda parts: parts.flat_map(lambda part: part.body()),
    ],
    ids=["concat_map", "flat_map"],
)
def test_an_error_is_told_once(read: Callable[[Flux[FormPart]], Flux[Any]]) -> None:
    async def ask() -> None:
        parts = request_of(exchange_of(HEAD % b"a" + b"1\r\n" + HEAD % b"b", b"2", b"3")).parts()
        lost: list[BaseException] = []
        with on_dropped(error=lambda error, where: lost.append(error)):
            with pytest.raises(BadForm):
                await read(parts).collect_list()
            await turns()
        assert lost == []
        assert len(asyncio.all_tasks()) == 2  # this one, and the one that waits for it

    run(ask)


async def _read_on(scheduler: schedulers.Scheduler, parts: Flux[FormPart]) -> list[tuple[str, bytes]]:
    return await parts.concat_map(
        lambda part: part.content().map(lambda content: (part.name, content)).subscribe_on(scheduler)
    ).collect_list()


def test_concat_map_reads_a_part_that_changes_its_thread_before_it_asks_for_the_next() -> None:
    async def ask() -> None:
        parts = request_of(exchange_of(*THREE)).parts()
        # The pool is busy, so that the part is claimed late.
        release = threading.Event()
        with schedulers.single("late") as late:
            late.submit(lambda: (release.wait(20), None)[1])
            reading = asyncio.ensure_future(_read_on(late, parts))
            await turns()
            release.set()
            assert await reading == READ

    run(ask)


def test_a_part_that_is_left_half_read_and_open_is_named_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.net.http.forms._PATIENCE", 0.05)

    async def ask() -> None:
        chunks = [b"x" * 100_000 for _ in range(20)]
        sent = exchange_of(HEAD % b"big", *chunks, b"\r\n" + HEAD % b"b" + END)
        parts = aiter(request_of(sent).parts())
        begun = aiter((await anext(parts)).body())
        size = len(await anext(begun))
        following = asyncio.ensure_future(anext(parts))
        async with asyncio.timeout(PATIENCE):
            while not caplog.records:
                await asyncio.sleep(0.01)
        assert "the part 'big'" in caplog.records[0].getMessage()
        assert not following.done()
        assert size + sum([len(chunk) async for chunk in begun]) == 2_000_000
        assert (await following).name == "b"
        assert [part async for part in parts] == []

    with caplog.at_level(logging.WARNING, "penstock.net.http"):
        run(ask)


def test_an_error_that_the_reader_of_a_part_forgives_still_fails_the_parts() -> None:
    async def ask() -> None:
        parts = request_of(exchange_of(HEAD % b"a" + b"1", b"2")).parts()
        with pytest.raises(BadForm):
            await parts.concat_map(
                lambda part: part.body().on_error_resume(lambda _: Flux.empty())
            ).collect_list()

    run(ask)


# ---------------------------------------------------------------- what the client is told


async def names(request: Request) -> str:
    return ",".join(
        [part.name async for part in request.parts(max_parts=2, max_part_bytes=4, max_header_bytes=60)]
    )


@pytest.mark.parametrize(
    ("chunks", "status", "text"),
    [
        ([HEAD % b"a" + b"1234\r\n" + HEAD % b"b" + END], 200, b"a,b"),
        ([HEAD % b"a" + b"12345" + END], 413, b"a part of the form has more than 4 bytes\n"),
        ([(HEAD % b"a" + b"\r\n") * 3 + END], 413, b"the form has more than 2 parts\n"),
        ([HEAD % (b"a" * 60) + END], 413, b"the headers of a part have more than 60 bytes\n"),
        (
            [HEAD % b"a" + b"123"],
            400,
            b"the form ends before its last boundary; its line ends have to be CRLF\n",
        ),
    ],
)
def test_a_refused_form_gets_an_answer_that_says_why(chunks: list[bytes], status: int, text: bytes) -> None:
    assert answer(exchange_of(*chunks), names) == (status, text)


def test_the_limit_of_the_body_holds_for_forms_too() -> None:
    body = [HEAD % b"a", b"1" * 50, b"2" * 50, END]

    status, text = answer(exchange_of(*body), names, Http().body_limit(100))

    assert (status, text) == (413, b"the body of the request has more than 100 bytes\n")


def test_another_kind_of_body_is_refused() -> None:
    status, text = answer(exchange_of(b"{}", kind=b"application/json"), names)

    assert (status, text) == (415, b"this needs a body of multipart/form-data, not application/json\n")


# ---------------------------------------------------------------- fields

URLENCODED = b"application/x-www-form-urlencoded; charset=UTF-8"


def test_the_fields_of_a_form() -> None:
    async def ask() -> None:
        form = await request_of(exchange_of(b"a=1&b=%C3", b"%BC+x&a=2&empty=", kind=URLENCODED)).form()
        assert dict(form) == {"a": "2", "b": "ü x", "empty": ""}
        assert form.all("a") == ["1", "2"]
        assert (len(form), repr(form)) == (3, "<Form a, b, empty>")

    run(ask)


@pytest.mark.parametrize(
    ("body", "kind", "status", "text"),
    [
        (b"a=1&b=2", URLENCODED, 200, b"2"),
        (b"", URLENCODED, 200, b"0"),
        (b"a=12345678901", URLENCODED, 413, b"the form has more than 10 bytes\n"),
        (b"a&b&c&d", URLENCODED, 413, b"the form has more than 3 fields\n"),
        (b"a=%ff", URLENCODED, 400, b"the fields of the form are not UTF-8 text, or not encoded\n"),
        ("a=ü".encode(), URLENCODED, 400, b"the fields of the form are not UTF-8 text, or not encoded\n"),
        (
            b"a=1",
            b"text/plain",
            415,
            b"this needs a body of application/x-www-form-urlencoded, not text/plain\n",
        ),
        (b"a=1", URLENCODED.replace(b"UTF-8", b"koi8-r"), 415, b"a form has to be in UTF-8\n"),
    ],
)
def test_a_refused_form_without_files(body: bytes, kind: bytes, status: int, text: bytes) -> None:
    def count(request: Request) -> Mono[Any]:
        return request.form(max_bytes=10, max_fields=3).map(len)

    got = answer(exchange_of(body, kind=kind), count)

    assert (got[0], got[1].strip()) == (status, text.strip())


def test_a_form_has_one_reader() -> None:
    async def ask() -> None:
        form = request_of(exchange_of(b"a=1", kind=URLENCODED)).form()
        assert (await form)["a"] == "1"
        with pytest.raises(ReceiverTaken):
            await form

    run(ask)
