"""Work that is under way, and waiting for what it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

LONG = 60.0
"""Seconds after which something that should have happened is taken for not happening."""


def begun(work: Any) -> asyncio.Future[Any]:
    """Something to be awaited, under way already."""

    async def wait() -> Any:
        return await work

    return asyncio.ensure_future(wait())


async def until(condition: Callable[[], object]) -> None:
    """Turn the loop until this holds."""
    async with asyncio.timeout(LONG):
        while not condition():
            await asyncio.sleep(0)


async def turns(count: int) -> None:
    """Let everybody on the loop have so many turns."""
    for _ in range(count):
        await asyncio.sleep(0)
