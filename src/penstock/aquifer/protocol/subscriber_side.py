"""The subscriber's side, up to the point where records flow: ask, be welcomed, join; and again, after a loss.

The machine is told what happens (a message, a frame, time) and returns what to do about it. It first asks in
the extended dialect. A gateway that answers without ``x`` is a plain one; one that answers with nonsense, or
is there but does not answer, is asked again in the words of the document alone. A question is not repeated
while its answer may still come: a gateway may be slow, and the original one does not survive the second
question. From the welcome on, an
:class:`~penstock.aquifer.protocol.extended_reader.ExtendedReader` or a
:class:`~penstock.aquifer.protocol.plain_reader.PlainReader` has the say.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, ClassVar, Final, Protocol, TypeAlias

from msgspec import UNSET

from penstock.aquifer.errors import AquiferError, GatewayUnreachable, OffsetGone, ProtocolViolation, Refused
from penstock.aquifer.protocol.credit import Window
from penstock.aquifer.protocol.effects import Connect, Effect, Finish, Join, Say
from penstock.aquifer.protocol.extended_reader import ExtendedReader
from penstock.aquifer.protocol.frames import TOPIC_BYTES
from penstock.aquifer.protocol.messages import (
    VERSION,
    OnComplete,
    OnError,
    OnErrorFields,
    OnNext,
    OnSubscribe,
    OnSubscribeFields,
    Subscribe,
    SubscribeFields,
    decode,
    demand,
    extension,
)
from penstock.aquifer.protocol.plain_reader import PlainReader
from penstock.aquifer.protocol.remote_errors import error_from
from penstock.aquifer.protocol.subscribe_options import SubscribeOptions

__all__ = ["Phase", "Reading", "SubscribeOptions", "SubscriberSide", "error_from"]

_log = logging.getLogger("penstock.aquifer")

_TRIES: Final = 3
"""How often to ask in the extended dialect before a silent gateway is taken for a plain one."""
_TELL_EVERY: Final = 10.0
"""Seconds between lines in the log that say that a gateway does not let us in."""
_LOOK: Final = 1.0
"""Seconds between looks whether patience is over, while there is no connection."""
_PAUSE: Final = 0.1
"""Seconds after which to ask again when the connection was lost before the answer; then twice as many."""
_KNOWN: Final = 1.0
"""Seconds after which to ask a gateway again that is known to be ours; then twice as many."""
_TRIPS: Final = 4
"""Round trips that an answer, or a new connection, may take."""
_SILENCE: Final = 4.0
"""Seconds without a sign of life after which the gateway is taken for lost."""


class Phase(Enum):
    """How far a subscriber has come."""

    ASKING = auto()
    """A Subscribe is on its way."""
    READING = auto()
    """Welcomed: the dialect's own machine has the say."""
    RESTING = auto()
    """The gateway asked to come back later."""
    OVER = auto()


class Reading(Protocol):
    """What the two dialects have in common once records flow."""

    next: int
    """How many records have come, or the offset of the next one."""

    def message(self, message: Any, now: float) -> list[Effect]:
        """A control message came."""
        ...

    def bytes_came(self, now: float) -> None:
        """A message is on its way, and a part of it has come."""
        ...

    def tick(self, now: float) -> list[Effect]:
        """Time has passed, or the reader has gone on."""
        ...

    def deadline(self) -> float:
        """When to call :meth:`tick` next."""
        ...

    def goodbye(self) -> list[Effect]:
        """What to say when nothing more is wanted."""
        ...


Table: TypeAlias = Mapping[Phase, Mapping[type, str]]


