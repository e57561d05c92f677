"""A connection for questions: ask the gateway, and wait for the answer for as long as it may still come.

Everything that is asked here may be asked twice without harm, so a question is repeated until it is answered.
If its connection was lost, it is repeated after a short pause. Otherwise it is repeated after a while, on a
new connection, and ever more rarely: on a slow line the answer must have time to arrive. While bytes of the
question leave, or bytes of the answer arrive, nobody gives up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from types import TracebackType
from typing import Final, Self

import zmq
from msgspec import UNSET

from penstock.aquifer.client.sockets import BytesMoved, GatewaySockets
from penstock.aquifer.errors import ErrorCode
from penstock.aquifer.protocol.gateway_errors import (
    another_stream,
    error_from,
    key_refused,
    put_off,
    unreachable,
)
from penstock.aquifer.protocol.messages import (
    Control,
    OnError,
    decode,
    encode,
    extension,
)
from penstock.aquifer.protocol.stream_names import about_stream, served_stream
from penstock.aquifer.protocol.subscribe_options import RECONNECT
from penstock.aquifer.security import CurveClient
from penstock.backoff import Backoff
from penstock.endpoint import Endpoint

__all__ = ["GatewayConnection", "gateway_endpoint"]

_REPEAT: Final = 15.0
"""The most seconds after which a question is repeated for the first time; the next pauses double."""
_LOOK: Final = 0.25
"""Seconds between two looks at the bytes that have moved."""
_RETRY: Final = 200
"""Milliseconds to wait if a busy gateway does not say for how long."""
_LONGEST_RETRY: Final = 10_000


def gateway_endpoint(endpoint: str, caller: str) -> Endpoint:
    """Parse the endpoint of one gateway; ``caller`` is named in the error."""
    parsed = Endpoint.parse(endpoint)
    if not parsed.is_one_place:
        raise ValueError(f"{caller}({endpoint!r}): name the host and port of one gateway")
    return parsed


class GatewayConnection:
    """Asks one question at a time; used by one thread at a time. It connects with the first question."""

    def __init__(
        self,
        endpoint: Endpoint,
        curve: CurveClient | None,
        *,
        patience: float,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._context = context
        """Shared with other connections; None for a context of its own."""
        self.connected = False
        """Whether something listened at the endpoint when it was last asked."""
        self._reached = False
        """Whether there was a connection at all, also one whose handshake has failed."""
        self._patience = patience
        self._curve = curve
        self._sockets: GatewaySockets | None = None
        self._reusable = False
        """Whether the next question may use the connection that is there."""
        self._numbers = count(1)
        self._number = b""
        """The number of the present question: an answer with another one belongs to an earlier question."""

    def ask(
        self,
        message: Control,
        *attached: bytes | memoryview,
        patience: float | None = None,
        held: float = 0.0,
        repeat: bool = True,
        advice: str = "",
        while_waiting: Callable[[], object] | None = None,
    ) -> Control:
        """Return the gateway's answer.

        ``held`` is how many seconds the gateway may keep the answer back. With ``repeat=False`` the question
        is repeated only if its connection was lost. A gateway that is busy, or about to close, is asked again
        when it said so. ``advice`` is for the error if the gateway is there and does not answer.
        ``while_waiting`` is called several times a second until the answer is there; it may raise.

        Raises :class:`~penstock.aquifer.GatewayUnreachable` if nothing moved for ``patience`` seconds,
        :class:`~penstock.aquifer.Refused` if the key is not let in, and the error that the gateway answered
        with, if it did.
        """
        patience = self._patience if patience is None else patience
        stream = self.endpoint.stream
        question = (encode(about_stream(message, stream) if stream else message), *attached)
        repeats = Backoff(min(patience / 4, _REPEAT) if repeat else patience, longest=float("inf"), jitter=0)
        give_up = time.monotonic() + held + patience
        refusal: OnError | None = None
        attempt = losses = 0
        look = while_waiting or _wait_on
        while time.monotonic() < give_up:
            attempt += 1
            leaves = self._send(question, repeat)
            seconds = held + repeats.pause(attempt)
            answer, lost, give_up = self._await(seconds, give_up, patience, leaves, look)
            if answer is None:
                losses += lost
                if lost:
                    _sleep(RECONNECT.pause(losses), give_up, look)
                continue
            self._reusable = True
            pause = _pause_before_retry(answer)
            if pause is None:
                if isinstance(answer, OnError):
                    raise error_from(answer)
                if (
                    other := another_stream(self.endpoint.address, stream, served_stream(answer))
                ) is not None:
                    raise other
                return answer
            assert isinstance(answer, OnError)
            refusal, attempt = answer, 0
            _sleep(pause, give_up, look)
        if refusal is not None:
            raise put_off(self.endpoint, patience, refusal)
        raise unreachable(
            self.endpoint,
            patience,
            connected=self.connected,
            reached=self._reached,
            encrypted=self._curve is not None,
            advice=advice,
        )

    def tell(self, message: Control) -> None:
        """Send a message that is not answered, over the connection of the last question."""
        if self._sockets is not None:
            self._sockets.send(encode(message))

    def close(self) -> None:
        """Close the connection; a later question opens a new one."""
        if self._sockets is not None:
            self._sockets.close()
        self._sockets, self._reusable = None, False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, question: tuple[bytes | memoryview, ...], repeat: bool) -> int:
        """Send the question; return how many bytes this connection will have sent when it has left."""
        if self._sockets is not None and self._sockets.is_of_parent:
            raise RuntimeError(
                f"this connection to {self.endpoint} was opened before a fork, and belongs to the parent "
                "process: make a new Producer, LogReader or Administrator in this one"
            )
        if self._sockets is None:
            self._sockets = GatewaySockets(self.endpoint, self._curve, context=self._context)
        sockets = self._sockets
        if not self._reusable or zmq.EVENT_DISCONNECTED in sockets.control_events():
            sockets.connect()
            self.connected = self._reached = False
        # Until it is answered: a late answer must not be taken for one to the next question.
        self._reusable = False
        sockets.control_messages()  # Answers to earlier questions.
        self._number = next(self._numbers).to_bytes(8, "big")
        leaves = sockets.control_bytes().sent + sum(map(len, question))
        # A plain gateway, which is not asked twice, may not know what to do with a number.
        sockets.send(*question, number=self._number if repeat else None)
        return leaves

    def _await(
        self, seconds: float, give_up: float, patience: float, leaves: int, look: Callable[[], object]
    ) -> tuple[Control | None, bool, float]:
        """Wait for the answer: return it, whether the connection was lost, and when to give up now.

        The question has left when this connection has sent ``leaves`` bytes.
        """
        sockets = self._sockets
        assert sockets is not None
        moved = BytesMoved(0, 0)
        now = time.monotonic()
        until = now + seconds
        while now < min(until, give_up):
            sockets.wait(min(until, give_up, now + _LOOK) - now)
            events = sockets.control_events()
            if zmq.EVENT_HANDSHAKE_FAILED_AUTH in events:
                raise key_refused(self.endpoint)
            self._reached |= zmq.EVENT_CONNECTED in events
            self.connected |= zmq.EVENT_HANDSHAKE_SUCCEEDED in events
            for number, message in sockets.answers():
                if number in (self._number, b""):  # Or one of a peer that drops the number.
                    return decode(message), False, give_up
            look()
            now = time.monotonic()
            if zmq.EVENT_DISCONNECTED in events:
                return None, True, give_up
            before, moved = moved, sockets.control_bytes()
            if not self.connected or 0 < moved.sent < leaves:
                # The question has not left yet, and starting over would not make it leave sooner.
                until = now + seconds
            if self.connected and moved > before:
                give_up = max(give_up, now + patience)
                until = max(until, now + seconds)
        return None, False, give_up


def _pause_before_retry(answer: Control) -> float | None:
    """Seconds, if the gateway only asks to come back later."""
    details = extension(answer.x) if isinstance(answer, OnError) else None
    if details is None or details.code not in (ErrorCode.BUSY, ErrorCode.CLOSING):
        return None
    retry = details.retry if details.retry is not UNSET else _RETRY
    return min(max(retry, 1), _LONGEST_RETRY) / 1000


def _sleep(seconds: float, give_up: float, look: Callable[[], object]) -> None:
    until = min(time.monotonic() + seconds, give_up)
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _LOOK))
        look()


def _wait_on() -> None:
    """What is done while an answer is waited for, unless the caller has something to do."""
