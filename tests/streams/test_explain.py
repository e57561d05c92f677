"""``explain()``: the drawings, word by word."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest

from penstock.streams import Flux, Mono, Sinks, explain, schedulers
from penstock.streams.schedulers import VirtualTimeScheduler


def parse(x: Any) -> Any:
    return x


POOL = VirtualTimeScheduler(name="pool")
DB = VirtualTimeScheduler(name="db")

DRAWINGS: dict[str, tuple[Any, str]] = {
    "one resource": (
        Flux.range(9).map(parse).filter(lambda x: x),
        """
        range(9) map(parse) filter(λ)
        --------- R1: caller --------
        """,
    ),
    "publish_on": (
        Flux.range(9).map(str).publish_on(POOL).filter(str.isdigit),
        """
        range(9) map(str) | filter(isdigit)
        --- R1: caller -- | --- R2: pool --
                       256/192
        """,
    ),
    "publish_on with another prefetch, twice": (
        Flux.range(9).publish_on(POOL, prefetch=8).map(parse).publish_on(DB, prefetch=1),
        """
        range(9)       | map(parse)   | ·
        - R1: caller - | - R2: pool - | - R3: db -
                      8/6            1/1
        """,
    ),
    "subscribe_on": (
        Flux.range(9).map(parse).subscribe_on(POOL).filter(bool),
        """
        range(9) map(parse) filter(bool)
        ----------- R1: pool -----------
        """,
    ),
    "subscribe_on and publish_on": (
        Flux.range(9).subscribe_on(POOL).publish_on(DB).map(parse),
        """
        range(9)     | map(parse)
        - R1: pool - | - R2: db -
                  256/192
        """,
    ),
    "limit_rate": (
        Flux.range(9).limit_rate(10, 4).map(parse),
        """
        range(9)       | map(parse)
        - R1: caller - | - R2: caller -
                     10/4
        """,
    ),
    "zip": (
        Flux.zip(Flux.range(3).map(parse), Flux.just("a").publish_on(POOL)).map(str),
        """
        sources 1–2       | zip() map(str)
        - R1: see below - | - R2: sources -
                         32

        source 1: range(3) map(parse)
                  ---- R1: caller ---

        source 2: just('a')      | ·
                  - R1: caller - | - R2: pool -
                              256/192
        """,
    ),
    "merge": (
        Flux.merge(Flux.range(3), Flux.never()).publish_on(POOL).take(2),
        """
        sources 1–2       | merge()         | take(2)
        - R1: see below - | - R2: sources - | - R3: pool -
                        2×32             256/192

        source 1: range(3)
                  - R1: caller -

        source 2: never()
                  - R1: caller -
        """,
    ),
    "concat": (
        Flux.range(3).concat_with(Mono.just(1)),
        """
        concat_with()
        - R1: caller -

        source 1: range(3)
                  - R1: caller -

        source 2: just(1)
                  - R1: caller -
        """,
    ),
    "a mono": (
        Mono.just(1).map(lambda x: x).publish_on(POOL),
        """
        just(1) map(λ) | ·
        - R1: caller - | - R2: pool -
                      1/1
        """,
    ),
    "a sink": (
        Sinks.multicast().flux().map(parse),
        """
        multicast() map(parse)
        ---- R1: emitter -----
        """,
    ),
    "a clock": (
        Flux.interval(1, scheduler=POOL).on_backpressure_drop().timeout(3, scheduler=DB),
        """
        interval(1.0) | on_backpressure_drop() timeout(3.0)
        -- R1: pool - | ------------- R2: pool ------------
                      0
        """,
    ),
}


@pytest.mark.parametrize(("stream", "drawing"), DRAWINGS.values(), ids=DRAWINGS)
def test_the_drawing(stream: Any, drawing: str) -> None:
    assert stream.explain() == dedent(drawing).strip("\n")


def test_the_function_and_the_method_are_the_same() -> None:
    stream = Flux.just(1).publish_on(schedulers.shared_pool())

    assert explain(stream) == stream.explain()


def test_a_long_argument_is_cut_and_a_stream_shows_its_chain() -> None:
    stream = Flux.from_iterable(["a rather long text"] * 9).map(parse)

    assert stream.explain().splitlines()[0] == "from_iterable(['a rather long text', …) map(parse)"
    assert repr(stream) == "<Flux from_iterable(['a rather long text', …) map(parse)>"
