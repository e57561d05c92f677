"""An event loop in a thread of its own, of either kind, on which tests open servers and connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def run_on(kind: str, main: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine on a loop of this kind; whatever it leaves running is an error."""

    async def watched() -> T:
        result = await main
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left, f"tasks were left running: {left}"
        return result

    with asyncio.Runner(loop_factory=LOOPS[kind]) as runner:
        return runner.run(watched())


class LoopThread:
    """For subjects that are made and used from other threads, as the conformance kit does."""

    def __init__(self, kind: str = "asyncio") -> None:
        self.loop = LOOPS[kind]()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def wait(self, work: Coroutine[Any, Any, T], seconds: float = 30) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(seconds)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()
