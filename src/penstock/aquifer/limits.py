"""How much a gateway lets its peers ask of it."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds that hold for every peer; each can be set, ``Limits(max_subscribers=16)``."""

    max_message: int = 64 * 1024
    """The longest control message, in bytes; a longer one is answered with ``OnError``."""
    max_subscribers: int = 256
    """How many subscribers there can be at a time."""
    max_per_peer: int = 128
    """How many of them one key may have, or one other machine without a key."""
    max_durable: int = 1024
    """How many durable subscribers that are away are remembered at a time."""
    max_ids_per_peer: int = 256
    """How many ids one key may have, or one other machine without a key."""
    max_id: int = 256
    """The most characters in an id."""
    requests_per_second: int = 10_000
    """How many control messages a peer may send, with a burst of as many."""
    max_frame: int = 256 * 1024
    """The most bytes of payload in a data frame, unless a single record is larger."""
    max_frame_records: int = 10_000
    """The most records in a data frame."""
    frames_in_flight: int = 1024
    """How many frames may be on their way to an extended subscriber, whatever it asked for."""
    bytes_in_flight: int = 16 * 1024 * 1024
    """The same in bytes."""
    shared_memory: int = 12 * 1024 * 1024
    """How many bytes of memory are shared with a reader on this machine, for large payloads; 1 for none."""
    plain_batch: int = 100_000
    """The most records that one ``OnNext`` declares to a plain subscriber."""
    long_poll: float = 0.1
    """How many seconds a plain subscriber's ``Next`` may wait for records before ``OnNext(0)``."""
    lease: float = 60.0
    """How many seconds of silence a subscriber is kept for, unless it asked for another lease."""
    max_lease: float = 31 * 24 * 3600.0
    """The longest lease that can be asked for, in seconds, by a subscriber with an id."""
    max_nameless_lease: float = 600.0
    """The same for one without an id, which nobody can come back to."""
    join_time: float = 10.0
    """How many seconds a subscriber without an id may be silent before it has made its data connection."""
    look: float = 3.0
    """How many seconds optional readers may look at a log that waits for its first reader. Meanwhile the
    source goes on only as far as they have read; then it goes on without them."""
    heartbeat: float = 1.0
    """How many seconds an extended subscriber is left without a sign of life."""
    staged_bytes: int = 256 * 1024 * 1024
    """How much may be staged by those who write to the gateway, before they publish it."""
    requests_in_waiting: int = 16
    """How many requests of a plain subscriber may wait for their answer at a time."""
    max_listed: int = 256
    """How many subscribers, and how many ids that are away, an answer names; the rest is counted."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"Limits({limit.name}=…) needs a number, not {value!r}")
            if value <= 0:
                raise ValueError(f"Limits({limit.name}=…) needs a number above 0, not {value}")
