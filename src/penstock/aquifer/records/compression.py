"""Batches whose payload is compressed with zstd.

A gateway compresses a batch once, when it comes in. The journal stores it like that, and readers that know
zstd get it like that. Only the payload is compressed: times and keys can be looked at without expanding it.
Such a batch has the format ``msgpack+zstd`` or ``arrow+zstd``.

What was compressed elsewhere may claim any size. The size that it claims is looked at before anything is
expanded, and no more than that is ever expanded.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from penstock.aquifer.records.arrow_message import MOST_EXPANDED
from penstock.aquifer.records.batch import COMPRESSED, Batch

if TYPE_CHECKING:
    import zstandard

__all__ = [
    "MOST_EXPANDED",
    "ZSTD",
    "Compressor",
    "claimed_bytes",
    "compressor_named",
    "expand",
    "expanded",
    "expanded_bytes",
    "knows_zstd",
    "parse_compression",
    "plain_format",
    "require_zstd",
]

ZSTD: Final = "zstd"
_LEAST: Final = 1024
"""Smaller payloads are not compressed."""
_PAYS: Final = 0.9
"""A payload stays as it is if it would keep more than this share of its size."""
_USUAL_LEVEL: Final = 1
"""Others take longer, and save little more: docs/decisions/0069."""
_HIGHEST_LEVEL: Final = 19
_LONGEST_PAUSE: Final = 63
"""So many batches in a row are not tried when those before them did not get smaller."""
_NAME: Final = re.compile(r"zstd(?::(\d{1,3}))?")

_local = threading.local()


def knows_zstd() -> bool:
    """Whether the package for it is installed."""
    if "zstandard" in sys.modules:
        return sys.modules["zstandard"] is not None
    return _is_installed()


@cache
def _is_installed() -> bool:
    """To look for it takes as long as to open a connection, and every subscriber wants to know."""
    return find_spec("zstandard") is not None


def require_zstd(what: str) -> None:
    """Raise an ImportError that names the extra if the package is missing."""
    if not knows_zstd():
        raise ImportError(
            f"{what} needs zstandard, which is not installed: pip install 'penstock-streams[zstd]'"
        )


def plain_format(batch: Batch) -> str:
    """The format of its payload, once that is expanded."""
    return batch.format.removesuffix(COMPRESSED)


class Compressor:
    """Compresses batches where that makes them clearly smaller. Any thread may use it."""

    def __init__(self, level: int = _USUAL_LEVEL) -> None:
        require_zstd("compression")
        self.level = level
        self._contexts = threading.local()
        self._pause = 0
        """How many batches to leave alone the next time that one does not get smaller,"""
        self._left_alone = 0
        """and how many are still left alone."""

    def compressed(self, batch: Batch) -> Batch:
        """The batch with its payload compressed; as it is if that does not pay."""
        size = len(batch.payload)
        if not _LEAST <= size <= MOST_EXPANDED or batch.compressed:
            return batch
        payload = self._context().compress(batch.payload)
        if len(payload) > _PAYS * size:
            return batch
        return replace(batch, payload=payload, format=batch.format + COMPRESSED)

    def all_compressed(self, batches: Sequence[Batch]) -> list[Batch]:
        """The batches of a writer, each compressed where it pays. Used by one thread.

        If batches do not get smaller, fewer and fewer are tried: records without a pattern cost little.
        """
        return [self.tried(batch) for batch in batches]

    def tried(self, batch: Batch) -> Batch:
        """The same for one of them."""
        if self._left_alone:
            self._left_alone -= 1
            return batch
        smaller = self.compressed(batch)
        if smaller is not batch:
            self._pause = 0
        elif len(batch.payload) >= _LEAST:
            self._left_alone = self._pause
            self._pause = min(2 * self._pause + 1, _LONGEST_PAUSE)
        return smaller

    def _context(self) -> zstandard.ZstdCompressor:
        context: zstandard.ZstdCompressor | None = getattr(self._contexts, "context", None)
        if context is None:
            import zstandard

            context = zstandard.ZstdCompressor(level=self.level, write_checksum=True, write_content_size=True)
            self._contexts.context = context
        return context


def compressor_named(name: object, caller: str) -> Compressor:
    """The compressor for ``"zstd"`` or ``"zstd:LEVEL"``; a ValueError or an ImportError if there is none."""
    try:
        level = parse_compression(name)
    except ValueError as error:
        raise ValueError(f"{caller}(compress=…): {error}") from None
    require_zstd(f"{caller}(compress={name!r})")
    return Compressor(level)


def parse_compression(name: object) -> int:
    """The level that is meant; a ValueError if this names no compression."""
    found = _NAME.fullmatch(name) if isinstance(name, str) else None
    level = _USUAL_LEVEL if found is None or found[1] is None else int(found[1])
    if found is None or not 1 <= level <= _HIGHEST_LEVEL:
        raise ValueError(
            f"{name!r} is not a compression; write zstd, or zstd:LEVEL with a level up to {_HIGHEST_LEVEL}"
        )
    return level


def expand(payload: bytes | memoryview) -> bytes:
    """What was compressed; a ValueError if it is damaged, or would be too large."""
    import zstandard

    size = claimed_bytes(payload)
    context: zstandard.ZstdDecompressor | None = getattr(_local, "context", None)
    if context is None:
        context = _local.context = zstandard.ZstdDecompressor(max_window_size=MOST_EXPANDED)
    try:
        content = context.decompress(payload, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError(f"it cannot be expanded: {error}") from None
    if len(content) != size:
        raise ValueError(f"it claims to have {size} bytes and has {len(content)}")
    return content


def expanded(batch: Batch) -> Batch:
    """The batch as it was before it was compressed; a ValueError if that is not possible."""
    if not batch.compressed:
        return batch
    return replace(batch, payload=expand(batch.payload), format=plain_format(batch))


def expanded_bytes(batch: Batch) -> int:
    """The size of the batch when it is expanded, without expanding it."""
    return claimed_bytes(batch.payload) + len(batch.metadata) if batch.compressed else batch.nbytes


def claimed_bytes(payload: bytes | memoryview) -> int:
    """The size that a compressed payload claims to have; a ValueError if it claims none, or too much."""
    import zstandard

    try:
        size: int = zstandard.frame_content_size(payload)
    except zstandard.ZstdError as error:
        raise ValueError(f"it is not compressed with zstd: {error}") from None
    if size < 0:
        raise ValueError("it does not say how large it is")
    if size > MOST_EXPANDED:
        raise ValueError(f"it claims to have {size} bytes, and at most {MOST_EXPANDED} are expanded")
    return size
