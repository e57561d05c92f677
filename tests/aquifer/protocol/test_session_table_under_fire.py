"""Whatever arrives at a gateway's control port: it is answered at most once, and harms nobody else."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.aquifer.limits import Limits
from penstock.aquifer.protocol.extended_session import ExtendedSession
from penstock.aquifer.protocol.messages import (
    Complete,
    Error,
    Next,
    NextFields,
    OnComplete,
    OnError,
    OnNext,
    OnSubscribe,
    Subscribe,
    SubscribeFields,
    encode,
)
from penstock.aquifer.protocol.session import SessionEvent, SessionState
from tests.aquifer.protocol.front_table import FrontTable, PretendedLog, send_all

HONEST = b"honest"

figures = st.integers(-2, 120) | st.sampled_from([2**53, 2**63 - 1, 2**64, 10**400, -(10**400)])
names = st.sampled_from(["a", "b", "ü"])


def some(kind: Any, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A struct with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields).map(lambda chosen: kind(**chosen))


wishes = some(
    SubscribeFields,
    v=st.sampled_from([1, 1, 1, 2]),
    id=names,
    from_=figures | st.sampled_from(["earliest", "latest", "x"]),
    to=figures,
    epoch=st.sampled_from(["epoch-1", "other"]),
    keep=st.booleans(),
    fmt=st.lists(st.sampled_from(["msgpack", "arrow", "xml"]), max_size=2),
    lease=figures,
    probe=st.booleans(),
    ack=figures,
    beyond=figures,
    wait=figures,
    me=names,
    nth=figures,
)
grants = some(NextFields, limit=figures, limitb=figures, ack=figures, got=figures)
messages = st.one_of(
    st.builds(Subscribe, cancel=st.just(False), x=wishes),
    st.builds(Subscribe, cancel=st.booleans(), x=wishes),
    st.builds(Subscribe, cancel=st.booleans()),
    st.builds(Next, count=figures),
    st.builds(Next, count=figures, x=grants),
    st.builds(Next, count=figures, x=grants),
    st.just(Complete()),
    st.just(Error("missing")),
    st.sampled_from([OnSubscribe(1, 1), OnNext(1), OnError("no"), OnComplete()]),
).map(encode)
mangled = st.tuples(messages, st.integers(0, 60), st.binary(max_size=3)).map(
    lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] + len(parts[2]) :]
)
events = st.one_of(
    st.tuples(
        st.just("say"), st.sampled_from([b"p", b"q", b"r"]), messages | messages | mangled | st.binary()
    ),
    st.tuples(st.just("say"), st.sampled_from([b"p", b"q"]), messages),
    st.tuples(
        st.just("happen"), st.sampled_from([SessionEvent.JOINED, SessionEvent.JOINED, SessionEvent.LEFT])
    ),
    st.tuples(st.just("pass"), st.sampled_from([0.0, 0.05, 0.2, 3.0])),
    st.tuples(st.just("grow"), st.integers(1, 30)),
    st.tuples(st.just("forget"), st.integers(1, 30)),
    st.tuples(st.just("end"), st.sampled_from([None, "broken"])),
)


class Fire:
    """Strangers say anything; an honest subscriber reads on."""

    def __init__(self) -> None:
        self.log = PretendedLog(head=20)
        self.front = FrontTable(Limits(max_subscribers=3, lease=5.0, max_message=2000), self.log)
        self.honest = self.front.subscribe(HONEST, id="honest", lease=10_000_000)
        self.got: list[int] = []
        self.heard: Counter[bytes] = Counter()
        self.counted: Counter[str] = Counter()

    def say(self, peer: bytes, data: bytes) -> None:
        self.heard[peer] += 1
        before = len(self.front.answers)
        self.front.say(data, peer)
        answers = self.front.answers[before:]
        assert all(to == peer for to, _ in answers), "an answer goes to who asked"
        assert self.front.table.counters >= self.counted, "a counter only grows"
        self.counted = Counter(self.front.table.counters)

    def happen(self, event: SessionEvent) -> None:
        for peer in self.front.table.sessions.keys() - {HONEST}:
            self.front.happen(event, peer)

    def grow(self, count: int) -> None:
        if self.log.end is None:
            self.log.head += count

    def forget(self, count: int) -> None:
        self.log.first = min(self.log.first + count, self.front.table.low_watermark())

    def end(self, failure: str | None) -> None:
        if self.log.end is None:
            self.log.finish(failure)

    def serve(self) -> None:
        """What the gateway's loop does after each message."""
        self.front.grant(HONEST, limit=self.honest.cursor + 5, ack=self.honest.cursor)
        self.got += send_all(self.honest)
        for session in list(self.front.table.sessions.values()):
            self.front._read(session.tick(self.front.now))
            if isinstance(session, ExtendedSession) and session.credit() and session.overtaken:
                session.skip_to(self.log.first)
            before = session.cursor
            sent = send_all(session)
            assert sent == list(range(before, session.cursor)), "in order, without a gap"
            assert session.cursor <= self.log.head, "nothing that is not there"
            if isinstance(session, ExtendedSession) and session is not self.honest and session.exhausted:
                session.handle(SessionEvent.END_TOLD, 0.0)
        assert self.front.table.low_watermark() >= self.log.first

    def check(self) -> None:
        answered = Counter(peer for peer, _ in self.front.answers)
        for peer, count in self.heard.items():
            assert answered[peer] <= count, "at most one answer to a message"
        assert self.got == list(range(self.honest.cursor))
        assert self.front.session(HONEST) is self.honest
        assert self.honest.state is SessionState.STREAMING


@settings(max_examples=150, deadline=None)
@given(st.lists(events, max_size=40))
def test_strangers_can_say_anything(happened: list[tuple[Any, ...]]) -> None:
    fire = Fire()
    for kind, *details in happened:
        if kind == "pass":
            fire.front.pass_time(*details)
        else:
            getattr(fire, kind)(*details)
        fire.serve()
    fire.check()


@settings(deadline=None)
@given(st.lists(st.binary(max_size=300), min_size=2, max_size=4))
def test_parts_can_be_anything(parts: list[bytes]) -> None:
    front = FrontTable()
    replies = front.table.receive(parts, front.now)
    assert front.table.counters.total() == 1
    for reply in replies:
        assert reply.envelope == tuple(parts[: len(reply.envelope)]), "the way back is the way it came"
        assert isinstance(reply.message, OnError)
    assert len(replies) == (parts[1:] != [b""])
