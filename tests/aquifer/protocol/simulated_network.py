"""Subscribers of a simulated gateway, and unreliable lines between them: time passes only when told.

Control messages may be lost, repeated and overtaken by later ones, also by those of a later connection. Data
frames come in order or, when the connection drops, not at all: that is what TCP and ØMQ leave of the world.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

from penstock.aquifer.protocol.effects import Connect, Effect, Finish, Join, Send, Take
from penstock.aquifer.protocol.extended_reader import ExtendedReader
from penstock.aquifer.protocol.frames import Frame, parse, payload_of
from penstock.aquifer.protocol.messages import encode
from penstock.aquifer.protocol.session import Reply, SessionEvent
from penstock.aquifer.protocol.subscribe_options import SubscribeOptions
from penstock.aquifer.protocol.subscriber_side import Phase, SubscriberSide
from penstock.aquifer.records.batch import unpack_values
from tests.aquifer.protocol.simulated_gateway import SimulatedGateway, offset_in


@dataclass
class Trouble:
    """How bad the lines are: chances for each message, or each step."""

    lose: float = 0.0
    repeat: float = 0.0
    delay: float = 0.0
    """Chance that a control message is late, and overtaken."""
    late: float = 0.5
    """By how many seconds at most; from one second on, later connections overtake it too."""
    drop: float = 0.0
    """Chance in each step that a data connection breaks, with everything on it."""
    restart: float = 0.0
    """Chance in each step that the gateway is restarted."""


@dataclass
class SimulatedSubscriber:
    """Drives the subscriber's side, hands records on at its own pace, and checks what it gets."""

    name: str
    wishes: SubscribeOptions
    random: Random
    pace: float = 1.0
    """Chance in each step to hand on a frame (above 1: as many frames as that)."""
    manual: bool = False
    """Whether acknowledgements lag behind what was handed on."""

    def __post_init__(self) -> None:
        self.side = SubscriberSide("tcp://gateway:5556", self.wishes)
        self.waiting: deque[Frame] = deque()
        self.got: list[int] = []
        self.finished: Finish | None = None
        self.over = False
        self.widest = 0
        """The most records that ever waited here."""
        self.heaviest = 0

    @property
    def reading(self) -> ExtendedReader | None:
        return self.side.reader

    def hand_on(self) -> None:
        """Take what the reader asked for."""
        self._hand_on()
        if self.reading is not None and (not self.manual or self.random.random() < 0.2):
            self.reading.acknowledged = self.reading.handed

    def _hand_on(self) -> None:
        times = int(self.pace) if self.pace >= 1 else self.random.random() < self.pace
        for _ in range(times):
            if not self.waiting or self.reading is None:
                return
            frame = self.waiting.popleft()
            if frame.records:
                self.got += map(offset_in, unpack_values(payload_of(frame)))
            self.reading.hand_on(frame.first + frame.count, len(frame.payload) + len(frame.metadata))

    def take(self, frame: Frame) -> None:
        self.waiting.append(frame)
        records = sum(frame.records for frame in self.waiting)
        nbytes = sum(len(frame.payload) + len(frame.metadata) for frame in self.waiting)
        self.widest, self.heaviest = max(self.widest, records), max(self.heaviest, nbytes)
        assert records <= self.side.ahead.size, "more came than was granted"


@dataclass
class Line:
    """The connections of one subscriber: control both ways, data one way."""

    subscriber: SimulatedSubscriber
    peer: bytes = b""
    connects_at: float = 0.0
    connected: bool = False
    topic: bytes | None = None
    joins_at: float = 0.0
    joined: bool = False
    unsent: list[bytes] = field(default_factory=list)
    down: list[tuple[float, bytes, bytes]] = field(default_factory=list)
    frames: deque[tuple[float, list[bytes]]] = field(default_factory=deque)


