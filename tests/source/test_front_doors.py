"""No package of ours goes past the front door of another, and the fronts export all that a user needs."""

from tests.source.fronts import DOORS, FRONTS, Source
from tests.source.public_names import hidden_exceptions, missing_names
from tests.source.repository import ROOT

SOURCE = Source.of(ROOT)


def test_no_import_goes_past_a_front_door() -> None:
    assert "\n".join(str(each) for each in SOURCE.past_the_door()) == ""


def test_what_is_public_needs_nothing_that_is_not() -> None:
    missing = [f"{name}: for {', '.join(where)}" for name, where in missing_names(SOURCE).items()]

    assert "\n".join(missing) == ""


def test_every_exception_can_be_imported_from_a_front() -> None:
    assert "\n".join(map(str, hidden_exceptions(SOURCE))) == "", "export it, or give it an underscore"


def test_every_front_says_what_it_exports() -> None:
    for front in FRONTS:
        if front in SOURCE.modules and front != "penstock.interop":
            module = SOURCE[front]
            assert module.exported, f"{front} has no __all__"
            assert [name for name in module.exported if name not in module.scope] == [], front


def test_a_door_is_a_front() -> None:
    assert set(DOORS) <= set(FRONTS)
