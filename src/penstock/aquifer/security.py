"""Who may talk to a gateway: CURVE keys, the list of those who are let in, and where to listen without.

CURVE encrypts a connection and proves to each side which key the other one holds. A gateway has a pair of
keys and knows the public keys of its clients; a client has a pair of its own and knows the public key of the
gateway::

    server = CurveServer.load("gateway", "clients/")      # gateway.key, and clients/alice.pub, ...
    with Authenticator(context, server):
        server.secure(socket)
        socket.bind("tcp://*:5556")

    client = CurveClient(load_keys("alice"), load_public("gateway.pub"))
    client.secure(socket)
    socket.connect("tcp://gateway.example:5556")

libzmq asks inside the process, at an address with a fixed name, whether a key may come in (the protocol is
called ZAP, RFC 27), so a context has one :class:`Authenticator`. Three things to know about it:

- When nobody answers there, libzmq by itself lets every CURVE client in. A socket that went through
  :meth:`CurveServer.secure` lets nobody in then.
- Start it before the socket is bound. Who connects before that may be left waiting until the handshake times
  out, after 30 seconds (the socket option ``handshake_ivl``); then the client tries again by itself.
- A refused client is told so (its socket's monitor has EVENT_HANDSHAKE_FAILED_AUTH), and libzmq does not try
  again: the socket has no peer, and to send would wait for ever. To try again, ``disconnect`` and then
  ``connect``; without the first, libzmq takes the connection for one that it has, and does nothing.

A message that came from a client carries the client's public key: ``frame.get("User-Id")`` of what
``recv(copy=False)`` returns.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
import socket as sockets
import struct
import threading
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias

import zmq
from zmq.utils import z85

from penstock.aquifer.endpoints import Endpoint

__all__ = [
    "Authenticator",
    "CurveClient",
    "CurveKeys",
    "CurveServer",
    "check_bind",
    "generate_keys",
    "load_keys",
    "load_public",
    "save_keys",
]

_log = logging.getLogger("penstock.aquifer")

_PathLike: TypeAlias = str | os.PathLike[str]
_HOW = "make a pair of keys with: penstock gateway --keygen PATH"
_LINE = re.compile(r'(public|secret)\s*=\s*"([^"]*)"')
_PUBLIC_NOTE = "# The public half of a CURVE key pair for Penstock; for everybody to see.\n"
_SECRET_NOTE = "# A CURVE key pair for Penstock. Whoever can read this file can pass for its owner.\n"
_ZAP = "inproc://zeromq.zap.01"
# Anybody who knows a gateway's public key can make up keys of his own; the log is not his to fill.
_MOST_TOLD = 1000
_numbers = itertools.count(1)


class CurveKeys(NamedTuple):
    """A pair of CURVE keys, each in the 40 characters of Z85."""

    public: str
    secret: str

    def __repr__(self) -> str:
        # A pair gets into logs and tracebacks; its secret must not.
        return f"CurveKeys(public={self.public!r}, secret=...)"


def generate_keys() -> CurveKeys:
    """A new pair of keys."""
    public, secret = zmq.curve_keypair()
    return CurveKeys(public.decode(), secret.decode())


def save_keys(keys: CurveKeys, path: _PathLike, *, overwrite: bool = False) -> None:
    """Write ``PATH.pub``, for everybody, and ``PATH.key``, which nobody but its owner can read.

    Raises FileExistsError when one of them is there already, unless ``overwrite`` is set.
    """
    _check_pair(keys, "the pair to save")
    stem = re.sub(r"\.(pub|key)\Z", "", os.fspath(path))
    if not overwrite:
        for file in (f"{stem}.key", f"{stem}.pub"):
            if os.path.lexists(file):
                raise FileExistsError(f"{file} is there already, and a lost secret key cannot be made again")
    public = f'public = "{keys.public}"\n'
    _write(f"{stem}.key", f'{_SECRET_NOTE}{public}secret = "{keys.secret}"\n', 0o600, overwrite)
    _write(f"{stem}.pub", _PUBLIC_NOTE + public, 0o644, overwrite)
    os.chmod(f"{stem}.pub", 0o644)  # whatever the umask took away


def _write(file: str, text: str, mode: int, overwrite: bool) -> None:
    # The mode counts only when a file is made. An old file, which may be open to others, is replaced as a
    # whole by a new one, and O_EXCL sees to it that this one is new, too.
    made = f"{file}.new" if overwrite else file
    if overwrite:
        Path(made).unlink(missing_ok=True)
    with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="ascii") as stream:
        stream.write(text)
    if overwrite:
        os.replace(made, file)


def load_keys(path: _PathLike) -> CurveKeys:
    """Read the pair in ``PATH.key``; the path may be given with or without its end."""
    file = next(filter(os.path.isfile, (f"{os.fspath(path)}.key", os.fspath(path))), None)
    if file is None:
        raise FileNotFoundError(f"there is no key file {os.fspath(path)}; {_HOW}")
    found = _read(file)
    for name in ("public", "secret"):
        if name not in found:
            raise ValueError(f"{file} has no {name} key; the file that ends with .key has both, or {_HOW}")
    return _check_pair(CurveKeys(found["public"], found["secret"]), file)


def load_public(path_or_key: _PathLike) -> str:
    """Read the public key from ``PATH.pub`` or ``PATH.key``; the 40 characters of a key stand for itself."""
    text = os.fspath(path_or_key)
    # Files first: every character of a path may occur in a key, but a key is hardly ever the name of a file.
    file = next(filter(os.path.isfile, (text, f"{text}.pub")), None)
    if file is not None:
        found = _read(file)
        if "public" not in found:
            raise ValueError(f"{file} has no public key; {_HOW}")
        return _check_key(found["public"], f"the public key in {file}")
    if isinstance(path_or_key, os.PathLike) or text.endswith((".pub", ".key")):
        raise FileNotFoundError(f"there is no key file {text}; {_HOW}")
    return _check_key(text, f"{text!r} is no file, and as a key it is wrong: it")


def _read(file: str) -> dict[str, str]:
    with open(file, encoding="utf-8", errors="replace") as stream:
        mode = os.fstat(stream.fileno()).st_mode & 0o777
        lines = [line.strip() for line in stream]
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if line and not line.startswith("#"):
            match = _LINE.fullmatch(line)
            if match is None or match[1] in found:
                # The line itself stays out of the text: it may be a secret key.
                raise ValueError(
                    f'{file}, line {number}: this is no key file. The lines of one are public = "..." and, '
                    f'if it is a pair, secret = "..."; {_HOW}'
                )
            found[match[1]] = match[2]
    if "secret" in found and mode & 0o077 and os.name == "posix":
        _log.warning("other users can get at the secret key in %s (mode %o): chmod 600 %s", file, mode, file)
    return found


def _check_key(key: str, what: str) -> str:
    if len(key) != 40:
        raise ValueError(f"{what} has {len(key)} characters, and a CURVE key has 40; {_HOW}")
    try:
        z85.decode(key)
    except (KeyError, ValueError, struct.error):
        raise ValueError(f"{what} has characters that do not make a CURVE key (Z85); {_HOW}") from None
    return key


def _check_pair(keys: CurveKeys, where: str) -> CurveKeys:
    _check_key(keys.public, f"the public key of {where}")
    _check_key(keys.secret, f"the secret key of {where}")
    if zmq.curve_public(keys.secret.encode()).decode() != keys.public:
        raise ValueError(f"the public and the secret key of {where} do not belong together; {_HOW}")
    return keys


class CurveServer:
    """The gateway's side: its keys, and the public keys of the clients that it lets in.

    ``allowed=None`` lets in every client that knows the gateway's public key.
    """

    def __init__(self, keys: CurveKeys, allowed: Collection[str] | None) -> None:
        self.keys = _check_pair(keys, "the server")
        self.allowed = None if allowed is None else frozenset(_check_key(key, repr(key)) for key in allowed)
        self.domain = f"penstock-{next(_numbers)}"
        """What libzmq calls this server when it asks the authenticator about a client."""

    @classmethod
    def load(cls, key_path: _PathLike, allowed_path: _PathLike | None) -> CurveServer:
        """Read the keys, and the list of clients: a directory of ``*.pub`` files, or a file of keys.

        Such a file has one key to a line; after a space there may be a note, such as whose key it is. Lines
        that start with ``#`` are comments. None as the list lets in everybody who knows the server's key.
        """
        keys = load_keys(key_path)
        if allowed_path is None:
            return cls(keys, None)
        place = Path(allowed_path)
        allowed = set(map(load_public, place.glob("*.pub")) if place.is_dir() else _listed(place))
        if not allowed:
            _log.warning("no client can connect: there is no key in %s", place)
        return cls(keys, allowed)

    def secure(self, socket: zmq.Socket[Any]) -> None:
        """Make a socket, not yet bound, speak CURVE and ask the authenticator about every client."""
        _check_unused(socket)
        socket.set(zmq.CURVE_SECRETKEY, self.keys.secret.encode())
        socket.set(zmq.ZAP_DOMAIN, self.domain.encode())
        # Without this, libzmq lets everybody in as long as there is no authenticator.
        socket.set(zmq.ZAP_ENFORCE_DOMAIN, 1)
        socket.set(zmq.CURVE_SERVER, 1)


def _listed(file: Path) -> Iterable[str]:
    for number, line in enumerate(file.read_text("utf-8", errors="replace").splitlines(), start=1):
        word = next(iter(line.split()), "#")
        if not word.startswith("#"):  # no key does: four bytes never make such a group in Z85
            yield _check_key(word, f"{file}, line {number}: {word!r}")


class CurveClient(NamedTuple):
    """The client's side: its own keys, and the public key of the gateway."""

    keys: CurveKeys
    server: str

    def secure(self, socket: zmq.Socket[Any]) -> None:
        """Make a socket, not yet connected, speak CURVE to this gateway and to no other."""
        _check_pair(self.keys, "the client")
        _check_key(self.server, f"the server's key {self.server!r}")
        _check_unused(socket)
        socket.set(zmq.CURVE_PUBLICKEY, self.keys.public.encode())
        socket.set(zmq.CURVE_SECRETKEY, self.keys.secret.encode())
        socket.set(zmq.CURVE_SERVERKEY, self.server.encode())


