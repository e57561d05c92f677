"""Elements that a sender takes by the handful: iterables, and the frames of a chunk."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import pytest

from penstock.net import ConnectionAborted, SendRefused, TcpServer
from penstock.net.chunk_sender import FrameSender, MappedSender
from penstock.net.framing import FrameTooLong, lines
from penstock.net.pull_sender import PullSender
from penstock.net.sender import BUDGET, StreamSender
from penstock.net.transport import HIGH_WATER
from penstock.streams import Flux
from tests.net.memory.subscribers import Reader
from tests.net.memory.transports import MemoryLoop, MemoryTransport, connected


def answering(chain: Any, room: int = 1 << 60) -> tuple[Any, MemoryTransport, MemoryLoop, list[Any]]:
    """A connection that sends back what this makes of what it receives, and how its handler failed."""
    errors: list[Any] = []
    handler = TcpServer.create().handle(
        lambda inbound, outbound: outbound.send(chain(inbound)).mono().do_on_error(errors.append)
    )
    return *connected(handler, MemoryTransport(MemoryLoop(), room=room)), errors


@pytest.mark.parametrize(
    ("chain", "kind"),
    [
        (lambda i: i.receive().transform(lines()).map(bytes.upper), FrameSender),
        (lambda i: i.receive().transform(lines()).filter(len), FrameSender),
        (lambda i: i.receive().transform(lines()), FrameSender),
        (lambda i: i.receive().map(bytes.upper), MappedSender),
        (lambda i: i.receive().transform(lines()).take(3), StreamSender),
        (lambda i: i.receive().transform(lines()).do_on_complete(lambda: None), StreamSender),
        (lambda i: i.receive().flat_map_iterable(lambda chunk: [chunk]), StreamSender),
        (lambda i: Flux.from_iterable([b"a"]).concat_with(Flux.never()), StreamSender),
    ],
)
def test_only_operators_that_keep_nothing_are_run_by_the_sender(chain: Any, kind: type) -> None:
    connection, _, loop, _ = answering(chain)
    loop.settle()
    assert type(connection.output.sender) is kind


def test_the_lines_of_a_chunk_leave_as_one_write_and_half_a_line_waits() -> None:
    _, transport, loop, _ = answering(
        lambda i: i.receive().transform(lines()).map(lambda x: x.upper() + b"|")
    )
    transport.receive(b"a\nb\nc")
    transport.receive(b"d\n")
    assert transport.writes == [b"A|B|", b"CD|"]
    transport.receive(b"last")
    transport.peer_ends()
    loop.settle()
    assert transport.arrived == b"A|B|CD|LAST|"


def test_frames_wait_while_the_transport_is_full_and_no_other_chunk_is_asked_for() -> None:
    """A line may become much more than it was: what waits is bounded by a handful, not by the chunk."""
    connection, transport, loop, _ = answering(
        lambda i: i.receive().transform(lines()).map(lambda line: line * 10_000), room=0
    )
    chunk = b"x\n" * 4000
    transport.receive(chunk)
    loop.settle()
    assert transport.full
    # The first handful, of lines whose size is not known yet; what may follow; and one more handful.
    assert len(transport.unsent) <= 16 * 10_000 + BUDGET + 128 * 1024
    received = len(chunk)
    while transport.reading:
        transport.receive(b"x\n" * 2000)
        received += 4000
        assert received < 1_000_000, "nobody ever says stop"
    assert connection._receiver.waiting <= connection.settings.read_ahead + 4000
    for _ in range(received):
        transport.take(1_000_000)
        loop.settle()
        if not transport.unsent and transport.reading:
            break
    assert len(transport.arrived) == received // 2 * 10_000


@pytest.mark.parametrize("over", [False, True], ids=["in the middle", "at the end"])
def test_a_function_that_fails_fails_the_send_after_the_lines_before(over: bool) -> None:
    def number(line: bytes) -> bytes:
        return b"%d," % int(line)

    connection, transport, loop, errors = answering(lambda i: i.receive().transform(lines()).map(number))
    transport.receive(b"1\n2\nx" + (b"" if over else b"\n3\n"))
    if over:
        transport.peer_ends()
    loop.settle()
    assert transport.arrived == b"1,2,"
    assert isinstance(errors[0], ValueError)
    assert any("map(" in note for note in errors[0].__notes__)
    assert connection.output.sender is None


def test_a_line_that_is_too_long_fails_the_send_after_the_lines_before() -> None:
    _, transport, loop, errors = answering(lambda i: i.receive().transform(lines(max_length=4)))
    transport.receive(b"one\ntwo\nmuch too long\n")
    loop.settle()
    assert transport.arrived == b"onetwo"
    assert isinstance(errors[0], FrameTooLong)


@pytest.mark.parametrize("chain", [lambda flux: flux, lambda flux: flux.transform(lines())])
def test_what_is_not_bytes_is_refused_and_none_names_its_operator(chain: Any) -> None:
    for result, text in ((7, "was given 7, which is not bytes"), (None, "map(")):
        _, transport, loop, errors = answering(lambda i, r=result: chain(i.receive()).map(lambda _: r))
        transport.receive(b"line\n")
        loop.settle()
        assert transport.writes == []
        assert text in str(errors[0])
        assert isinstance(errors[0], SendRefused) is (result is not None)


def test_a_function_that_closes_its_connection_ends_the_send() -> None:
    seen: list[bytes] = []

    def chain(inbound: Any) -> Any:
        def close(line: bytes) -> bytes:
            seen.append(line)
            if line == b"2":
                inbound.connection.close()
            return line

        return inbound.receive().transform(lines()).map(close)

    connection, transport, loop, errors = answering(chain)
    transport.receive(b"1\n2\n3\n")
    loop.settle()
    assert isinstance(errors[0], ConnectionAborted)
    assert seen[:2] == [b"1", b"2"]
    assert transport.arrived == b""
    assert connection.output.sender is None


def test_a_reset_says_how_many_lines_were_written() -> None:
    _, transport, loop, errors = answering(lambda i: i.receive().transform(lines()), room=0)
    transport.receive(b"one\ntwo\n")
    transport.peer_resets()
    loop.settle()
    assert (errors[0].elements, errors[0].written) == (2, 6)


def test_an_iterable_is_taken_only_as_fast_as_the_kernel_takes_it() -> None:
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * 1000

    connection, transport, loop = connected(transport=MemoryTransport(MemoryLoop(), room=0))
    connection.outbound.send(Flux.from_iterable(endless())).subscribe(Reader())
    assert type(connection.output.sender) is PullSender
    loop.settle()
    assert HIGH_WATER <= taken * 1000 <= 2 * HIGH_WATER + 1000
    before = taken
    loop.pass_time(3600)
    assert taken == before
    transport.take(50_000_000)
    for _ in range(5):
        loop.turn()
    assert taken > before


def test_a_generator_is_closed_when_its_send_is_cancelled_or_lost() -> None:
    for end in ("cancel", "reset"):
        closed: list[str] = []

        def elements(closed: list[str] = closed) -> Iterator[bytes]:
            try:
                while True:
                    yield b"x" * 1000
            finally:
                closed.append("closed")

        connection, transport, loop = connected(transport=MemoryTransport(MemoryLoop(), room=0))
        sent = Reader()
        connection.outbound.send(Flux.from_iterable(elements())).subscribe(sent)
        loop.settle()
        assert closed == []
        if end == "cancel":
            sent.subscription.cancel()
        else:
            transport.peer_resets()
        loop.settle()
        assert closed == ["closed"]
        assert connection.output.sender is None


def test_an_iterable_that_cannot_be_opened_fails_the_send() -> None:
    connection, _, loop = connected()
    sent = Reader()

    class Broken:
        def __iter__(self) -> Iterator[bytes]:
            raise LookupError("no such thing")

    connection.outbound.send(Flux.from_iterable(Broken())).subscribe(sent)
    loop.settle()
    assert isinstance(sent.error, LookupError)
    assert connection.output.sender is None


def test_large_elements_after_many_small_ones_do_not_come_by_the_thousand() -> None:
    """The handful has grown with the small ones, and the peer reads nothing."""
    large = 0

    def elements() -> Iterator[bytes]:
        nonlocal large
        yield from [b"ab"] * 5000
        while True:
            large += 1
            yield bytes(100_000)

    _, transport, loop, _ = answering(lambda i: Flux.from_iterable(elements()), room=0)
    loop.settle()
    assert transport.full
    assert 0 < large <= 128


@pytest.mark.parametrize("filtered", [False, True])
def test_large_results_after_many_small_ones_do_not_come_by_the_thousand(filtered: bool) -> None:
    """A peer chooses when its short lines ask for much: nothing is lost, and few results are made ahead."""
    made: list[bytes] = []

    def answer(line: bytes) -> bytes:
        if line == b"L":
            made.append(line)
            return b"l" * 10_000
        return line

    def chain(inbound: Any) -> Any:
        answers = inbound.receive().transform(lines()).map(answer)
        return answers.filter(lambda result: result != b"x") if filtered else answers

    _, transport, loop, errors = answering(chain, room=200_000)
    chunk = b"s\nx\n" * 8064 + b"L\nx\nL\n" * 2000
    for at in range(0, len(chunk), 40_000):
        transport.receive(chunk[at : at + 40_000])
        loop.settle()
    assert 1 < len(made) < 200

    while transport.full or transport.unsent:
        transport.take(1 << 20)
        loop.settle()
    small = b"s" if filtered else b"sx"
    large = b"l" * 20_000 if filtered else b"l" * 10_000 + b"x" + b"l" * 10_000
    assert transport.arrived == small * 8064 + large * 2000
    assert errors == []


@pytest.mark.parametrize("room", range(0, 400_000, 16_384))
def test_room_in_the_socket_brings_no_second_turn_beside_the_one_that_is_due(room: int) -> None:
    """The last write of a turn may fill the socket, and the room for more may come before the next turn."""
    loop = MemoryLoop()
    connection, transport, _ = connected(transport=MemoryTransport(loop, room=room))
    connection.outbound.send(Flux.from_iterable(repeat(bytes(16_384)))).subscribe(Reader())
    for _ in range(20):
        transport.take(room + HIGH_WATER)
        assert loop.due <= 1
        loop.turn()
