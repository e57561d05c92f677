"""Every source and operator of Flux and Mono keeps the rules: the whole kit, for each of them."""

from __future__ import annotations

from functools import cache

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono, ParallelFlux
from penstock.tck import Environment, PublisherVerification, Result, Verification, run
from tests.conformance import flux_shapes, mono_shapes
from tests.conformance.shapes import Shape

FLUX = {**flux_shapes.FLUX_SOURCES, **flux_shapes.FLUX_OPERATORS}
MONO = {**mono_shapes.MONO_SOURCES, **mono_shapes.MONO_OPERATORS}
SHAPES: dict[str, Shape] = {
    **{f"Flux.{name}": shape for name, shape in FLUX.items()},
    **{f"Mono.{name}": shape for name, shape in MONO.items()},
    **{f"ParallelFlux.{name}": shape for name, shape in flux_shapes.RAILS.items()},
    **{f"Sinks.{name}": shape for name, shape in flux_shapes.SINKS.items()},
}


@cache
def verification(name: str) -> type[PublisherVerification]:
    """The test class for a shape."""
    shape = SHAPES[name]
    return type(
        f"Test{name}",
        (PublisherVerification,),
        {
            "subject": name,
            "profile": shape.profile,
            "fanout": shape.fanout,
            "environment": Environment(timeout=10, gc=10),
            "max_elements_from_publisher": UNBOUNDED - 1 if shape.most is None else shape.most,
            "create_publisher": lambda self, elements: shape.create(elements),
            "create_failed_publisher": lambda self: None if shape.failed is None else shape.failed(),
        },
    )


@cache
def kit_says(subject: type[Verification]) -> tuple[Result, ...]:
    """What the kit says about a subject; the table of all subjects is made of the same results."""
    return tuple(run(subject))


@pytest.mark.parametrize("name", SHAPES)
def test_it_keeps_the_rules(name: str) -> None:
    results = kit_says(verification(name))

    failures = [f"{result.test}: {result.message}" for result in results if result.verdict == "fail"]
    assert "\n\n".join(failures) == ""
    passed = sum(result.verdict == "pass" for result in results)
    assert passed >= {0: 6, 1: 9}.get(SHAPES[name].most, 25)


@pytest.mark.parametrize(
    ("stream", "shapes", "exits"), [(Flux, FLUX, flux_shapes.EXITS), (Mono, MONO, mono_shapes.EXITS)]
)
def test_no_operator_is_without_an_entry(stream: type, shapes: dict[str, Shape], exits: set[str]) -> None:
    operators = {name for name in dir(stream) if not name.startswith("_")} - exits

    assert operators - set(shapes) == set()
    assert set(shapes) - operators == set()


def test_no_operator_of_the_rails_is_without_an_entry() -> None:
    operators = {name for name in dir(ParallelFlux) if not name.startswith("_")} - {"explain", "rails"}

    assert operators == set(flux_shapes.RAILS)
