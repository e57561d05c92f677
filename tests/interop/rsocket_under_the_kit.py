"""The kit on publishers of rsocket-py as they are, from here and from a shell::

penstock tck tests.interop.rsocket_under_the_kit:TheirStream
"""

from __future__ import annotations

from typing import Any

from penstock.tck import RSOCKET, PublisherVerification
from tests.interop.rsocket_publishers import stream_from_async_generator, stream_from_generator


class TheirStream(PublisherVerification):
    """``StreamFromGenerator``."""

    subject = "StreamFromGenerator"
    profile = "asyncio"
    spelling = RSOCKET
    none_error_type = AttributeError
    """It refuses ``None``; which error says so is a matter of taste."""

    def create_publisher(self, elements: int) -> Any:
        return stream_from_generator(elements)


class TheirAsyncStream(TheirStream):
    """``StreamFromAsyncGenerator``."""

    subject = "StreamFromAsyncGenerator"

    def create_publisher(self, elements: int) -> Any:
        return stream_from_async_generator(elements)
