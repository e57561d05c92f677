"""The control messages: the six of the document, byte for byte, and what may ride along in ``x``.

A message is a JSON object whose ``jsonClass`` names its kind. Peers that know nothing but the document see
nothing else from us: whatever we add sits in one optional key ``x``, and is sent only to a peer that sent
one first. No seventh kind is ever sent, because a JVM peer that meets one throws.

We are lenient with what we get. Unknown fields are ignored, and so is an ``x`` that is not an object. The
original implementation sends two requests and two fields that the document does not know (``Error``,
``Complete``, ``Subscribe.count``, ``OnError.recoverable``): they are understood. Counts are clamped by
:func:`demand`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType, field

from penstock.aquifer.errors import ProtocolViolation
from penstock.aquifer.records.batch import MSGPACK
from penstock.aquifer.status import QueryReport
from penstock.spec import UNBOUNDED

__all__ = [
    "VERSION",
    "AdminRequest",
    "Commit",
    "Complete",
    "CompleteFields",
    "Control",
    "Error",
    "GroupFields",
    "Next",
    "NextFields",
    "OnComplete",
    "OnError",
    "OnErrorFields",
    "OnNext",
    "OnNextFields",
    "OnSubscribe",
    "OnSubscribeFields",
    "Put",
    "SegmentFields",
    "Subscribe",
    "SubscribeFields",
    "commit_in",
    "decode",
    "demand",
    "encode",
    "extension",
    "for_plain_peers",
    "put_in",
    "raw_status",
    "read_status",
    "unwrap",
]

VERSION: Final = 1
"""The version of the extended dialect."""

_EXACT_IN_JAVASCRIPT: Final = 2**53


class _Extension(msgspec.Struct, omit_defaults=True):
    """The extension fields in ``x``: each is optional, and absent fields are not written."""


class AdminRequest(_Extension):
    """``Subscribe.x.admin``: one request of an administrator."""

    list: bool | UnsetType = UNSET
    """The ids, and the sessions that have none."""
    after: str | UnsetType = UNSET
    """With ``list``: the ids behind this one."""
    evict: str | int | UnsetType = UNSET
    """End the session with this id or number."""
    forget: str | UnsetType = UNSET
    """Delete this id."""
    give: str | UnsetType = UNSET
    """Let this id belong to another key: that in ``to``."""
    writer: str | UnsetType = UNSET
    """The same for the name of a writer."""
    to: str | UnsetType = UNSET
    """A public key, or nothing for those without one."""
    move: str | UnsetType = UNSET
    """Let this id continue at another offset: that in ``offset``."""
    offset: int | UnsetType = UNSET


class GroupFields(_Extension):
    """``Subscribe.x.group``: a member of a reader group.

    With ``probe`` it says that it is there, and gets the state of the group. In a subscription it takes one
    of the partitions.
    """

    name: str
    """The name of the group."""
    member: str
    """The name of this member, which no other has."""
    partitions: int | UnsetType = UNSET
    """How many partitions the group has; in a probe: as far as the member knows or wishes."""
    partition: int | UnsetType = UNSET
    """Which one is taken by this subscription."""
    reads: list[int] | UnsetType = UNSET
    """With ``probe``: the partitions that this member reads. Its sessions of others are over: it has left
    them, and that was lost, or is on its way."""
    begun: list[int] | UnsetType = UNSET
    """Those of them that it had a session of before. After a restart of the gateway they are kept for it."""
    acks: list[tuple[int, int]] | UnsetType = UNSET
    """With ``probe``: partitions that it has left, and what it had acknowledged of each by then. It has said
    so over their own connections, too, but this message may overtake those."""
    leave: bool | UnsetType = UNSET
    """With ``probe``: the member leaves."""
    lapsed: bool | UnsetType = UNSET
    """In a subscription that continues: the gateway was not heard of for so long that another member may
    have the partition."""


class SubscribeFields(_Extension):
    """``Subscribe.x``: what an extended subscriber wants."""

    v: int | UnsetType = UNSET
    """The version of the dialect; without it the peer is a plain one."""
    id: str | UnsetType = UNSET
    """A durable id: a subscriber that comes back with it resumes where it was."""
    from_: int | str | UnsetType = field(default=UNSET, name="from")
    """The first offset that is wanted, or ``"earliest"`` or ``"latest"``."""
    to: int | UnsetType = UNSET
    """The offset before which to end."""
    epoch: str | UnsetType = UNSET
    """The log that ``from`` and ``to`` belong to."""
    keep: bool | UnsetType = UNSET
    """Whether this subscriber is required, so that the source waits for it."""
    fmt: list[str] | UnsetType = UNSET
    """The payload formats that are understood, best first."""
    lease: int | UnsetType = UNSET
    """Milliseconds of silence after which this subscriber is gone."""
    probe: bool | UnsetType = UNSET
    """Only the state of the gateway is wanted, no session."""
    ack: int | UnsetType = UNSET
    """Records before this offset have been dealt with, and need not be kept for this subscriber. A subscriber
    that asks again says so beside ``from``, which is where what has arrived ends."""
    beyond: int | UnsetType = UNSET
    """With ``probe``: answer when the log goes beyond this offset,"""
    wait: int | UnsetType = UNSET
    """or after so many milliseconds."""
    within: int | UnsetType = UNSET
    """With ``probe`` and ``from``: how many records from there on have no more than so many bytes?"""
    me: str | UnsetType = UNSET
    """Tells this subscriber from others for as long as it lives: when it has to ask again on a new
    connection, the session of the old one is over."""
    nth: int | UnsetType = UNSET
    """How often ``me`` has asked before: a request that was overtaken on the way changes nothing."""
    shelf: str | UnsetType = UNSET
    """Both may be on the same machine, so that large payloads can be in shared memory: the token of the
    segment from the session before, or an empty string."""
    pieces: list[int] | UnsetType = UNSET
    """Frames may come in pieces. If pieces of the frame at ``from`` are here: how many bytes of it, how many
    records it has, and 1 if it is compressed."""
    admin: AdminRequest | UnsetType = UNSET
    """With ``probe``: something for an administrator to ask."""
    stream: str | UnsetType = UNSET
    """The name of the stream that is meant, if it is not the default one."""
    report: QueryReport | UnsetType = UNSET
    """With ``probe`` and ``id``: what a query says about its last batch."""
    keys: list[bytes] | UnsetType = UNSET
    """Only the records with one of these keys are wanted; in JSON each key is base64."""
    compress: list[str] | UnsetType = UNSET
    """The ways of compressing a payload that are understood."""
    group: GroupFields | UnsetType = UNSET
    """This subscriber is a member of a reader group."""


class SegmentFields(_Extension):
    """``OnSubscribe.x.shelf``: memory that the gateway shares, and how to find it."""

    pid: int
    fd: int
    """The process that has it open, and the number of the open file there."""
    size: int
    token: str
    """What the segment begins with, as hexadecimal digits, to prove that it is the right one."""


class OnSubscribeFields(_Extension):
    """``OnSubscribe.x``: what the gateway gives."""

    v: int | UnsetType = UNSET
    topic: str | UnsetType = UNSET
    """What to subscribe to on the data port, as 16 hexadecimal digits."""
    epoch: str | UnsetType = UNSET
    first: int | UnsetType = UNSET
    """The oldest offset that can be had."""
    next: int | UnsetType = UNSET
    """The offset with which this session starts."""
    head: int | UnsetType = UNSET
    """The offset that the next record of the source will get."""
    fmt: str | UnsetType = UNSET
    """The payload format that was chosen."""
    ackevery: int | UnsetType = UNSET
    """Acknowledge at least after this many records, if the ACK flag asks for it."""
    maxframe: int | UnsetType = UNSET
    """The most bytes of payload in one frame, unless one record alone has more."""
    lease: int | UnsetType = UNSET
    """The lease of this session, in milliseconds."""
    status: msgspec.Raw | UnsetType = UNSET
    """The answer to a probe: a :mod:`~penstock.aquifer.status` that :func:`read_status` reads."""
    fits: tuple[int, int] | UnsetType = UNSET
    """The answer to ``within``: so many records, with so many bytes. There may be more that would fit."""
    shelf: SegmentFields | UnsetType = UNSET
    """Shared memory for large payloads, if it was asked for."""
    pieces: bool | UnsetType = UNSET
    """Frames may come in pieces, as was offered."""
    stream: str | UnsetType = UNSET
    """The stream that was asked for by its name."""
    keys: bool | UnsetType = UNSET
    """Only the records with the keys, or of the partition, that were asked for will come."""


class Put(_Extension):
    """``Next.x.put``: records to be staged; payload and metadata come as two more parts of the message."""

    query: str
    """The name of the producer, which is the same after a restart."""
    batch: int
    """The number of the batch, which grows."""
    part: int
    attempt: int
    """Which task, and which of its attempts."""
    seq: int
    """Which piece of the attempt, from 0 on."""
    fmt: str = MSGPACK
    stream: str | UnsetType = UNSET
    """The name of the stream to write to, if it is not the default one."""


class Replay(_Extension):
    """``Complete.x.commit.replay``: the dead letters that the records of a batch are made of."""

    epoch: str
    """The epoch of the log that has the letters."""
    offsets: list[int]
    """Their offsets in that log."""


class Commit(_Extension):
    """``Complete.x.commit``: publish what was staged for a batch, unless that was done before."""

    query: str
    batch: int
    parts: list[tuple[int, int, int]]
    """The attempts that count: part, attempt, number of pieces."""
    stream: str | UnsetType = UNSET
    """The name of the stream, as in ``put``."""
    replay: Replay | UnsetType = UNSET
    """Publish nothing if one of these dead letters was replayed before."""
    follows: int | UnsetType = UNSET
    """The batch before this one: publish nothing unless the log has it. -1 asks for none. With this field,
    each batch leaves a mark, also an empty one."""


class NextFields(_Extension):
    """``Next.x``: credit and progress, all in absolute figures: a repeated message changes nothing."""

    limit: int | UnsetType = UNSET
    """Records before this offset may be sent; replaces ``count``."""
    limitb: int | UnsetType = UNSET
    """So many bytes of payload may be sent since the session began."""
    ack: int | UnsetType = UNSET
    """Records before this offset have been dealt with, and need not be kept for this subscriber."""
    got: int | UnsetType = UNSET
    """Records before this offset have arrived; if absent, ``ack`` stands for it."""
    gotb: int | UnsetType = UNSET
    """So many bytes of this session have arrived, pieces as well."""
    shelf: list[int] | UnsetType = UNSET
    """Shared memory is in use: how many payloads were seen there, and the numbers of those still used."""
    put: Put | UnsetType = UNSET
    """Nothing is asked for: these records are to be staged."""
    again: int | UnsetType = UNSET
    """How many records this subscriber has delivered again, because they were refused: for the status."""


class OnNextFields(_Extension):
    """``OnNext.x``: where the declared records lie."""

    first: int | UnsetType = UNSET
    head: int | UnsetType = UNSET
    stream: str | UnsetType = UNSET
    """In the answer to ``put``: the name of the stream that the records are for."""
    published: int | UnsetType = UNSET
    """In the answer to ``put``: the last batch of this producer, if it is this one or a later one. Then
    nothing was staged."""


class OnErrorFields(_Extension):
    """``OnError.x``: which error it is, and what the subscriber needs to continue."""

    code: str | UnsetType = UNSET
    first: int | UnsetType = UNSET
    head: int | UnsetType = UNSET
    epoch: str | UnsetType = UNSET
    retry: int | UnsetType = UNSET
    """Milliseconds after which it makes sense to try again."""
    published: int | UnsetType = UNSET
    """In the answer to ``commit``: the last batch of this producer that the log has, if it has any."""


class CompleteFields(_Extension):
    """``OnComplete.x``: where the stream ended, and whether the subscriber ended it."""

    end: int | UnsetType = UNSET
    cancelled: bool | UnsetType = UNSET
    commit: Commit | UnsetType = UNSET
    """In a request: publish what was staged."""
    stream: str | UnsetType = UNSET
    """In the answer to ``commit``: the name of the stream that has the records."""
    replayed: list[int] | UnsetType = UNSET
    """In the answer to ``commit``: these letters were replayed before, so nothing was published."""


# An x of another type is ignored, in contrast to an object with wrong fields, which is an error.
_Foreign: TypeAlias = bool | int | float | str | list[Any] | UnsetType | None


class _Message(msgspec.Struct, tag_field="jsonClass", tag=True):
    """A control message; the fields are in the order of the document."""


class Subscribe(_Message):
    """Request: records, please; or with ``cancel``, no more of them."""

    cancel: bool = False
    count: int | UnsetType = UNSET
    x: SubscribeFields | _Foreign = UNSET


class OnSubscribe(_Message):
    """Reply: how many there are at most, and the port on which they will come."""

    size: int
    port: int
    x: OnSubscribeFields | _Foreign = UNSET


class Next(_Message):
    """Request: the subscriber can take ``count`` records."""

    count: int
    x: NextFields | _Foreign = UNSET


class OnNext(_Message):
    """Reply: ``count`` records are being sent."""

    count: int
    x: OnNextFields | _Foreign = UNSET


class OnError(_Message):
    """Reply: it went wrong."""

    message: str
    recoverable: bool | UnsetType = UNSET
    x: OnErrorFields | _Foreign = UNSET


class OnComplete(_Message):
    """Reply: this was all."""

    complete: bool = True
    x: CompleteFields | _Foreign = UNSET


class Error(_Message):
    """Request of the original implementation: records are missing, send them again."""

    message: str = ""


class Complete(_Message):
    """Request of the original implementation: no more, please. With ``x.commit`` it publishes."""

    complete: bool = True
    x: CompleteFields | _Foreign = UNSET


Control: TypeAlias = Subscribe | OnSubscribe | Next | OnNext | OnError | OnComplete | Error | Complete

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Control] = msgspec.json.Decoder(Control)


def encode(message: Control) -> bytes:
    """The bytes of a message, without a space."""
    return _encoder.encode(message)


def decode(data: bytes) -> Control:
    """The message in these bytes; :class:`~penstock.aquifer.ProtocolViolation` if there is none."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolViolation(f"not a control message: {error}") from error


