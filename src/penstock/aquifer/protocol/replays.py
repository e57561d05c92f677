"""Which dead letters were put back into a stream: a set of offsets, kept in the marks of its log.

A letter that is replayed is named in the commit of its records. Its number and the records are stored in one
transaction, so a letter is replayed once, whoever asks again. A mark has the numbers of a block of letters,
as the bits of a number in hexadecimal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

__all__ = ["MOST_LETTERS", "marks_with", "replayed_before"]

_MARK: Final = "replayed:"
_BLOCK: Final = 1024
"""Letters of one mark."""
MOST_LETTERS: Final = 1024
"""Letters that one commit may name."""


def replayed_before(marks: Mapping[str, str], epoch: str, offsets: Iterable[int]) -> list[int]:
    """Those of the letters that are in the set."""
    return [offset for offset in offsets if _bits(marks, epoch, offset // _BLOCK) >> offset % _BLOCK & 1]


def marks_with(marks: Mapping[str, str], epoch: str, offsets: Iterable[int]) -> dict[str, str]:
    """The marks to write for the set with these letters in it."""
    added: defaultdict[int, int] = defaultdict(int)
    for offset in offsets:
        added[offset // _BLOCK] |= 1 << offset % _BLOCK
    return {_name(epoch, block): f"{_bits(marks, epoch, block) | bits:x}" for block, bits in added.items()}


def _bits(marks: Mapping[str, str], epoch: str, block: int) -> int:
    return int(marks.get(_name(epoch, block), "0"), 16)


def _name(epoch: str, block: int) -> str:
    return f"{_MARK}{epoch}:{block}"
