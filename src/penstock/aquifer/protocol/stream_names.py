"""The name of a stream in a message: which one a request is about, and which one an answer is about.

A gateway says in its answer which stream it has served, if that has a name. One that knows of no names
ignores ``x.stream``, so a client that has named a stream compares.
"""

from __future__ import annotations

from msgspec import UNSET, UnsetType, structs

from penstock.aquifer.protocol.messages import (
    Commit,
    Complete,
    CompleteFields,
    Control,
    Next,
    NextFields,
    OnComplete,
    OnNext,
    OnSubscribe,
    Put,
    Subscribe,
    SubscribeFields,
    commit_in,
    extension,
    put_in,
)

__all__ = ["about_stream", "served_stream", "stream_in"]


def stream_in(message: Control) -> str:
    """The name of the stream that a request is about; empty if it names none."""
    asked: SubscribeFields | Put | Commit | None
    asked = extension(message.x) if isinstance(message, Subscribe) else put_in(message) or commit_in(message)
    return asked.stream if asked is not None and asked.stream is not UNSET else ""


def about_stream(message: Control, stream: str) -> Control:
    """The same request, about the stream of this name."""
    if isinstance(message, Subscribe) and (fields := extension(message.x)) is not None:
        return structs.replace(message, x=structs.replace(fields, stream=stream))
    if (put := put_in(message)) is not None and isinstance(message, Next):
        return Next(message.count, x=NextFields(put=structs.replace(put, stream=stream)))
    if (commit := commit_in(message)) is not None:
        return Complete(x=CompleteFields(commit=structs.replace(commit, stream=stream)))
    return message


def served_stream(answer: Control) -> str | UnsetType:
    """The stream that an answer says it is about."""
    if isinstance(answer, OnSubscribe):
        subscribed = extension(answer.x)
        return UNSET if subscribed is None else subscribed.stream
    if isinstance(answer, OnNext):
        staged = extension(answer.x)
        return UNSET if staged is None else staged.stream
    completed = extension(answer.x) if isinstance(answer, OnComplete) else None
    return UNSET if completed is None else completed.stream
