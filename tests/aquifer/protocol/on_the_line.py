"""A subscriber's side on the table: a clock that goes when told, and a gateway that is the test itself."""

from __future__ import annotations

from typing import Any

from penstock.aquifer.protocol.effects import Connect, Effect, Finish, Join, Send, Take
from penstock.aquifer.protocol.frames import Flag, Frame
from penstock.aquifer.protocol.messages import (
    Control,
    Next,
    NextFields,
    OnError,
    OnErrorFields,
    OnSubscribe,
    OnSubscribeFields,
    Subscribe,
    SubscribeFields,
    encode,
    extension,
)
from penstock.aquifer.protocol.subscribe_options import SubscribeOptions
from penstock.aquifer.protocol.subscriber_side import SubscriberSide
from penstock.aquifer.records.batch import pack_values

TOPIC = "0123456789abcdef"


class OnTheLine:
    """Tells the machine what happens, and remembers what it wanted done."""

    def __init__(self, *, started: bool = True, **wishes: Any) -> None:
        self.now = 1000.0
        self.side = SubscriberSide("tcp://gateway:5556", SubscribeOptions(**wishes))
        self.effects: list[Effect] = []
        if started:
            self.did(self.side.start(self.now))

    @property
    def reader(self) -> Any:
        return self.side.reader

    def did(self, effects: list[Effect]) -> list[Effect]:
        self.effects += effects
        return effects

    # ---------------------------------------------------------------- what happens
    def connect(self) -> None:
        self.side.connected(self.now)

    def hear(self, message: Control | bytes) -> list[Effect]:
        data = message if isinstance(message, bytes) else encode(message)
        return self.did(self.side.control(data, self.now))

    def pass_time(self, seconds: float, step: float = 0.01) -> list[Effect]:
        """Let time pass, and look at the clock as often as a driver does."""
        done: list[Effect] = []
        until = self.now + seconds
        while self.now < until - 1e-9:
            self.now = min(self.now + step, until)
            done += self.did(self.side.tick(self.now))
        return done

    def tick(self) -> list[Effect]:
        return self.did(self.side.tick(self.now))

    def welcome(self, start: int = 0, **more: Any) -> list[Effect]:
        """Be welcomed in the extended dialect."""
        answer = OnSubscribeFields(**{"v": 1, "topic": TOPIC, "epoch": "epoch-1", "next": start, **more})
        return self.hear(OnSubscribe(2**63 - 1, 5557, x=answer))

    def refuse(self, code: str, **more: Any) -> list[Effect]:
        return self.hear(OnError("no", x=OnErrorFields(code=code, **more)))

    def frame(self, first: int, count: int, flags: int = 0, width: int = 1) -> list[Effect]:
        payload = pack_values([b"." * width] * count) if count else b""
        return self.did(self.reader.frame(Frame(flags, first, count, payload, b""), self.now))

    def error_frame(self, first: int, code: str) -> list[Effect]:
        payload = encode(OnError("broken", x=OnErrorFields(code=code)))
        return self.did(self.reader.frame(Frame(Flag.ERR, first, 0, payload, b""), self.now))

    def hand_on(self, offset: int, nbytes: int = 0) -> None:
        """The reader takes, and is done with, what came before an offset."""
        self.reader.hand_on(offset, nbytes)
        self.reader.acknowledged = offset

    # ---------------------------------------------------------------- what it wanted
    @property
    def said(self) -> list[Control]:
        return [effect.message for effect in self.effects if isinstance(effect, Send)]

    @property
    def finished(self) -> BaseException | None:
        (finish,) = [effect for effect in self.effects if isinstance(effect, Finish)]
        return finish.error


def grants(effects: list[Effect]) -> list[NextFields]:
    """What a list of effects grants the gateway."""
    found = []
    for effect in effects:
        if isinstance(effect, Send) and isinstance(effect.message, Next):
            grant = extension(effect.message.x)
            assert grant is not None
            found.append(grant)
    return found


def asked(effects: list[Effect]) -> list[SubscribeFields | None]:
    """What a list of effects asks for: None where it is asked in the words of the document alone."""
    return [
        extension(effect.message.x)
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, Subscribe)
    ]


def counts(effects: list[Effect]) -> list[int]:
    """How many records a list of effects asks a plain gateway for."""
    return [
        effect.message.count
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, Next)
    ]


def taken(effects: list[Effect]) -> list[int]:
    """The offsets of the frames that are to be taken."""
    return [effect.frame.first for effect in effects if isinstance(effect, Take)]


def joins(effects: list[Effect]) -> list[Join]:
    return [effect for effect in effects if isinstance(effect, Join)]


def connects(effects: list[Effect]) -> int:
    return sum(isinstance(effect, Connect) for effect in effects)
