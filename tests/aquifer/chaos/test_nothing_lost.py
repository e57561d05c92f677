"""Nothing lost, nothing twice: a gateway and six subscribers, all of them processes, most of them killed.

Three subscribers are extended ones, at different rates, that are killed and go on where they were; between
them and the gateway control messages are lost and repeated. Three are plain ones that know only the document.
The gateway itself is killed while all of them read, and started again on the same port and journal. In the
end everybody has to have what the source gave, all of it, in order, and once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.aquifer.chaos.children import Sample, growth
from tests.aquifer.chaos.play import Play, Script
from tests.kafka.broker import KafkaBroker

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="waits on pidfds, and reads the memory of processes in /proc"
)

GATEWAY_MAY_GROW = 40
"""MB after the warm-up. Its journal has the latest 32 MiB in memory, which take most of the time to fill;
what it sends in that time is ten times as much."""
SUBSCRIBER_MAY_GROW = 25
WARM_UP = 0.4
"""The part of its life in which a process comes to its size."""


@pytest.fixture
def perform(tmp_path: Path) -> Iterator[Callable[[Script], Play]]:
    """Performs a play and checks how it ended; whatever happens, no process is left."""
    plays: list[Play] = []

    def perform_one(script: Script, broker: KafkaBroker | None = None) -> Play:
        play = Play(script, tmp_path, broker)
        plays.append(play)
        play.perform()
        play.check()
        tell(play)
        return play

    yield perform_one
    for play in plays:
        play.close()


def tell(play: Play) -> None:
    """Print what happened, for those who run this with ``-s``, and for the report of a failure."""
    print(f"\nseed {play.script.seed}, {play.script.total} records", *play.events, sep="\n")
    for part in play.parts:
        print(f"{part.child.name}: {play.summary(part)}")
    proxy = play.proxy
    for what, counter in (("passed", proxy.passed), ("dropped", proxy.dropped), ("repeated", proxy.repeated)):
        print(f"control messages {what}: {counter.total()} {dict(counter)}")
    print(f"the last gateway counted {play.gateway_status['counters']}")
    for child in [play.gateway, *(part.child for part in play.parts)]:
        print(f"MB of {child.name}: " + "; ".join(map(sizes, child.lives)))


def sizes(life: list[Sample]) -> str:
    """Some twenty figures that show how the memory of a process went."""
    return " ".join(str(sample.kilobytes // 1024) for sample in life[:: max(1, len(life) // 20)])


@pytest.mark.parametrize("seed", [1])
def test_a_small_log(perform: Callable[[Script], Play], seed: int) -> None:
    """Everybody who can be killed is killed once."""
    perform(
        Script(
            total=20_000,
            seed=seed,
            rate=14_000,
            gateway_kills=1,
            subscriber_kills=1,
            seconds=150,
            dropped=0.1,
            repeated=0.1,
        )
    )


@pytest.mark.rare(24)
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_log_in_kafka_whose_broker_is_killed_as_well(perform: Callable[..., Play], tmp_path: Path) -> None:
    script = Script(
        total=20_000,
        seed=6,
        rate=4_000,
        gateway_kills=1,
        subscriber_kills=1,
        seconds=240,
        broker_kills=1,
    )
    with KafkaBroker(tmp_path / "kafka") as broker:
        perform(script, broker)


@pytest.mark.rare(12)
@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_a_larger_log(perform: Callable[[Script], Play], seed: int) -> None:
    perform(Script(total=100_000, seed=seed, rate=12_000, gateway_kills=2, subscriber_kills=3, seconds=150))


@pytest.mark.rare(40)
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_million_records_in_flat_memory(perform: Callable[[Script], Play]) -> None:
    play = perform(
        Script(total=1_000_000, seed=5, rate=60_000, gateway_kills=3, subscriber_kills=4, seconds=300)
    )

    for child in [play.gateway, *(part.child for part in play.parts)]:
        longest = max(child.lives, key=lambda life: life[-1].at if life else 0)
        grown = growth(longest, WARM_UP)
        allowed = GATEWAY_MAY_GROW if child is play.gateway else SUBSCRIBER_MAY_GROW
        print(f"{child.name} grew by {grown} MB in {longest[-1].at - longest[0].at:.1f} s")
        assert grown < allowed, f"{child.name} grew by {grown} MB: {sizes(longest)}"
