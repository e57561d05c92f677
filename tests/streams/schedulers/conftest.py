"""What the tests of the schedulers have in common."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from penstock.streams.schedulers import (
    ElasticScheduler,
    Scheduler,
    immediate,
    pool,
    scheduler,
    single,
    trampoline,
    virtual_time,
)
from tests.streams.schedulers.rigs import Forbidden, LoopRig, Rig, VirtualRig

# Of these a task begins only when the one before it has ended.
ORDERED_RIGS: dict[str, Callable[[], Rig]] = {
    "immediate": lambda: Rig(immediate()),
    "trampoline": lambda: Rig(trampoline()),
    "single": lambda: Rig(single("contract")),
    "pool-of-one": lambda: Rig(pool(1, "contract")),
    "loop": LoopRig,
    "virtual": lambda: VirtualRig(virtual_time()),
}
RIGS: dict[str, Callable[[], Rig]] = ORDERED_RIGS | {
    "pool": lambda: Rig(pool(4, "contract")),
    "elastic": lambda: Rig(ElasticScheduler("contract")),
}


@pytest.fixture(params=RIGS.values(), ids=list(RIGS))
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Every scheduler in turn."""
    made: Rig = request.param()
    yield made
    made.dispose()


@pytest.fixture(params=ORDERED_RIGS.values(), ids=list(ORDERED_RIGS))
def ordered_rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Every scheduler that runs one task at a time."""
    made: Rig = request.param()
    yield made
    made.dispose()


@pytest.fixture(autouse=True)
def nothing_forbidden_runs() -> Iterator[None]:
    """Fail the test if one of its `Forbidden` tasks was run, by now or when its scheduler was closed."""
    before = Forbidden.runs
    yield
    assert Forbidden.runs == before, "a task ran that must not"


@pytest.fixture(autouse=True)
def threads_switch_often() -> Iterator[None]:
    """Hand the interpreter lock over every few instructions, so that races show in a short test."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual)


Reports = list[tuple[BaseException, Scheduler]]


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> Reports:
    """What the `on_task_error` hook is told during the test."""
    told: Reports = []
    monkeypatch.setattr(scheduler, "on_task_error", lambda error, where: told.append((error, where)))
    return told
