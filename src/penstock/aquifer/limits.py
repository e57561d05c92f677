"""The bounds on what peers may ask of a gateway."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds that hold for every peer. Set one as in ``Limits(max_subscribers=16)``."""

    max_message: int = 64 * 1024
    """The longest control message, in bytes; a longer one is answered with ``OnError``."""
    max_subscribers: int = 256
    """How many subscribers there can be at a time."""
    max_per_peer: int = 128
    """How many subscribers one key may have, or one other machine without a key."""
    max_durable: int = 1024
    """How many saved cursors of durable subscribers there can be at a time."""
    max_ids_per_peer: int = 256
    """How many ids one key may have, or one other machine without a key."""
    max_id: int = 256
    """The most characters in an id."""
    max_keys: int = 1024
    """How many keys a subscriber may ask for that wants only the records of a few."""
    max_partitions: int = 64
    """The most partitions of a reader group."""
    member_timeout: float = 10.0
    """Seconds of silence after which a member of a reader group is gone, and others take its partitions."""
    requests_per_second: int = 10_000
    """How many control messages a peer may send, with a burst of as many."""
    max_frame: int = 256 * 1024
    """The most bytes of payload in a data frame, unless a single record is larger. In shared memory a frame
    may have those of several."""
    max_frame_records: int = 10_000
    """The most records in a data frame."""
    frames_in_flight: int = 1024
    """How many frames may be on their way to an extended subscriber, however much credit it gives."""
    bytes_in_flight: int = 16 * 1024 * 1024
    """The same in bytes."""
    shared_memory: int = 12 * 1024 * 1024
    """Bytes of memory to share with each reader on this machine, for large payloads; 1 for none."""
    plain_batch: int = 100_000
    """The most records that one ``OnNext`` declares to a plain subscriber."""
    long_poll: float = 0.1
    """How many seconds a plain subscriber's ``Next`` may wait for records before ``OnNext(0)``."""
    lease: float = 60.0
    """Seconds of silence after which a subscriber is gone, unless it asked for another lease."""
    max_lease: float = 31 * 24 * 3600.0
    """The longest lease that can be asked for, in seconds, by a subscriber with an id."""
    max_nameless_lease: float = 600.0
    """The same for a subscriber without an id, which cannot come back."""
    join_time: float = 10.0
    """Seconds that a subscriber without an id has to make its data connection."""
    look: float = 3.0
    """Seconds for which optional readers may look at a log that waits for its first required reader.
    Meanwhile the source runs only as far ahead as they have read; after that it does not wait for them."""
    heartbeat: float = 1.0
    """Seconds without a frame after which an extended subscriber gets a heartbeat."""
    staged_bytes: int = 256 * 1024 * 1024
    """Bytes of memory for what the producers of a stream have staged, and not published yet, all together;
    also the largest piece that one of them may send."""
    staged_disk_bytes: int = 8 * 1024 * 1024 * 1024
    """Bytes of the journal's disk for the same, if the journal is in a file. Pieces go there once a quarter
    of ``staged_bytes`` is in use."""
    requests_in_waiting: int = 16
    """How many requests of a plain subscriber may wait for their answer at a time."""
    max_listed: int = 256
    """How many sessions and saved cursors an answer lists; it counts the rest."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"Limits({limit.name}=…) needs a number, not {value!r}")
            if value <= 0:
                raise ValueError(f"Limits({limit.name}=…) needs a number above 0, not {value}")
