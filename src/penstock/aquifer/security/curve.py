"""CURVE on both sides of a connection, and where a gateway may listen without it.

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

See :mod:`~penstock.aquifer.security.zap` for how a client is let in or refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import zmq

from penstock.aquifer.security.access import AccessList, Right
from penstock.aquifer.security.keys import (
    CurveKeys,
    PathLike,
    check_key,
    check_pair,
    load_keys,
)
from penstock.endpoint import Endpoint

__all__ = ["CurveClient", "CurveServer", "check_bind"]

_numbers = itertools.count(1)


class CurveServer:
    """The gateway's side: its keys, and the public keys of the clients that it lets in.

    ``allowed`` has the keys, or, as a mapping, the keys with what each may do: ``"read"``, ``"read, write"``,
    ``"read, write, admin"``. A key for which nothing is said may read and write. ``allowed=None`` lets in
    every client that knows the gateway's public key.
    """

    def __init__(
        self, keys: CurveKeys, allowed: Collection[str] | Mapping[str, Right | str] | AccessList | None
    ) -> None:
        self.keys = check_pair(keys, "the server")
        self.access = allowed if isinstance(allowed, AccessList) else AccessList.of(allowed)
        """The access list: the keys that may connect, and their rights."""
        self.domain = f"penstock-{next(_numbers)}"
        """What libzmq calls this server when it asks the authenticator about a client."""

    @classmethod
    def load(cls, key_path: PathLike, allowed_path: PathLike | None) -> CurveServer:
        """Read the keys, and the list of clients: a directory of ``*.pub`` files, or a file of keys.

        Such a file has one key to a line; after a space there may be a note, such as whose key it is, and the
        rights of the key: ``rights=read,write``. Lines that start with ``#`` are comments. In a ``.pub`` file
        the rights are a line of their own: ``rights = "read, write"``. None as the list lets in every client
        that knows the server's key. See :mod:`penstock.aquifer.security.access`.
        """
        keys = load_keys(key_path)
        return cls(keys, None if allowed_path is None else AccessList.load(Path(allowed_path)))

    @property
    def allowed(self) -> frozenset[str] | None:
        """The keys that are let in; None if all are."""
        return self.access.keys

    def secure(self, socket: zmq.Socket[Any]) -> None:
        """Make a socket, not yet bound, speak CURVE and ask the authenticator about every client."""
        _check_unused(socket)
        socket.set(zmq.CURVE_SECRETKEY, self.keys.secret.encode())
        socket.set(zmq.ZAP_DOMAIN, self.domain.encode())
        # Without this, libzmq lets every client in while there is no authenticator.
        socket.set(zmq.ZAP_ENFORCE_DOMAIN, 1)
        socket.set(zmq.CURVE_SERVER, 1)


class CurveClient(NamedTuple):
    """The client's side: its own keys, and the public key of the gateway."""

    keys: CurveKeys
    server: str

    def secure(self, socket: zmq.Socket[Any]) -> None:
        """Make a socket, not yet connected, speak CURVE to this gateway and to no other."""
        check_pair(self.keys, "the client")
        check_key(self.server, f"the server's key {self.server!r}")
        _check_unused(socket)
        socket.set(zmq.CURVE_PUBLICKEY, self.keys.public.encode())
        socket.set(zmq.CURVE_SECRETKEY, self.keys.secret.encode())
        socket.set(zmq.CURVE_SERVERKEY, self.server.encode())


def _check_unused(socket: zmq.Socket[Any]) -> None:
    if socket.get(zmq.LAST_ENDPOINT):
        raise RuntimeError("secure() comes before bind() and connect(): what is open already stays in clear")


def check_bind(endpoint: str, secure: bool, *, allow_remote: bool = False) -> None:
    """Raise ValueError for an endpoint that other machines can reach though nothing protects it."""
    place = Endpoint.parse_address(endpoint)
    if not (secure or allow_remote or place.is_loopback):
        raise ValueError(
            f"{endpoint} can be reached from other machines, and everybody there could read along and send. "
            f"Use CURVE (--curve), listen at {Endpoint('127.0.0.1', place.port)}, or say that this is "
            f"what you want: allow_remote=True (--insecure)"
        )
