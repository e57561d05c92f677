"""Hops, snapshots and verdicts travel as JSON, and two snapshots make rates."""

from __future__ import annotations

import dataclasses
import json
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.observe import (
    Hop,
    HopRates,
    QueryBatch,
    RecentError,
    Snapshot,
    SubscriberFigures,
    Verdict,
    rates,
)

floats = st.floats(allow_nan=False, allow_infinity=False)
PLAIN = {
    "str": st.text(),
    "int": st.integers(),
    "float": floats,
    "bool": st.booleans(),
    "Mapping[str, float]": st.dictionaries(st.text(), floats),
    "tuple[str, ...]": st.lists(st.text()).map(tuple),
}


def any_of(kind: type) -> st.SearchStrategy[object]:
    """Any object of a class of the model, each of its fields drawn by its type."""

    def strategy(declared: str) -> st.SearchStrategy[object]:
        if declared.endswith(" | None"):
            return st.none() | strategy(declared.removesuffix(" | None"))
        if declared in PLAIN:
            return PLAIN[declared]
        if declared.startswith("tuple["):
            return st.lists(strategy(declared[6:-6]), max_size=3).map(tuple)
        return any_of(KINDS[declared])

    return st.builds(kind, **{each.name: strategy(str(each.type)) for each in dataclasses.fields(kind)})


KINDS = {
    kind.__name__: kind
    for kind in (Hop, HopRates, QueryBatch, RecentError, SubscriberFigures, Verdict, Snapshot)
}


@given(any_of(Snapshot))
def test_a_snapshot_survives_json(snapshot: Snapshot) -> None:
    assert Snapshot.from_json(snapshot.to_json()) == snapshot


@given(any_of(HopRates))
def test_rates_survive_json(found: HopRates) -> None:
    assert HopRates.from_json(found.to_json()) == found


def test_a_field_of_a_newer_version_is_left_out() -> None:
    text = Hop(id="log", kind="log", name="log").to_json()
    assert Hop.from_json(json.dumps(json.loads(text) | {"colour": "blue"})) == Hop.from_json(text)


def test_figures_that_are_not_known_are_not_in_the_json() -> None:
    assert "lag_seconds" not in Hop(id="log", kind="log", name="log").to_json()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "a Hop is a JSON object, not a list"),
        ('{"id": "log"}', "this is not a Hop: .*kind"),
        ('{"id": 1, "kind": "log", "name": ""}', r"Hop\.id cannot be 1"),
        ('{"id": "", "kind": "", "name": "", "waiting": true}', r"Hop\.waiting cannot be True"),
        ('{"id": "", "kind": "", "name": "", "upstream": ["a", 2]}', r"Hop\.upstream cannot be 2"),
        ('{"id": "", "kind": "", "name": "", "details": [1]}', r"Hop\.details cannot be \[1\]"),
    ],
)
def test_what_is_not_a_hop_is_refused_with_its_field(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Hop.from_json(text)


def test_every_field_of_the_model_has_a_type_that_json_can_carry() -> None:
    for kind in KINDS.values():
        assert set(get_type_hints(kind)) == {each.name for each in dataclasses.fields(kind)}


def log_at(clock: float, **figures: object) -> Snapshot:
    return Snapshot(at=0.0, clock=clock, hops=(Hop(id="log", kind="log", name="log", **figures),))  # type: ignore[arg-type]


def test_two_snapshots_make_rates_and_shares() -> None:
    before = log_at(10.0, records_in=100, records_out=50, working=1.0, bytes_in=0)
    after = log_at(12.0, records_in=300, records_out=50, working=2.5, bytes_in=4000)

    assert rates(before, after)["log"] == HopRates(
        hop="log", seconds=2.0, records_in=100.0, records_out=0.0, working=0.75, bytes_in=2000.0
    )


def test_a_hop_that_is_new_or_began_anew_has_no_rates() -> None:
    before, after = log_at(1.0, records_in=10), log_at(2.0, records_in=3)
    assert rates(before, after) == {}
    assert rates(Snapshot(at=0.0, clock=1.0), after) == {}
    assert rates(after, before) == {}
