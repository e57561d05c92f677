"""A stream of frames keeps the rules: the whole kit, for each framing and each shape of chunks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.net.framing import (
    Framing,
    delimited,
    end_with,
    json_line,
    json_objects,
    length_prefix,
    length_prefixed,
    lines,
    text,
)
from penstock.spec import UNBOUNDED
from penstock.streams import Flux, schedulers
from penstock.tck import Environment, PublisherVerification, run


class Fails(Exception):
    """What a failing source fails with."""


def many_in_a_chunk(frames: Flux[bytes]) -> Flux[bytes]:
    return frames.buffer(7).map(b"".join)


def one_in_several_chunks(frames: Flux[bytes]) -> Flux[bytes]:
    return frames.flat_map_iterable(lambda frame: [frame[:1], b"", frame[1:]])


@dataclass(frozen=True)
class Way:
    """A framing, how its frames are written, and how they are cut into chunks."""

    framing: Framing[Any]
    encode: Callable[[int], bytes]
    cut: Callable[[Flux[bytes]], Flux[bytes]]
    profile: str = "sync"


def last_without_an_end(frames: Flux[bytes]) -> Flux[bytes]:
    """What comes out only when the source has completed."""
    return frames.index().map(lambda each: each[1][:-1] if each[0] == 0 else b"\n" + each[1][:-1])


ENCODED: dict[str, tuple[Framing[Any], Callable[[int], bytes]]] = {
    "lines": (lines(), lambda n: end_with(b"\n")(str(n))),
    "lines of text": (lines(encoding="utf-8"), lambda n: end_with(b"\r\n")(str(n))),
    "delimited": (delimited(b"<>"), lambda n: end_with(b"<>")(str(n))),
    "length_prefixed": (length_prefixed(), lambda n: length_prefix(str(n).encode())),
    "json_objects": (json_objects(), lambda n: json_line({"n": n})),
}
WAYS: dict[str, Way] = {
    f"{name}, {cut.__name__}": Way(framing, encode, cut)
    for name, (framing, encode) in ENCODED.items()
    for cut in (many_in_a_chunk, one_in_several_chunks)
}
WAYS |= {
    "lines, last without an end": Way(*ENCODED["lines"], last_without_an_end),
    "lines, from another thread": Way(
        *ENCODED["lines"],
        lambda frames: many_in_a_chunk(frames).publish_on(schedulers.shared_pool(), prefetch=4),
        "threads",
    ),
    "text": Way(text(), lambda n: b"%d " % n, lambda frames: frames),
}


def verification(name: str) -> type[PublisherVerification]:
    """The test class for a way of framing."""
    way = WAYS[name]
    return type(
        "TestFraming",
        (PublisherVerification,),
        {
            "subject": f"framing: {name}",
            "profile": way.profile,
            "fanout": "unicast",
            "environment": Environment(timeout=10, gc=10),
            "max_elements_from_publisher": UNBOUNDED - 1,
            "create_publisher": lambda self, n: way.framing(way.cut(Flux.range(n).map(way.encode))),
            "create_failed_publisher": lambda self: way.framing(Flux.error(Fails)),
        },
    )


@pytest.mark.parametrize("name", WAYS)
def test_it_keeps_the_rules(name: str) -> None:
    results = list(run(verification(name)))

    failures = [f"{result.test}: {result.message}" for result in results if result.verdict == "fail"]
    assert "\n\n".join(failures) == ""
    assert sum(result.verdict == "pass" for result in results) >= 25


@pytest.mark.parametrize("name", [name for name in WAYS if name.startswith("json")])
def test_what_the_kit_saw_were_the_frames(name: str) -> None:
    way = WAYS[name]
    received = way.framing(way.cut(Flux.range(20).map(way.encode))).map(json.loads)

    assert received.collect_list().block() == [{"n": n} for n in range(20)]
