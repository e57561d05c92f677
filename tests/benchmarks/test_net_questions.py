"""The servers of the network part serve and end, and every claim is about something that is measured."""

import os

import pytest

from benchmarks.net import load, reactor_netty
from benchmarks.net.placing import Role, placed
from benchmarks.net.serving import Running, Server, of_python
from benchmarks.questions import NAMES
from tests.benchmarks.claimed import assert_claims_have_alternatives
from tests.benchmarks.durations import long_enough
from tests.required_tools import missing_part

NET = [name for name in NAMES if name.startswith("net.")]


@pytest.fixture(scope="module", autouse=True)
def _program() -> None:
    try:
        load.compiled()
    except load.NoCompiler as problem:
        missing_part("The load generator", str(problem))


def echoes(server: Running, *, size: int, write: int, in_flight: int) -> None:
    """See that a server sends back messages, and what is written without waiting for that."""
    long_enough(
        lambda seconds: load.pingpong(server.port, connections=3, size=size, seconds=seconds),
        lambda report: report["round_trips"] > 3,
    )
    long_enough(
        lambda seconds: load.stream(server.port, size=write, in_flight=in_flight, seconds=seconds),
        lambda report: report["bytes"] > 0,
    )


@pytest.mark.parametrize(
    "kind",
    ["raw-uvloop", "streams-asyncio", "anyio", "penstock-fused", "penstock-unfused", "penstock-mapped"],
)
def test_an_echo_server_sends_back_what_it_gets(kind: str) -> None:
    with Running(of_python(kind, kind)) as server:
        echoes(server, size=64, write=2**16, in_flight=2**18)
        with load.idle(server.port, connections=50):
            assert server.memory() > 0


@pytest.mark.parametrize(
    "kind",
    ["raw-uvloop-lines", "streams-uvloop-lines", "penstock-lines", "penstock-line-by-line"],
)
def test_a_server_of_lines_sends_each_of_them_back(kind: str) -> None:
    with Running(of_python(kind, kind)) as server:
        echoes(server, size=100, write=65_500, in_flight=262_000)


@pytest.mark.parametrize(
    "kind",
    ["raw-uvloop-source", "raw-uvloop-joined-source", "streams-uvloop-source", "penstock-source"],
)
def test_a_source_sends_elements_and_survives_those_who_leave(kind: str) -> None:
    with Running(of_python(kind, kind)) as server:
        for _ in range(2):
            long_enough(
                lambda seconds: load.sink(server.port, seconds=seconds), lambda report: report["bytes"] > 0
            )


def test_a_server_that_does_not_start_is_told() -> None:
    with pytest.raises(RuntimeError, match="silent did not start"):
        Running(Server("silent", lambda: ["true"]))


def test_a_server_ends_with_its_input() -> None:
    running = Running(of_python("asyncio", "raw-asyncio"))

    running.close()

    assert running.exit_code == 0


def test_what_is_started_gets_its_core_and_we_keep_ours() -> None:
    before = os.sched_getaffinity(0), os.sched_getscheduler(0)
    for role in Role:
        expected = role.cores()

        with placed(role):
            assert os.sched_getaffinity(0) == expected

        assert (os.sched_getaffinity(0), os.sched_getscheduler(0)) == before


@pytest.mark.parametrize("name", NET)
def test_every_claim_is_about_alternatives_that_there_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there is no JDK, which is why no claim is about Reactor Netty."""
    monkeypatch.setattr(reactor_netty, "available", lambda: False)
    assert_claims_have_alternatives(name)