class World:
    """One gateway, its subscribers, and everything between them."""

    def __init__(
        self,
        gateway: SimulatedGateway,
        subscribers: list[SimulatedSubscriber],
        trouble: Trouble,
        random: Random,
        *,
        step: tuple[float, ...] = (0.002, 0.01, 0.04),
        trip: float = 0.005,
    ) -> None:
        self.now = 0.0
        self.gateway = gateway
        self.lines = [Line(subscriber) for subscriber in subscribers]
        self.trouble = trouble
        self.random = random
        self.steps = step
        self.trip = trip
        self.up: list[tuple[float, bytes, bytes]] = []
        self.restarts = 0
        self._peers = 0
        gateway.reply = self._answer
        gateway.send = self._data
        for line in self.lines:
            self._do(line, line.subscriber.side.start(self.now))

    # ---------------------------------------------------------------- running
    def run(self, most: float = 600.0) -> None:
        """Until every subscriber is done; fails if that takes longer than ``most`` simulated seconds."""
        while not all(line.subscriber.over for line in self.lines):
            self.step()
            assert self.now < most, f"nothing goes on any more: {self.status()}"

    def step(self) -> None:
        """A moment passes."""
        self.now += self.random.choice(self.steps)
        self._strike()
        self._deliver_up()
        for line in self.lines:
            self._connect(line)
        self.gateway.turn(self.now)
        for line in self.lines:
            if not line.subscriber.over:
                self._turn(line)

    def describe(self) -> str:
        sessions = [session.status() for session in self.gateway.table.sessions.values()]
        readers = [
            (line.subscriber.name, line.subscriber.side.phase.name, len(line.subscriber.got))
            for line in self.lines
        ]
        log = self.gateway.log
        return f"log {log.first}–{log.head}, low {log.low_watermark}, end {log.end}; {sessions}; {readers}"

    # ---------------------------------------------------------------- what goes wrong
    def _strike(self) -> None:
        for line in self.lines:
            if line.topic is not None and self.random.random() < self.trouble.drop:
                self._drop(line)
        if self.random.random() < self.trouble.restart:
            self.restart(crash=self.random.random() < 0.5)

    def _drop(self, line: Line) -> None:
        line.frames.clear()
        if line.joined and line.topic is not None:
            self.gateway.topic(line.topic, SessionEvent.LEFT, self.now)
        line.joined, line.joins_at = False, self.now + self.random.random()

    def restart(self, *, crash: bool = False) -> None:
        """The gateway goes and comes; every connection breaks, and is made again."""
        self.restarts += 1
        self.gateway.restart(crash=crash)
        self.up.clear()
        for line in self.lines:
            line.frames.clear()
            line.down.clear()
            line.joined, line.joins_at = False, self.now + self.random.random()
            if line.connected:
                self._do(line, line.subscriber.side.disconnected(self.now))
            self._new_peer(line)

    def _new_peer(self, line: Line) -> None:
        self._peers += 1
        line.peer = b"\0peer%d" % self._peers
        line.connected, line.connects_at = False, self.now + 3 * self.trip

    # ---------------------------------------------------------------- the lines
    def _travel(self) -> list[float]:
        """When the copies of a control message arrive: none if it is lost."""
        trouble, chance = self.trouble, self.random.random
        if chance() < trouble.lose:
            return []
        copies = 2 if chance() < trouble.repeat else 1
        late = [
            self.random.random() * trouble.late if chance() < trouble.delay else 0.0 for _ in range(copies)
        ]
        return [self.now + self.trip + extra for extra in late]

    def _say(self, line: Line, data: bytes) -> None:
        for when in self._travel():
            self.up.append((when, line.peer, data))

    def _answer(self, reply: Reply) -> None:
        for line in self.lines:
            if line.peer == reply.envelope[0]:
                line.down += [(when, line.peer, encode(reply.message)) for when in self._travel()]

    def _data(self, topic: bytes, parts: list[bytes]) -> None:
        for line in self.lines:
            if line.topic == topic and line.joined:
                line.frames.append((self.now + self.trip, parts))

    def _deliver_up(self) -> None:
        due = sorted(message for message in self.up if message[0] <= self.now)
        self.up = [message for message in self.up if message[0] > self.now]
        for _, peer, data in due:
            self.gateway.receive([peer, b"", data], self.now)

    def _connect(self, line: Line) -> None:
        if line.peer and not line.connected and self.now >= line.connects_at:
            line.connected = True
            line.subscriber.side.connected(self.now)
            unsent, line.unsent = line.unsent, []
            for data in unsent:
                self._say(line, data)
        if line.topic is not None and not line.joined and self.now >= line.joins_at:
            line.joined = True
            self.gateway.topic(line.topic, SessionEvent.JOINED, self.now)
            self._do(line, line.subscriber.side.joined(self.now))

    # ---------------------------------------------------------------- the subscribers
    def _turn(self, line: Line) -> None:
        subscriber, side = line.subscriber, line.subscriber.side
        subscriber.hand_on()
        self._do(line, side.tick(self.now))
        due = sorted(message for message in line.down if message[0] <= self.now)
        line.down = [message for message in line.down if message[0] > self.now]
        for _, peer, data in due:
            if peer == line.peer:
                self._do(line, side.control(data, self.now))
        while line.frames and line.frames[0][0] <= self.now and side.phase is Phase.READING:
            assert subscriber.reading is not None
            self._do(line, subscriber.reading.frame(parse(line.frames.popleft()[1]), self.now))
        reading = subscriber.reading
        failed = subscriber.finished is not None
        if not subscriber.waiting and (failed or (reading is not None and reading.ended)):
            self._do(line, side.leave())
            subscriber.over = True

    def _do(self, line: Line, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Take):
                line.subscriber.take(effect.frame)
            elif isinstance(effect, Send):
                if line.connected:
                    self._say(line, encode(effect.message))
                else:
                    line.unsent.append(encode(effect.message))
            elif isinstance(effect, Connect):
                if not effect.keep_data and line.topic is not None:
                    self._drop(line)
                    line.topic = None
                line.unsent.clear()
                line.down.clear()
                self._new_peer(line)
            elif isinstance(effect, Join):
                line.topic, line.joined = effect.topic, False
                line.joins_at = self.now + 3 * self.trip
            else:
                line.subscriber.finished = effect
