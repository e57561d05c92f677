"""The seeds of the storms, and how many of them."""

from __future__ import annotations

import os

__all__ = ["seeds"]


def seeds() -> list[int]:
    """One that is new each time; ``PENSTOCK_STORMS=20`` makes it 20.

    ``PENSTOCK_CHAOS_SEED`` gives one that has failed once more, alone; ``3,4,5`` are three.
    """
    wanted = os.environ.get("PENSTOCK_CHAOS_SEED")
    if wanted is not None:
        return [int(seed) for seed in wanted.split(",")]
    return [int.from_bytes(os.urandom(4)) for _ in range(int(os.environ.get("PENSTOCK_STORMS", "1")))]
