"""The words of ASGI 3, for the type checker; nobody has to be imported for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

__all__ = ["App", "Headers", "Message", "Receive", "Scope", "Send", "header_pairs", "named"]

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

Headers = Mapping[str, str] | Iterable[tuple[str, str]]
"""Headers as people write them."""


def header_pairs(headers: Headers | None) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI wants them; a line end in one, with which others could be smuggled in, is refused."""
    if headers is None:
        return []
    pairs = []
    for name, value in headers.items() if isinstance(headers, Mapping) else headers:
        if not name or any(mark in text for text in (name, value) for mark in "\r\n\0"):
            raise ValueError(f"a header must have a name, and no line ends: {name!r}: {value!r}")
        pairs.append((name.lower().encode("latin-1"), value.encode("latin-1")))
    return pairs


def named(scope: Scope) -> str:
    """What a line in the log calls this exchange."""
    client = scope.get("client")
    origin = f"{client[0]}:{client[1]}" if client else "an unnamed client"
    what = "WebSocket" if scope.get("type") == "websocket" else scope.get("method", "")
    return f"{what} {scope.get('path', '')} from {origin}"
