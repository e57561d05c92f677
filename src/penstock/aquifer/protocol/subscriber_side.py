"""The subscriber's side until records flow: ask, be welcomed, join; and ask again after a loss.

The machine is told what happens (a message, a frame, time) and returns what to do about it. It first asks in
the extended dialect. A gateway that answers without ``x`` is a plain one. A gateway that answers with
nonsense, or accepts the connection and does not answer, is asked again in the plain dialect. A question is
not repeated while its answer may still come: a gateway may be slow, and the original one does not survive the
second question. From the welcome on, the reader of the dialect takes over: an
:class:`~penstock.aquifer.protocol.extended_reader.ExtendedReader` or a
:class:`~penstock.aquifer.protocol.plain_reader.PlainReader`.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, ClassVar, Final, TypeAlias

from msgspec import UNSET

from penstock.aquifer.errors import AquiferError, ErrorCode, GatewayUnreachable, OffsetGone, ProtocolViolation
from penstock.aquifer.protocol.credit import CreditAhead
from penstock.aquifer.protocol.effects import Connect, Effect, Finish, Join, ReaderMessage, Send
from penstock.aquifer.protocol.extended_reader import ExtendedReader
from penstock.aquifer.protocol.frames import TOPIC_BYTES
from penstock.aquifer.protocol.gateway_errors import (
    another_stream,
    error_from,
    key_refused,
    put_off,
    unreachable,
)
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
from penstock.aquifer.protocol.subscribe_options import RECONNECT, SubscribeOptions

__all__ = ["Phase", "SubscriberSide"]

_log = logging.getLogger("penstock.aquifer")

_TRIES: Final = 3
"""How often to ask in the extended dialect before a silent gateway is taken for a plain one."""
_TELL_EVERY: Final = 10.0
"""Seconds between log lines that say that a gateway does not let us in."""
_LOOK: Final = 1.0
"""Seconds between two looks whether patience is over, while there is no connection."""
_KNOWN: Final = 1.0
"""Seconds after which to ask a gateway again that is known to be ours; then twice as many."""
_TRIPS: Final = 4
"""Round trips that an answer, or a new connection, may take."""
_SILENCE: Final = 4.0
"""Seconds without a sign of life after which the gateway is taken for lost."""


class Phase(Enum):
    """How far a subscriber has come."""

    NEW = auto()
    """Nothing has happened yet."""
    ASKING = auto()
    """A Subscribe is on its way."""
    READING = auto()
    """The gateway has welcomed us: the reader of the dialect decides."""
    RESTING = auto()
    """Waiting before asking again: the gateway said so, or the connection was lost."""
    OVER = auto()


class SubscriberSide:
    """Asks, is welcomed, reads, and asks again when the gateway was lost."""

    def __init__(self, endpoint: str, options: SubscribeOptions) -> None:
        self.endpoint = endpoint
        self.options = options
        self.phase = Phase.NEW
        self.ahead = CreditAhead(options.window, options.max_window, options.window_bytes)
        self.reader: ExtendedReader | PlainReader | None = None
        """The reader of the dialect, from the first welcome on."""
        self.epoch = options.epoch
        self.subscriptions = 0
        """How often a gateway has welcomed this subscriber."""
        self._dialect = options.dialect
        self._me = secrets.token_hex(8)
        """Tells the gateway, when we ask again, which session was ours."""
        self._asks = 0
        self._tries = 0
        self._connected = False
        self._reached = False
        """Whether there was a connection at all, also one whose handshake has failed."""
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
        """Since when the gateway has only told us to come back later."""
        self._tell_at = 0.0
        self._fruitless = 0.0
        """Seconds that were spent in consecutive sessions in which nothing came."""

    @property
    def dialect(self) -> str | None:
        """The dialect that is spoken, once that is known."""
        return None if self.reader is None else self.reader.dialect

    # ---------------------------------------------------------------- what happens
    def start(self, now: float) -> list[Effect]:
        """Begin."""
        self._contact = now
        return self._ask(now)

    def reached(self) -> None:
        """There is a control connection; its handshake may still fail."""
        self._reached = True

    def connected(self, now: float) -> None:
        """The control connection is up: from now on silence means something."""
        if self.phase is Phase.ASKING and not self._connected:
            self._asked = now
            self._wait(now, self._answer_time())
        self._connected = True

    def disconnected(self, now: float) -> list[Effect]:
        """The control connection is gone, and with it every question without an answer."""
        if self.phase is Phase.ASKING and self._connected:
            self._tries += 1
            self._enter(Phase.RESTING)
            self._wait(now, RECONNECT.pause(self._tries + 1))
        elif self.phase is Phase.READING and isinstance(self.reader, PlainReader):
            self.reader.disconnected(now)
        elif self.phase is Phase.READING and isinstance(self.reader, ExtendedReader):
            return self.reader.disconnected(now)
        return []

    def turned_away(self) -> list[Effect]:
        """The gateway has a list of keys, and this subscriber's is not on it."""
        return self._finish(key_refused(self.endpoint))

    def joined(self, now: float) -> list[Effect]:
        """The data connection is up."""
        if self.phase is Phase.READING and isinstance(self.reader, PlainReader):
            return self.reader.joined(now)
        return []

    def bytes_came(self, now: float) -> None:
        """Bytes of an incomplete message came over the data connection: it is alive."""
        if self.phase is Phase.READING and self.reader is not None:
            self.reader.bytes_came(now)
            self.flowing(now)

    def flowing(self, now: float) -> None:
        """Something came over the data connection."""
        self._contact = now
        self._welcomed = None
        self._fruitless = 0.0

    def control(self, data: bytes, now: float) -> list[Effect]:
        """A control message arrived."""
        try:
            message = decode(data)
        except ProtocolViolation as violation:
            return self._puzzle(violation, now)
        self._contact = now
        handler = self.table[self.phase].get(type(message))
        return [] if handler is None else self._watch(handler(self, message, now))

    def tick(self, now: float) -> list[Effect]:
        """Time has passed, or the subscriber has taken records."""
        if self.phase is Phase.READING and self.reader is not None:
            return self._watch(self.reader.tick(now))
        if self.phase is Phase.OVER or now < self._deadline:
            return []
        if now - self._contact >= self.options.patience:
            return self._finish(self.unreachable())
        if self.phase is Phase.ASKING and not self._connected:
            # The request leaves as soon as there is a connection. Starting over would not make that happen
            # sooner, and would prevent it on a line where a handshake takes longer than this.
            self._wait(now, _LOOK)
            return []
        self._tries += self.phase is Phase.ASKING
        return self._ask(now)

    def deadline(self) -> float:
        """When to call :meth:`tick` next."""
        if self.phase is Phase.READING and self.reader is not None:
            return self.reader.deadline()
        return self._deadline if self.phase is not Phase.OVER else float("inf")

    def lost(self, reason: str, now: float) -> list[Effect]:
        """The gateway, or a part of what it sent, was lost: ask again, from where we are."""
        # If the last contact is longer ago than this, this side did not look.
        self._contact = max(self._contact, now - self.silence)
        if self._welcomed is not None:
            self._fruitless += min(now - self._welcomed, self.options.patience / 2)
            self._welcomed = None
            self.silence = min(2 * self.silence, max(_SILENCE, self.options.patience / 2))
        if self._fruitless > self.options.patience:
            return self._finish(self._no_data())
        about = {"endpoint": str(self.endpoint), "reason": reason}
        _log.info("%s: %s; subscribing again", self.endpoint, reason, extra=about)
        self._tries = 0
        return self._ask(now)

    def leave(self) -> list[Effect]:
        """Nothing more is wanted."""
        effects: list[Effect] = []
        if self.phase is Phase.READING and self.reader is not None:
            effects = self.reader.goodbye()
        elif self.phase is Phase.ASKING:
            # The request may have opened a session already, for which the source would be held up. What was
            # acknowledged since the request was made has not been told.
            resumed = self.reader if isinstance(self.reader, ExtendedReader) else None
            effects = self.goodbye() if resumed is None else resumed.goodbye()
        self._enter(Phase.OVER)
        return effects

    def goodbye(self) -> list[Effect]:
        """Leave the gateway; a durable subscriber keeps its cursor."""
        if self._dialect == "plain":
            return [Send(Subscribe(cancel=True))]
        keep = self.options.name is not None
        return [Send(Subscribe(cancel=True, x=SubscribeFields(v=VERSION, keep=keep)))]

    def _enter(self, phase: Phase) -> None:
        """Change the phase; the only place where that happens."""
        if phase not in self.moves[self.phase]:
            raise AssertionError(f"a subscriber cannot go from {self.phase.name} to {phase.name}")
        self.phase = phase

    # ---------------------------------------------------------------- asking
    def _ask(self, now: float) -> list[Effect]:
        if self._dialect == "auto" and self._tries >= _TRIES and self.subscriptions == 0:
            return self._ask_plainly(now)
        self._enter(Phase.ASKING)
        self._connected = False
        self._asked = now
        self._wait(now, _LOOK)
        self._asks += 1
        if self._dialect == "plain":
            return [Connect(), Send(Subscribe())]
        return [Connect(), Send(Subscribe(x=self._extension()))]

    def _answer_time(self) -> float:
        """Seconds to wait for the answer before asking again, on a new connection."""
        patience = self.options.patience
        if self._dialect == "plain":
            return patience
        if self.subscriptions:
            # It is one of ours, and asking it twice is harmless; but an answer must have time to arrive.
            first = max(_KNOWN, _TRIPS * self.ahead.round_trip)
            return min(first * 2.0**self._tries, patience / 2)
        return patience / (_TRIES + 1)

    def _wait(self, now: float, seconds: float) -> None:
        self._deadline = min(now + seconds, self._contact + self.options.patience)

    def _ask_plainly(self, now: float) -> list[Effect]:
        if self.options.needs_extended is not None:
            return self._finish(self._only_plain())
        self._dialect = "plain"
        return self._ask(now)

    def _extension(self) -> SubscribeFields:
        """What stands in ``Subscribe.x``."""
        options = self.options
        resumed = self.reader if isinstance(self.reader, ExtendedReader) else None
        start = resumed.next if resumed is not None else options.start
        stop = resumed.next if resumed is not None and resumed.complete else options.stop
        fields = SubscribeFields(
            v=VERSION,
            id=options.name if options.name is not None else UNSET,
            from_=start if start is not None else UNSET,
            to=stop if stop is not None else UNSET,
            epoch=self.epoch if self.epoch is not None and isinstance(start, int) else UNSET,
            keep=options.keep,
            fmt=options.formats,
            lease=max(round(options.lease * 1000), 1),
            me=self._me,
            nth=self._asks,
            shelf=options.segments.token if options.segments is not None else UNSET,
            pieces=[],
            stream=options.stream or UNSET,
            keys=options.keys if options.keys is not None else UNSET,
            compress=options.compressions or UNSET,
            group=options.group if options.group is not None else UNSET,
        )
        if resumed is not None:
            # Not the same as what has arrived: if we die, our successor has to get what lies between.
            fields.ack = resumed.acknowledged
            if resumed.assembly.have:
                fields.pieces = [resumed.assembly.have, resumed.assembly.count]
                if resumed.assembly.compressed:
                    fields.pieces.append(1)
        return fields

    def _only_plain(self) -> AquiferError:
        without = self.options.needs_extended or "dialect='extended'"
        return ProtocolViolation(
            f"the gateway at {self.endpoint} speaks the plain dialect only, which has no offsets; "
            f"subscribe without {without}"
        )

    def _changed_dialect(self) -> AquiferError:
        return ProtocolViolation(f"the gateway at {self.endpoint} has changed its dialect; subscribe again")

    def unreachable(self) -> AquiferError:
        """The error when nobody answers any more."""
        if self.subscriptions:
            return GatewayUnreachable(
                f"the gateway at {self.endpoint} was lost for more than {self.options.patience:g} s: nothing "
                "came from it, and it could not be reached again; is it still running, and is the line up?"
            )
        return unreachable(
            self.endpoint,
            self.options.patience,
            connected=self._connected,
            reached=self._reached,
            encrypted=self.options.encrypted,
        )

    def _no_data(self) -> AquiferError:
        return GatewayUnreachable(
            f"the gateway at {self.endpoint} answers, but for more than {self.options.patience:g} s nothing "
            "came over its data connection; can its data port be reached from here?"
        )

    # ---------------------------------------------------------------- the handlers of the table
    def _welcome(self, message: OnSubscribe, now: float) -> list[Effect]:
        self.ahead.measured_round_trip(now - self._asked)
        # On a line with a round trip of seconds, a connection takes several times as long to come about.
        far = _TRIPS * self.ahead.round_trip
        self.silence = max(self.silence, min(far, self.options.patience / 2))
        answer = extension(message.x)
        if answer is None or answer.topic is UNSET:
            if self._dialect == "extended" or self.options.needs_extended is not None:
                return self._finish(self._only_plain())
            return self._welcome_plain(message, now)
        return self._welcome_extended(message, answer, now)

    def _welcome_plain(self, message: OnSubscribe, now: float) -> list[Effect]:
        self._dialect = "plain"
        self._begin_reading(now)
        if self.reader is None:
            self.reader = PlainReader(self)
        if not isinstance(self.reader, PlainReader):
            return self._finish(self._changed_dialect())
        self.reader.resumed(demand(message.size), now)
        return [Join(message.port, b"")]

    def _begin_reading(self, now: float) -> None:
        self.subscriptions += 1
        self._enter(Phase.READING)
        self._welcomed = now
        self._put_off = None

    def _welcome_extended(self, message: OnSubscribe, answer: OnSubscribeFields, now: float) -> list[Effect]:
        try:
            topic = bytes.fromhex(str(answer.topic))
        except ValueError:
            topic = b""
        if len(topic) != TOPIC_BYTES:
            text = f"x.topic {answer.topic!r} is not a hexadecimal number of {2 * TOPIC_BYTES} digits"
            return self._finish(ProtocolViolation(text))
        if (other := another_stream(self.endpoint, self.options.stream, answer.stream)) is not None:
            return [*self.goodbye(), *self._finish(other)]
        if answer.next is UNSET:
            return self._finish(ProtocolViolation("OnSubscribe.x has no next offset"))
        self._dialect = "extended"
        self._begin_reading(now)
        if answer.epoch is not UNSET:
            self.epoch = answer.epoch
        if self.reader is None:
            self.reader = ExtendedReader(self, answer.next)
        if not isinstance(self.reader, ExtendedReader):
            return self._finish(self._changed_dialect())
        return [Join(message.port, topic), *self.reader.resumed(answer, now)]

    def _refuse(self, message: OnError, now: float) -> list[Effect]:
        details = extension(message.x)
        if details is None and self._dialect == "auto":
            # It may just not have liked the x: once more, without.
            return self._ask_plainly(now)
        if details is not None and details.code in (ErrorCode.BUSY, ErrorCode.CLOSING, ErrorCode.SESSION):
            return self.rest(message, details, now)
        reader = self.reader
        if details is not None and isinstance(reader, ExtendedReader) and self._was_overtaken(details):
            # While we were away: what was agreed on for gaps holds for this one.
            assert details.first is not UNSET
            if details.first > reader.next:
                return reader.skip_to(details.first, now) or self._ask(now)
        return self._finish(error_from(message))

    def _was_overtaken(self, details: OnErrorFields) -> bool:
        return not self.options.keep and details.code == OffsetGone.code and details.first is not UNSET

    def rest(self, message: OnError, details: OnErrorFields, now: float) -> list[Effect]:
        """Come back later, until our patience is over; and log that, as nothing else shows it."""
        if self._put_off is None:
            self._put_off = self._tell_at = now
        if now - self._put_off >= self.options.patience:
            return self._finish(put_off(self.endpoint, self.options.patience, message))
        if now >= self._tell_at:
            # It is normal that a gateway is closed or restarted, but not that it is too busy.
            level = (
                logging.INFO if now == self._put_off and details.code != ErrorCode.BUSY else logging.WARNING
            )
            self._tell_at = now + _TELL_EVERY
            _log.log(level, "%s says: %s (%s); trying again", self.endpoint, message.message, details.code)
        self._enter(Phase.RESTING)
        wait = details.retry if details.retry is not UNSET else 200
        # There is a gateway, so our patience begins when we are to come back; but we come back in time.
        self._contact = self._deadline = now + min(max(wait, 1) / 1000, self.options.patience)
        return []

    def _puzzle(self, message: object, now: float) -> list[Effect]:
        """What came makes no sense as an answer to Subscribe."""
        if self.phase is not Phase.ASKING:
            return []
        if self._dialect == "auto":
            return self._ask_plainly(now)
        return self._finish(ProtocolViolation(f"{self.endpoint} answered Subscribe with {message!r}"))

    def _echoed(self, message: Subscribe, now: float) -> list[Effect]:
        # A gateway does not send a request, so there is none here to wait for.
        return self._finish(
            ProtocolViolation(
                f"what listens at {self.endpoint} sends back what it receives and is not a gateway; check "
                "the host and the port"
            )
        )

    def _pass_on(self, message: ReaderMessage, now: float) -> list[Effect]:
        return [] if self.reader is None else self.reader.message(message, now)

    @property
    def _is_complete(self) -> bool:
        """Whether a subscriber has everything; the members of a group see to it themselves."""
        reader = self.reader
        return isinstance(reader, ExtendedReader) and reader.complete and self.options.group is None

    def _finish(self, error: BaseException | None) -> list[Effect]:
        return self._watch([Finish(error)])

    def _watch(self, effects: list[Effect]) -> list[Effect]:
        finish = next((effect for effect in effects if isinstance(effect, Finish)), None)
        if finish is None:
            return effects
        self._enter(Phase.OVER)
        if not self._is_complete:
            return effects
        # The stream has ended as it should. Only the last acknowledgements could not be told.
        about = {"endpoint": str(self.endpoint), "reason": str(finish.error)}
        text = "%s was not told the last acknowledgements of %s, which get some records again: %s"
        _log.warning(text, self.endpoint, self.options.name, finish.error, extra=about)
        return [effect for effect in effects if effect is not finish]

    moves: ClassVar[Mapping[Phase, frozenset[Phase]]] = {
        Phase.NEW: frozenset({Phase.ASKING, Phase.OVER}),
        Phase.ASKING: frozenset(set(Phase) - {Phase.NEW}),
        Phase.READING: frozenset({Phase.ASKING, Phase.RESTING, Phase.OVER}),
        Phase.RESTING: frozenset({Phase.ASKING, Phase.OVER}),
        Phase.OVER: frozenset({Phase.OVER}),
    }
    """Where each phase can lead."""
    table: ClassVar[Table] = {
        Phase.NEW: {},
        Phase.ASKING: {
            OnSubscribe: _welcome,
            OnError: _refuse,
            OnNext: _puzzle,
            OnComplete: _puzzle,
            Subscribe: _echoed,
        },
        Phase.READING: {OnError: _pass_on, OnNext: _pass_on, OnComplete: _pass_on},
        Phase.RESTING: {},
        Phase.OVER: {},
    }
    """What to do with a message of the gateway; any other message is ignored."""


Handler: TypeAlias = Callable[[SubscriberSide, Any, float], list[Effect]]
Table: TypeAlias = Mapping[Phase, Mapping[type, Handler]]
