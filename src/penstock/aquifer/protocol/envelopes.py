"""What is round a control message: how to send an answer back, and what came with the question."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.aquifer.protocol.messages import Control, OnComplete, OnError

__all__ = ["for_plain_peers", "unwrap"]


def unwrap(parts: Sequence[bytes]) -> tuple[tuple[bytes, ...], bytes, Sequence[bytes]]:
    """The envelope to send the answer in, the message, and what is attached to it.

    A REQ puts an empty delimiter before the message, and with REQ_CORRELATE a number before that; the answer
    needs them all. A DEALER may have left them out, and then nothing can be attached.
    """
    try:
        body = parts.index(b"", 1) + 1
    except ValueError:
        return tuple(parts[:-1]) or (parts[0],), parts[-1] if len(parts) > 1 else b"", ()
    return tuple(parts[:body]), parts[body] if len(parts) > body else b"", parts[body + 1 :]


def for_plain_peers(message: Control) -> Control:
    """The answer without what the document does not know."""
    if isinstance(message, OnError):
        return OnError(message.message, message.recoverable)
    return OnComplete(message.complete) if isinstance(message, OnComplete) else message
