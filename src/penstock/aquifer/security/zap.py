"""ZAP (RFC 27): libzmq asks inside the process whether a key may connect, and an authenticator answers.

The question comes to an address with a fixed name, so a context has one :class:`Authenticator`. Three things
to know about it:

- If nothing answers there, libzmq by itself lets every CURVE client in. A socket that went through
  :meth:`CurveServer.secure` lets nobody in then.
- Start it before the socket is bound. A client that connects earlier may wait until the handshake times out,
  after 30 seconds (the socket option ``handshake_ivl``); then it tries again by itself.
- A refused client is told so (its socket's monitor has EVENT_HANDSHAKE_FAILED_AUTH), and libzmq does not try
  again: the socket has no peer, and a send would wait forever. To try again, ``disconnect`` and then
  ``connect``; without the first, libzmq believes that the connection exists, and does nothing.

A message from a client carries the client's public key: ``frame.get("User-Id")`` of what
``recv(copy=False)`` returns.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Collection
from typing import Any, Self

import zmq
from zmq.utils import z85

from penstock.aquifer.security.access import USUAL_RIGHTS, Right
from penstock.aquifer.security.curve import CurveServer
from penstock.waker import Waker

__all__ = ["Authenticator"]

_log = logging.getLogger("penstock.aquifer")

_ZAP = "inproc://zeromq.zap.01"
# Anybody who knows a gateway's public key can invent client keys; they must not fill the log.
_MOST_TOLD = 1000
_LOOK = 1.0
"""Seconds between checks of the client lists."""


class Authenticator:
    """Answers libzmq's question, on a thread of its own, whether a client may connect; one for each context.

    It lets in the keys on the access lists of its servers, and unencrypted connections to sockets of other
    servers (libzmq asks about those only if they have a ZAP domain). It refuses everything else.
    """

    def __init__(self, context: zmq.Context[Any], *servers: CurveServer) -> None:
        self.allowed = 0
        """How many handshakes ended well; a client that reconnects counts again."""
        self.refused = 0
        """How many clients were refused for their key; a client that never shows one is not counted."""
        self._context = context
        self._servers = {server.domain: server for server in servers}
        self._looked = 0.0
        self._told: set[str] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._waker: Waker | None = None

    def start(self) -> None:
        """Begin to answer; from here on clients can connect. Does nothing if it is running already."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return
            if self._context.closed:  # pyzmq would make a new context of it
                raise RuntimeError("the context of this authenticator has ended")
            # A shadow: destroy() of the context itself would close this socket under our thread's feet.
            # And what it makes are plain sockets, even if the context is one of asyncio's.
            zap: zmq.Socket[bytes] = zmq.Context.shadow(self._context).socket(zmq.REP)
            try:
                zap.bind(_ZAP)
            except zmq.ZMQError as error:
                zap.close(linger=0)
                if error.errno != zmq.EADDRINUSE:
                    raise
                text = "this context has an authenticator; one serves all: Authenticator(context, a, b)"
                raise RuntimeError(text) from None
            self._waker = Waker()
            self._thread = threading.Thread(
                target=self._run, args=(zap, self._waker), name="penstock-authenticator", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Stop answering: connections stay, new ones are not let in. Does nothing if it is not running."""
        with self._lock:
            thread = self._thread
            if self._waker is not None:
                self._waker.wake()
        if thread is not None:
            thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def allow(self, key: str, server: CurveServer | None = None, rights: Right = USUAL_RIGHTS) -> None:
        """Let a client in from now on; which server is meant has to be said only if there are several."""
        if server is None and len(self._servers) > 1:
            raise ValueError("there are several servers: name the one that the key is for")
        for one in self._those(server):
            one.access.allow(key, rights)
        with self._lock:
            self._told.discard(key)

    def revoke(self, key: str, server: CurveServer | None = None) -> None:
        """Refuse a client from now on, at this server or at all.

        A connection that it has stays as it is. A gateway deals with nothing that comes over it any more.
        """
        for one in self._those(server):
            one.access.revoke(key)

    def _those(self, server: CurveServer | None) -> Collection[CurveServer]:
        if server is None:
            return self._servers.values()
        if server.domain not in self._servers:
            raise ValueError("this server was not given to this authenticator")
        return (server,)

    def _run(self, zap: zmq.Socket[bytes], waker: Waker) -> None:
        poller = zmq.Poller()
        poller.register(zap, zmq.POLLIN)
        poller.register(waker.fileno(), zmq.POLLIN)
        try:
            while waker.fileno() not in (ready := dict(poller.poll(int(_LOOK * 1000)))):
                if zap in ready:
                    zap.send_multipart(self._answer(zap.recv_multipart()))
                self._look_after_lists(time.monotonic())
        except zmq.ContextTerminated:
            pass  # as good as stop()
        finally:
            with contextlib.suppress(zmq.ZMQError):
                zap.unbind(_ZAP)  # close() alone frees the name some time later, and start() may come first
            zap.close(linger=0)
            with self._lock:
                self._waker = None
                waker.close()

    def _look_after_lists(self, now: float) -> None:
        if now - self._looked < _LOOK:
            return
        self._looked = now
        for server in self._servers.values():
            try:
                server.access.refresh()
            except Exception:
                # Whatever happened, the next client must get an answer.
                _log.exception("the list of clients could not be looked at: this is a defect")

    def _answer(self, question: list[bytes]) -> list[bytes]:
        try:
            version, number, domain, address, _, mechanism, *credentials = question
            if version != b"1.0":
                raise ValueError(f"ZAP version {version!r}")
            key = z85.encode(credentials[0]).decode() if mechanism == b"CURVE" else ""
            admitted = self._judge(domain.decode(errors="replace"), key, mechanism.decode(), address.decode())
        except Exception:
            # Whatever happened, the next client must get an answer.
            _log.exception("a question of libzmq about a client could not be answered; the client is refused")
            return [b"1.0", question[1] if len(question) > 1 else b"", b"500", b"Internal error", b"", b""]
        if admitted:
            return [b"1.0", number, b"200", b"OK", key.encode(), b""]
        return [b"1.0", number, b"400", b"Not allowed", b"", b""]

    def _judge(self, domain: str, key: str, mechanism: str, address: str) -> bool:
        server = self._servers.get(domain)
        if mechanism == "NULL" and server is None:
            return True
        with self._lock:
            if key and server is not None and server.access.rights_of(key) is not None:
                self._told.discard(key)
                self.allowed += 1
                return True
            self.refused += 1
            if key in self._told or len(self._told) > _MOST_TOLD:
                return False
            self._told.add(key)
            enough = len(self._told) > _MOST_TOLD
        if enough:
            _log.warning("refused %d different keys; more of them are counted and not told", _MOST_TOLD)
        else:
            why = "it is not allowed" if server is not None else f"no server here has the domain {domain!r}"
            about = {"address": address, "key": key}  # The public one.
            shown = key or f"({mechanism})"
            _log.warning("refused a client at %s with the key %s: %s", address, shown, why, extra=about)
        return False