def _check_unused(socket: zmq.Socket[Any]) -> None:
    if socket.get(zmq.LAST_ENDPOINT):
        raise RuntimeError("secure() comes before bind() and connect(): what is open already stays in clear")


class Authenticator:
    """Answers libzmq's question, on a thread of its own, whether a client may connect; one for each context.

    It lets in the allowed keys of its servers, and connections without encryption to sockets that are none
    of its servers' (libzmq asks about those only if they have a ZAP domain). All else is refused.
    """

    def __init__(self, context: zmq.Context[Any], *servers: CurveServer) -> None:
        self.allowed = 0
        """How many handshakes ended well; a client that reconnects counts again."""
        self.refused = 0
        """How many were refused for their key. Who does not get as far as to show one is not counted."""
        self._context = context
        self._domains = {server.domain for server in servers}
        self._open = {server.domain for server in servers if server.allowed is None}
        self._admitted = {(server.domain, key) for server in servers for key in server.allowed or ()}
        self._revoked: set[tuple[str, str]] = set()
        self._told: set[str] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._waker: sockets.socket | None = None

    def start(self) -> None:
        """Begin to answer; from here on clients can connect. Does nothing if it is running already."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return
            if self._context.closed:  # of which pyzmq would make a shadow that is a context of its own
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
            self._waker, woken = sockets.socketpair()
            self._thread = threading.Thread(
                target=self._run, args=(zap, self._waker, woken), name="penstock-authenticator", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Stop answering: connections stay, new ones are not let in. Does nothing if it is not running."""
        with self._lock:
            thread = self._thread
            if self._waker is not None:
                self._waker.send(b"\0")
        if thread is not None:
            thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def allow(self, key: str, server: CurveServer | None = None) -> None:
        """Let a client in from now on; which server is meant has to be said only if there are several."""
        if server is None and len(self._domains) > 1:
            raise ValueError("there are several servers: name the one that the key is for")
        pairs = self._pairs(key, server)
        with self._lock:
            self._admitted |= pairs
            self._revoked -= pairs
            self._told.discard(key)

    def revoke(self, key: str, server: CurveServer | None = None) -> None:
        """Refuse a client from now on, at this server or at all; a connection that it has stays as it is."""
        pairs = self._pairs(key, server)
        with self._lock:
            self._revoked |= pairs

    def _pairs(self, key: str, server: CurveServer | None) -> set[tuple[str, str]]:
        if server is not None and server.domain not in self._domains:
            raise ValueError("this server was not given to this authenticator")
        _check_key(key, repr(key))
        return {(domain, key) for domain in (self._domains if server is None else (server.domain,))}

    def _run(self, zap: zmq.Socket[bytes], waker: sockets.socket, woken: sockets.socket) -> None:
        poller = zmq.Poller()
        poller.register(zap, zmq.POLLIN)
        poller.register(woken, zmq.POLLIN)
        try:
            while woken.fileno() not in dict(poller.poll()):
                zap.send_multipart(self._answer(zap.recv_multipart()))
        except zmq.ContextTerminated:
            pass  # as good as stop()
        finally:
            with contextlib.suppress(zmq.ZMQError):
                zap.unbind(_ZAP)  # close() alone frees the name some time later, and start() may come first
            zap.close(linger=0)
            with self._lock:
                self._waker = None
                waker.close()
                woken.close()

    def _answer(self, question: list[bytes]) -> list[bytes]:
        try:
            version, number, domain, address, _, mechanism, *credentials = question
            if version != b"1.0":
                raise ValueError(f"ZAP version {version!r}")
            key = z85.encode(credentials[0]).decode() if mechanism == b"CURVE" else ""
            admitted = self._judge(domain.decode(errors="replace"), key, mechanism.decode(), address.decode())
        except Exception:
            # Whatever it was, the next client must find somebody who answers.
            _log.exception("a question of libzmq about a client could not be answered; the client is refused")
            return [b"1.0", question[1] if len(question) > 1 else b"", b"500", b"Internal error", b"", b""]
        if admitted:
            return [b"1.0", number, b"200", b"OK", key.encode(), b""]
        return [b"1.0", number, b"400", b"Not allowed", b"", b""]

    def _judge(self, domain: str, key: str, mechanism: str, address: str) -> bool:
        pair = domain, key
        with self._lock:
            known = domain in self._domains
            if mechanism == "NULL" and not known:
                return True
            if key and pair not in self._revoked and (pair in self._admitted or domain in self._open):
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
            why = "it is not allowed" if known else f"no server here has the domain {domain!r}"
            _log.warning("refused a client at %s with the key %s: %s", address, key or f"({mechanism})", why)
        return False


def check_bind(endpoint: str, secure: bool, *, allow_remote: bool = False) -> None:
    """Raise ValueError for an endpoint that other machines can reach though nothing protects it."""
    place = Endpoint.parse(endpoint)
    if not (secure or allow_remote or place.is_loopback):
        raise ValueError(
            f"{endpoint} can be reached from other machines, and everybody there could read along and send. "
            f"Use CURVE (--curve), listen at {Endpoint('127.0.0.1', place.port)}, or say that this is "
            f"what you want: allow_remote=True (--insecure)"
        )
