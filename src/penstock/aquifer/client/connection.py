"""Asking a gateway, and waiting for its answer for as long as that may still come.

Every question that is asked here may be asked twice. It is asked again at once when its connection was lost,
and otherwise only after a while, on a new connection, and ever more rarely: on a slow line the answer must
have time to come. As long as bytes of the question leave, or bytes of the answer come, it is waited for.
"""

from __future__ import annotations

import time
from typing import Final

import zmq

from penstock.aquifer.client.sockets import BytesMoved, GatewaySockets
from penstock.aquifer.errors import Refused
from penstock.aquifer.protocol.messages import Control, decode
from penstock.aquifer.security import CurveClient
from penstock.endpoint import Endpoint

__all__ = ["Asker"]

_AGAIN: Final = 15.0
"""The most seconds after which a question is asked again for the first time; then after twice as many."""
_PAUSE: Final = 0.1
"""Seconds before a question is asked again whose connection was lost."""
_LOOK: Final = 0.25
"""Seconds between looks at the bytes that have moved."""


class Asker:
    """A control connection for one question at a time; used by one thread at a time."""

    def __init__(self, endpoint: Endpoint, curve: CurveClient | None) -> None:
        self.connected = False
        """Whether the other side was there when it was last asked."""
        self._endpoint = endpoint
        self._sockets = GatewaySockets(endpoint, curve)
        self._fresh = False
        """Whether the connection can be used for the next question."""

    def ask(self, *question: bytes | memoryview, patience: float, held: float = 0.0) -> Control | None:
        """The answer; None if nothing came, and nothing left, for ``patience`` seconds.

        ``held`` is for how many seconds the gateway may keep the answer back.
        """
        give_up = time.monotonic() + held + patience
        again = min(patience / 4, _AGAIN)
        while time.monotonic() < give_up:
            if not self._fresh or zmq.EVENT_DISCONNECTED in self._sockets.control_events():
                self._sockets.connect(keep_data=False)
                self._fresh, self.connected = True, False
            self._sockets.control_messages()  # Answers to what was asked before.
            leaves = self._sockets.control_bytes().sent + sum(map(len, question))
            self._sockets.send(*question)
            answer, give_up = self._await(held + again, give_up, patience, leaves)
            if answer is not None:
                return answer
            self._fresh = False  # A late answer must not be taken for one to the next question.
            again *= 2
        return None

    def close(self) -> None:
        """Let go of the connection."""
        self._sockets.close()

    def _await(
        self, seconds: float, give_up: float, patience: float, leaves: int
    ) -> tuple[Control | None, float]:
        """The answer to the question, if it comes in time; and until when to go on asking.

        The question has left when so many bytes were sent on this connection.
        """
        moved = BytesMoved(0, 0)
        now = time.monotonic()
        until = now + seconds
        while now < min(until, give_up):
            self._sockets.wait(min(until, give_up, now + _LOOK) - now)
            news = self._sockets.control_events()
            if zmq.EVENT_HANDSHAKE_FAILED_AUTH in news:
                raise Refused(
                    f"the gateway at {self._endpoint} does not let this key in; add the public key to its "
                    "list of allowed clients"
                )
            self.connected |= zmq.EVENT_HANDSHAKE_SUCCEEDED in news
            for message in self._sockets.control_messages():
                return decode(message), give_up
            now = time.monotonic()
            if zmq.EVENT_DISCONNECTED in news:
                time.sleep(max(0.0, min(_PAUSE, give_up - now)))
                break
            before, moved = moved, self._sockets.control_bytes()
            if not self.connected or 0 < moved.sent < leaves:
                # It has not left yet, and to start over would not make it leave sooner.
                until = now + seconds
            if self.connected and moved > before:
                give_up = max(give_up, now + patience)
                until = max(until, now + seconds)
        return None, give_up