class SubscriberSide:
    """Asks, is welcomed, reads, and asks again when the gateway was lost."""

    table: ClassVar[Table] = {
        Phase.ASKING: {OnSubscribe: "_welcome", OnError: "_refuse", OnNext: "_puzzle", OnComplete: "_puzzle"},
        Phase.READING: {
            OnError: "_pass_on",
            OnNext: "_pass_on",
            OnComplete: "_pass_on",
        },
        Phase.RESTING: {},
        Phase.OVER: {},
    }

    def __init__(self, endpoint: str, wishes: SubscribeOptions) -> None:
        self.endpoint = endpoint
        self.wishes = wishes
        self.phase = Phase.OVER
        self.window = Window(wishes.window, wishes.max_window, wishes.window_bytes)
        self.reading: Any = None
        """The machine of the dialect, from the first welcome on."""
        self.epoch = wishes.epoch
        self.subscriptions = 0
        """How often a gateway has welcomed this subscriber."""
        self._dialect = wishes.dialect
        self._me = secrets.token_hex(8)
        """Tells the gateway, when we ask again, which session was ours."""
        self._asks = 0
        self._tries = 0
        self._connected = False
        self._asked = 0.0
        self._deadline = 0.0
        self._contact = 0.0
        """When the gateway was last heard of."""
        self.silence = _SILENCE
        """Seconds without a sign of life after which the data connection is taken for lost. If nothing came
        in a whole session, the line may only be slow: the next session is given twice as long."""
        self._welcomed: float | None = None
        """When the last welcome came, as long as nothing has come over the data connection since."""
        self._put_off: float | None = None
        """Since when the gateway has told us, and nothing else, to come back later."""
        self._tell_at = 0.0
        self._fruitless = 0.0
        """Seconds that were spent in sessions, one after the other, in which nothing came."""

    @property
    def dialect(self) -> str | None:
        """The dialect that is spoken, once that is known."""
        return None if self.reading is None else str(self.reading.dialect)

    # ---------------------------------------------------------------- what happens
    def start(self, now: float) -> list[Effect]:
        """Begin."""
        self._contact = now
        return self._ask(now)

    def connected(self, now: float) -> None:
        """The control connection is there: from now on silence means something."""
        if self.phase is Phase.ASKING and not self._connected:
            self._asked = now
            self._wait(now, self._answer_time())
        self._connected = True

    def disconnected(self, now: float) -> list[Effect]:
        """The control connection is gone, and with it what was asked and not answered."""
        if self.phase is Phase.ASKING and self._connected:
            self._tries += 1
            self.phase = Phase.RESTING
            self._wait(now, _PAUSE * 2 ** min(self._tries, 5))
        elif self.phase is Phase.READING and self.reading.dialect == "plain":
            self.reading.disconnected(now)
        return []

    def turned_away(self) -> list[Effect]:
        """The gateway has keys, and this subscriber's is not among those that it lets in."""
        return self._finish(
            Refused(
                f"the gateway at {self.endpoint} does not let this key in; add the public key to its list of "
                "allowed clients"
            )
        )

    def joined(self, now: float) -> list[Effect]:
        """The data connection is there."""
        if self.phase is Phase.READING and self.reading.dialect == "plain":
            effects: list[Effect] = self.reading.joined(now)
            return effects
        return []

    def bytes_came(self, now: float) -> None:
        """Bytes of a message that is not whole yet came over the data connection: it is alive."""
        if self.phase is Phase.READING:
            self.reading.bytes_came(now)
            self.flowing(now)

    def flowing(self, now: float) -> None:
        """Something came over the data connection."""
        self._contact = now
        self._welcomed = None
        self._fruitless = 0.0

    def control(self, data: bytes, now: float) -> list[Effect]:
        """A control message came."""
        try:
            message = decode(data)
        except ProtocolViolation as violation:
            return self._puzzle(violation, now)
        self._contact = now
        handler = self.table[self.phase].get(type(message))
        if handler is None:
            return []
        effects: list[Effect] = getattr(self, handler)(message, now)
        return self._watch(effects, now)

    def tick(self, now: float) -> list[Effect]:
        """Time has passed, or the reader has gone on."""
        if self.phase is Phase.READING:
            return self._watch(self.reading.tick(now), now)
        if self.phase is Phase.OVER or now < self._deadline:
            return []
        if now - self._contact >= self.wishes.patience:
            return self._finish(self.unreachable())
        if self.phase is Phase.ASKING and not self._connected:
            # The request leaves as soon as there is a connection. To start over would not make it come about
            # sooner, and never on a line where a handshake takes longer than this.
            self._wait(now, _LOOK)
            return []
        self._tries += self.phase is Phase.ASKING
        return self._ask(now)

    def deadline(self) -> float:
        """When to call :meth:`tick` next."""
        return float(self.reading.deadline()) if self.phase is Phase.READING else self._deadline

    def lost(self, reason: str, now: float) -> list[Effect]:
        """The gateway, or a part of what it sent, was lost: ask again, from where we are."""
        # If it is longer ago, it was we who did not look.
        self._contact = max(self._contact, now - self.silence)
        if self._welcomed is not None:
            self._fruitless += min(now - self._welcomed, self.wishes.patience / 2)
            self._welcomed = None
            self.silence = min(2 * self.silence, max(_SILENCE, self.wishes.patience / 2))
        if self._fruitless > self.wishes.patience:
            return self._finish(self._no_data())
        _log.info("%s: %s; subscribing again", self.endpoint, reason)
        self._tries = 0
        return self._ask(now)

    def leave(self) -> list[Effect]:
        """Nothing more is wanted."""
        effects: list[Effect] = []
        if self.phase is Phase.READING:
            effects = self.reading.goodbye()
        elif self.phase is Phase.ASKING:
            # The request may have opened a session already, for which the source would be held up.
            effects = self.goodbye()
        self.phase = Phase.OVER
        return effects

    def goodbye(self) -> list[Effect]:
        """Leave; a durable subscriber keeps its place."""
        if self._dialect == "plain":
            return [Say(Subscribe(cancel=True))]
        keep = self.wishes.name is not None
        return [Say(Subscribe(cancel=True, x=SubscribeFields(v=VERSION, keep=keep)))]

    # ---------------------------------------------------------------- asking
    def _ask(self, now: float) -> list[Effect]:
        if self._dialect == "auto" and self._tries >= _TRIES and self.subscriptions == 0:
            return self._ask_plainly(now)
        self.phase = Phase.ASKING
        self._connected = False
        self._asked = now
        self._wait(now, _LOOK)
        self._asks += 1
        if self._dialect == "plain":
            return [Connect(), Say(Subscribe())]
        return [Connect(), Say(Subscribe(x=self._extended_wishes()))]

    def _answer_time(self) -> float:
        """Seconds to wait for the answer before asking again, on a new connection."""
        patience = self.wishes.patience
        if self._dialect == "plain":
            return patience
        if self.subscriptions:
            # It is one of ours, and to ask it twice is harmless; but an answer must have time to come.
            first = max(_KNOWN, _TRIPS * self.window.round_trip)
            return min(first * 2.0**self._tries, patience / 2)
        return patience / (_TRIES + 1)

    def _wait(self, now: float, seconds: float) -> None:
        self._deadline = min(now + seconds, self._contact + self.wishes.patience)

    def _ask_plainly(self, now: float) -> list[Effect]:
        if self.wishes.needs_extended is not None:
            return self._finish(self._only_plain())
        self._dialect = "plain"
        return self._ask(now)

    def _extended_wishes(self) -> SubscribeFields:
        wishes = self.wishes
        resumed = self.reading is not None
        start = self.reading.next if resumed else wishes.start
        return SubscribeFields(
            v=VERSION,
            id=wishes.name if wishes.name is not None else UNSET,
            from_=start if start is not None else UNSET,
            # Not the same as what has arrived: if we die, our successor has to get what lies between.
            ack=self.reading.acknowledged if resumed else UNSET,
            to=wishes.stop if wishes.stop is not None else UNSET,
            epoch=self.epoch if self.epoch is not None and isinstance(start, int) else UNSET,
            keep=wishes.keep,
            fmt=wishes.formats,
            lease=max(round(wishes.lease * 1000), 1),
            me=self._me,
            nth=self._asks,
            shelf=wishes.shelves.token if wishes.shelves is not None else UNSET,
            pieces=[self.reading.puzzle.have, self.reading.puzzle.count]
            if resumed and self.reading.puzzle.have
            else [],
        )

    def _only_plain(self) -> AquiferError:
        without = self.wishes.needs_extended or "dialect='extended'"
        return ProtocolViolation(
            f"the gateway at {self.endpoint} speaks the plain dialect only, which has no offsets; "
            f"subscribe without {without}"
        )

    def unreachable(self) -> AquiferError:
        """What to tell when nobody answers any more."""
        patience = f"{self.wishes.patience:g} s"
        if self.subscriptions:
            return GatewayUnreachable(
                f"the gateway at {self.endpoint} was lost for more than {patience}: nothing came from it, "
                "and it could not be reached again; is it still running, and is the line up?"
            )
        if self._connected:
            return GatewayUnreachable(
                f"something listens at {self.endpoint}, but no gateway answers after {patience}; is this the "
                "control endpoint of a gateway, and is the gateway well?"
            )
        return GatewayUnreachable(
            f"no gateway answers at {self.endpoint} after {patience}; is it running there, and do both sides "
            "use keys or neither?"
        )

    def _no_data(self) -> AquiferError:
        return GatewayUnreachable(
            f"the gateway at {self.endpoint} answers, but for more than {self.wishes.patience:g} s nothing "
            "came over its data connection; can its data port be reached from here?"
        )

    # ---------------------------------------------------------------- the handlers of the table
    def _welcome(self, message: OnSubscribe, now: float) -> list[Effect]:
        self.window.measured_round_trip(now - self._asked)
        # On a line that takes seconds there and back, connections take several times as long to come about.
        far = _TRIPS * self.window.round_trip
        self.silence = max(self.silence, min(far, self.wishes.patience / 2))
        answer = extension(message.x)
        if answer is None or answer.topic is UNSET:
            if self._dialect == "extended" or self.wishes.needs_extended is not None:
                return self._finish(self._only_plain())
            return self._welcome_plain(message, now)
        return self._welcome_extended(message, answer, now)

    def _welcome_plain(self, message: OnSubscribe, now: float) -> list[Effect]:
        self._dialect = "plain"
        self._enter(now)
        if self.reading is None:
            self.reading = PlainReader(self)
        self.reading.resumed(demand(message.size), now)
        return [Join(message.port, b"")]

    def _enter(self, now: float) -> None:
        self.subscriptions += 1
        self.phase = Phase.READING
        self._welcomed = now
        self._put_off = None

    def _welcome_extended(self, message: OnSubscribe, answer: OnSubscribeFields, now: float) -> list[Effect]:
        try:
            topic = bytes.fromhex(str(answer.topic))
        except ValueError:
            topic = b""
        if len(topic) != TOPIC_BYTES:
            text = f"x.topic {answer.topic!r} is no hexadecimal number of {2 * TOPIC_BYTES} digits"
            return self._finish(ProtocolViolation(text))
        if answer.next is UNSET:
            return self._finish(ProtocolViolation("OnSubscribe.x has no next offset"))
        self._dialect = "extended"
        self._enter(now)
        if answer.epoch is not UNSET:
            self.epoch = answer.epoch
        if self.reading is None:
            self.reading = ExtendedReader(self, answer.next)
        return [Join(message.port, topic), *self.reading.resumed(answer, now)]

    def _refuse(self, message: OnError, now: float) -> list[Effect]:
        details = extension(message.x)
        if details is None and self._dialect == "auto":
            # It may just not have liked the x: once more, without.
            return self._ask_plainly(now)
        if details is not None and details.code in ("BUSY", "CLOSING", "SESSION"):
            return self.rest(message, details, now)
        if details is not None and self._was_overtaken(details):
            # While we were away: what was agreed on for gaps holds for this one.
            effects: list[Effect] = self.reading.skip_to(details.first, now)
            return effects or self._ask(now)
        return self._finish(error_from(message))

    def _was_overtaken(self, details: OnErrorFields) -> bool:
        if self.wishes.keep or details.code != OffsetGone.code or details.first is UNSET:
            return False
        return isinstance(self.reading, ExtendedReader) and details.first > self.reading.next

    def rest(self, message: OnError, details: OnErrorFields, now: float) -> list[Effect]:
        """Come back later, until our patience is over; and say so, as nothing else is to be seen."""
        if self._put_off is None:
            self._put_off = self._tell_at = now
        if now - self._put_off >= self.wishes.patience:
            text = (
                f"the gateway at {self.endpoint} has not let this subscriber in for "
                f"{self.wishes.patience:g} s; it says: {message.message}"
            )
            return self._finish(GatewayUnreachable(text))
        if now >= self._tell_at:
            # A gateway that is closed, or started again, is an everyday thing; that it has no room is not.
            level = logging.INFO if now == self._put_off and details.code != "BUSY" else logging.WARNING
            self._tell_at = now + _TELL_EVERY
            _log.log(level, "%s says: %s (%s); trying again", self.endpoint, message.message, details.code)
        self.phase = Phase.RESTING
        wait = details.retry if details.retry is not UNSET else 200
        # There is a gateway, so our patience begins when we are to come back; but we come back in time.
        self._contact = self._deadline = now + min(max(wait, 1) / 1000, self.wishes.patience)
        return []

    def _puzzle(self, message: Any, now: float) -> list[Effect]:
        if self.phase is not Phase.ASKING:
            return []
        if self._dialect == "auto":
            return self._ask_plainly(now)
        return self._finish(ProtocolViolation(f"{self.endpoint} answered Subscribe with {message!r}"))

    def _pass_on(self, message: Any, now: float) -> list[Effect]:
        effects: list[Effect] = self.reading.message(message, now)
        return effects

    def _finish(self, error: BaseException | None) -> list[Effect]:
        self.phase = Phase.OVER
        return [Finish(error)]

    def _watch(self, effects: list[Effect], now: float) -> list[Effect]:
        if any(isinstance(effect, Finish) for effect in effects):
            self.phase = Phase.OVER
        return effects
