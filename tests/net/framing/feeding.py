"""Feed a decoder piece by piece, and tell what came out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from penstock.net.framing import Decoder, FramingError


@dataclass
class Result:
    """The frames, and the error that followed them, if one did."""

    frames: list[Any]
    error: FramingError | None = None


def fed(decoder: Decoder[Any], chunks: Iterable[bytes]) -> Result:
    """Everything that comes out, up to an error or the end."""
    frames: list[Any] = []
    try:
        for chunk in chunks:
            for frame in decoder.feed(chunk):
                frames.append(frame)
        frames.extend(decoder.finish())
    except FramingError as error:
        return Result(frames, error)
    return Result(frames)


def cut_at(data: bytes, places: Iterable[int]) -> list[bytes]:
    """The data in pieces, some of them perhaps empty."""
    edges = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def byte_by_byte(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


places = st.lists(st.integers(0, 400), max_size=12)
"""Where to cut."""

unhurried = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""No example is judged by how long it takes on a busy machine."""