X = TypeVar("X", bound=_Extension)


def extension(x: X | _Foreign) -> X | None:
    """What a peer added in ``x``, if it is something that we know."""
    return x if isinstance(x, _Extension) else None


def demand(count: int) -> int:
    """A count from the wire as demand.

    2^63-1 means unbounded, and so must whatever a JavaScript peer makes of it: beyond 2^53 its numbers are
    no longer exact, and 2^63-1 arrives as 9223372036854776000.
    """
    return UNBOUNDED if count > _EXACT_IN_JAVASCRIPT else count


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


def put_in(message: object) -> Put | None:
    """What a request wants to have staged, if it is one of these."""
    if not isinstance(message, Next):
        return None
    fields = extension(message.x)
    return fields.put if isinstance(fields, NextFields) and fields.put is not UNSET else None


def commit_in(message: object) -> Commit | None:
    """What a request wants to have published, if it is one of these."""
    if not isinstance(message, Complete):
        return None
    wanted = extension(message.x)
    return wanted.commit if wanted is not None and wanted.commit is not UNSET else None


S = TypeVar("S", bound=msgspec.Struct)


def raw_status(status: msgspec.Struct) -> msgspec.Raw:
    """A status as it goes into ``OnSubscribe.x.status``."""
    try:
        return msgspec.Raw(_encoder.encode(status))
    except UnicodeEncodeError:
        # A name of a file or the text of an error that UTF-8 cannot encode: the rest is worth knowing.
        return msgspec.Raw(_encoder.encode(_encodable(msgspec.to_builtins(status))))


def _encodable(value: Any) -> Any:
    """The same with escapes for the characters that UTF-8 cannot encode."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, list):
        return [_encodable(one) for one in value]
    if isinstance(value, dict):
        return {_encodable(name): _encodable(one) for name, one in value.items()}
    return value


def read_status(raw: msgspec.Raw, kind: type[S]) -> S:
    """The status in ``OnSubscribe.x.status``; ProtocolViolation if it is not one of this kind."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError as error:
        raise ProtocolViolation(f"the gateway sent a status that cannot be read: {error}") from error
