"""Publishers of rsocket-py itself, of so many elements: what the kit is run on, here and from a shell.

Each says with its last element that it is the last one, as the documentation of rsocket-py does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from rsocket.payload import Payload
from rsocket.streams.stream_from_async_generator import StreamFromAsyncGenerator
from rsocket.streams.stream_from_generator import StreamFromGenerator


def payload(number: int) -> Payload:
    return Payload(b"%d" % number)


def stream_from_generator(elements: int) -> Any:
    """Their stream over a plain generator."""

    def generate() -> Iterator[tuple[Payload, bool]]:
        for number in range(elements):
            yield payload(number), number == elements - 1

    return StreamFromGenerator(generate)


def stream_from_async_generator(elements: int) -> Any:
    """Their stream over an asynchronous generator."""

    async def generate() -> AsyncIterator[tuple[Payload, bool]]:
        for number in range(elements):
            yield payload(number), number == elements - 1

    return StreamFromAsyncGenerator(generate)
