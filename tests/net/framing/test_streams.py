"""Framing as a step of a stream: demand, errors, the end, and a decoder for each subscriber."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.net.framing import (
    Decoder,
    FrameTooLong,
    FrameTruncated,
    LineDecoder,
    delimited,
    frames,
    json_objects,
    length_prefixed,
    lines,
    text,
)
from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono, Sink, Sinks, on_dropped
from penstock.streams.source import PublisherSource
from penstock.streams.stream import flux_of
from tests.streams.recording import Recorder


class Chunks:
    """Sends what it is asked for and writes down what that was, and whether it was cancelled."""

    def __init__(self, *chunks: bytes, ends: bool = True, error: Exception | None = None) -> None:
        self.left = list(chunks)
        self.requests: list[int] = []
        self.cancelled = False
        self._ends, self._error = ends, error
        self._busy = False
        self._demand = 0
        self._subscriber: Any = None

    def subscribe(self, subscriber: Any) -> None:
        self._subscriber = subscriber
        subscriber.on_subscribe(self)

    def request(self, n: int) -> None:
        self.requests.append(n)
        self._demand += n
        if self._busy:
            return
        self._busy = True
        while self._demand and self.left and not self.cancelled:
            self._demand -= 1
            self._subscriber.on_next(self.left.pop(0))
        self._busy = False
        if not self.left and not self.cancelled:
            if self._error is not None:
                self._subscriber.on_error(self._error)
            elif self._ends:
                self._subscriber.on_complete()

    def cancel(self) -> None:
        self.cancelled = True


class Late(Chunks):
    """Fails when it is cancelled, which is too late."""

    def cancel(self) -> None:
        super().cancel()
        self._subscriber.on_error(ConnectionResetError("late"))


def test_no_chunk_is_asked_for_before_a_frame_is() -> None:
    source = Chunks(b"one\n", b"two\n")
    recorder = Recorder.of(Flux.from_publisher(source).transform(lines()))

    assert source.requests == []
    recorder.request(1)
    assert recorder.items == [b"one"]
    assert source.requests == [1]


def test_frames_of_a_chunk_wait_and_no_other_chunk_is_asked_for_meanwhile() -> None:
    source = Chunks(b"1\n2\n3\n4\n5", b"5\n6\n", b"7\n", ends=False)
    recorder = Recorder.of(Flux.from_publisher(source).transform(lines()))

    recorder.request(3)
    assert recorder.items == [b"1", b"2", b"3"]
    assert sum(source.requests) == 1
    recorder.request(1)
    assert recorder.items[3:] == [b"4"]
    assert sum(source.requests) == 1
    recorder.request(1)
    assert recorder.items[4:] == [b"55"]
    assert sum(source.requests) == 2
    recorder.request(100).check()
    assert recorder.items[5:] == [b"6", b"7"]
    assert sum(source.requests) == 4  # the last one is still owed


def test_while_a_chunk_is_awaited_no_other_is_asked_for() -> None:
    source = Chunks(ends=False)
    recorder = Recorder.of(Flux.from_publisher(source).transform(lines()))
    for _ in range(5):
        recorder.request(2)

    assert source.requests == [1]


def test_one_frame_takes_as_many_chunks_as_it_has_and_no_more() -> None:
    source = Chunks(*[b"x"] * 50, b"\n", b"y\n", b"z\n")
    recorder = Recorder.of(Flux.from_publisher(source).transform(lines()), first=1)

    assert recorder.items == [b"x" * 50]
    assert sum(source.requests) == 51
    assert source.left == [b"y\n", b"z\n"]


def test_who_wants_everything_asks_once() -> None:
    source = Chunks(b"one\ntw", b"o\n")
    recorder = Recorder.of(Flux.from_publisher(source).transform(lines()), first=UNBOUNDED)

    assert recorder.wait().items == [b"one", b"two"]
    assert source.requests == [UNBOUNDED]


def test_operators_above_and_below_are_part_of_it() -> None:
    stream = Flux.from_publisher(Chunks(b"b25l\n", b"dHdv\nMw=", b"=\n")).map(bytes.upper).map(bytes.lower)

    assert stream.transform(lines()).map(len).filter(bool).take(2).collect_list().block() == [4, 4]


def test_the_end_of_the_source_is_the_end_of_the_last_frame() -> None:
    recorder = Recorder.of(Flux.from_publisher(Chunks(b"one\ntw", b"o")).transform(lines()), first=1)

    assert recorder.items == [b"one"]
    assert not recorder.terminated
    recorder.request(1)
    assert recorder.check().items == [b"one", b"two"]
    assert recorder.completed


def test_completion_needs_no_demand() -> None:
    recorder = Recorder.of(Flux.from_publisher(Chunks(b"one\n")).transform(lines()), first=1)

    assert recorder.items == [b"one"]
    assert recorder.completed
    assert Recorder.of(Flux.empty().transform(lines())).completed


def test_an_end_that_comes_after_all_frames_were_sent_is_heard_without_demand() -> None:
    for end in ("try_complete", "try_error"):
        sink: Sink[Any] = Sinks.unicast()
        recorder = Recorder.of(sink.flux().transform(lines()), first=2)
        sink.try_emit(b"one\ntwo\n")

        assert recorder.items == [b"one", b"two"]
        assert not recorder.terminated
        getattr(sink, end)(*[ConnectionResetError("reset")] * (end == "try_error"))
        assert recorder.check().terminated


def test_frames_before_a_fault_are_sent_first_and_the_source_is_cancelled() -> None:
    source = Chunks(b"one\ntwo\nthree\nsix\n", b"ten\n")
    recorder = Recorder.of(Flux.from_publisher(source).transform(lines(3)), first=1)

    assert recorder.items == [b"one"]
    assert recorder.error is None
    recorder.request(1)
    assert recorder.check().items == [b"one", b"two"]
    assert isinstance(recorder.error, FrameTooLong)
    assert source.cancelled
    assert source.left == [b"ten\n"]


def test_an_error_names_the_framing_and_where_it_was_written() -> None:
    stream = Flux.just(b"\0\0\0\5four").transform(length_prefixed())

    with pytest.raises(FrameTruncated, match="1 more") as caught:
        stream.collect_list().block()

    assert "length_prefixed(4), assembled at" in caught.value.__notes__[0]
    assert "test_streams.py" in caught.value.__notes__[0]


def test_an_error_of_the_source_comes_after_the_frames_and_what_is_left_is_dropped() -> None:
    source = Chunks(b"one\ntw", error=ConnectionResetError("reset"))
    recorder = Recorder.of(Flux.from_publisher(source).transform(lines()), first=5)

    assert recorder.check().items == [b"one"]
    assert isinstance(recorder.error, ConnectionResetError)


def test_each_subscriber_has_a_decoder_of_its_own() -> None:
    made: list[Decoder[Any]] = []

    def make() -> LineDecoder:
        made.append(LineDecoder())
        return made[-1]

    stream = frames(Flux.just(b"one\ntw"), make)

    assert made == []
    first, second = Recorder.of(stream, first=1), Recorder.of(stream, first=1)
    first.request(1)
    second.request(1)
    assert first.items == second.items == [b"one", b"tw"]
    assert len(made) == 2


class Records(Decoder[Any]):
    """A decoder as a user may write one: records of three bytes, and ``?`` means that none was found."""

    def cut(self, chunk: bytes) -> Any:
        if b"!" in chunk:
            raise LookupError("no record begins with !")
        return [chunk[at : at + 3] if chunk[at] != 0x3F else None for at in range(0, len(chunk), 3)]

    def rest(self) -> list[Any]:
        return [b"end"]


def test_a_decoder_of_ones_own() -> None:
    assert frames(Flux.just(b"onetwo"), Records).collect_list().block() == [b"one", b"two", b"end"]

    source = Chunks(b"onetwo", b"!", b"six")
    recorder = Recorder.of(frames(source, Records), first=9)
    assert recorder.check().items == [b"one", b"two"]
    assert isinstance(recorder.error, LookupError)
    assert source.cancelled


def test_none_is_no_frame() -> None:
    source = Chunks(b"one?..two", ends=False)
    recorder = Recorder.of(frames(source, Records), first=9)

    assert recorder.check().items == [b"one"]
    assert isinstance(recorder.error, TypeError)
    assert source.cancelled


def test_a_decoder_that_cannot_be_made_is_an_error_of_the_stream() -> None:
    def make() -> LineDecoder:
        raise LookupError("no such protocol")

    source = Chunks(b"one\n")
    recorder = Recorder.of(frames(source, make))

    assert isinstance(recorder.check().error, LookupError)
    assert source.requests == []


def test_errors_of_a_source_that_was_cancelled_for_a_bad_frame_go_to_the_hook() -> None:
    dropped: list[str] = []
    with on_dropped(error=lambda error, where: dropped.append(str(error))):
        source = flux_of(PublisherSource(Late(b"toolong\n")))  # as a socket is, without the strict guard
        recorder = Recorder.of(frames(source, lambda: LineDecoder(3)), first=1)

    assert isinstance(recorder.check().error, FrameTooLong)
    assert dropped == ["late"]


def test_cancelling_stops_between_two_frames_of_a_chunk() -> None:
    source = Chunks(b"1\n2\n3\n", b"4\n")
    recorder = Recorder(first=10, on_element=lambda me, line: me.cancel() if line == b"2" else None)
    Flux.from_publisher(source).transform(lines()).subscribe(recorder)

    assert recorder.check().items == [b"1", b"2"]
    assert source.cancelled
    assert not recorder.terminated


def test_request_inside_on_next_does_not_deepen_the_stack() -> None:
    source = Chunks(*[b"x\n" * 10] * 1000)
    recorder = Recorder(first=1, on_element=lambda me, line: me.request(1))
    Flux.from_publisher(source).transform(lines()).subscribe(recorder)

    assert len(recorder.wait().items) == 10_000
    assert recorder.deepest == 1


def test_all_ways_out_give_the_same() -> None:
    stream = Flux.just(b"one\ntw", b"o\nthree").transform(lines(encoding="utf-8"))

    async def collected() -> list[str]:
        return [line async for line in stream]

    assert list(stream) == asyncio.run(collected()) == ["one", "two", "three"]
    assert stream.collect_list().block() == ["one", "two", "three"]


def test_chunks_that_are_pushed() -> None:
    sink: Sink[Any] = Sinks.unicast()
    recorder = Recorder.of(sink.flux().transform(json_objects()), first=2)
    for chunk in (b'{"a"', b":1}{", b"}", b"{}"):
        sink.try_emit(chunk)

    assert recorder.items == [b'{"a":1}', b"{}"]
    sink.try_complete()
    recorder.request(1)
    assert recorder.wait().items == [b'{"a":1}', b"{}", b"{}"]


def test_one_framing_after_the_other() -> None:
    inner = Flux.just(b"\0\3a;b\0", b"\2;c").transform(length_prefixed(2))

    assert inner.transform(delimited(b";")).collect_list().block() == [b"a", b"b", b"c"]
    assert Flux.just(b"caf\xc3", b"\xa9").transform(text()).collect_list().block() == ["caf", "é"]


def test_what_is_no_flux_is_taken_as_well() -> None:
    assert lines().frames(Mono.just(b"one\ntwo")).collect_list().block() == [b"one", b"two"]
    assert lines()(Chunks(b"one\ntwo")).collect_list().block() == [b"one", b"two"]

    with pytest.raises(TypeError, match=r"frames\(\) needs a publisher"):
        frames(7, LineDecoder)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="needs a function that makes a decoder"):
        frames(Flux.empty(), LineDecoder())  # type: ignore[arg-type]


def test_a_framing_is_seen_in_the_picture_of_a_stream() -> None:
    assert "delimited(b';') map(len)" in Flux.just(b"").transform(delimited(b";")).map(len).explain()
    assert "frames(LineDecoder)" in frames(Flux.just(b""), LineDecoder).explain()
    assert repr(lines(encoding="utf-8")) == "<Framing lines('utf-8')>"
