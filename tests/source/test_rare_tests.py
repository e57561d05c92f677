"""A run of all tests has as many of the rare ones as it has time for, and others each time."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import pytest

@pytest.mark.rare(10)
@pytest.mark.parametrize("number", range(20))
def test_rare(number): pass

def test_always(): pass
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with twenty tests that are rare and one that is not."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.delenv("PENSTOCK_RARE", raising=False)
    monkeypatch.delenv("PENSTOCK_RARE_SEED", raising=False)
    pytester.makeconftest("from tests.conftest import pytest_collection_modifyitems, pytest_terminal_summary")
    pytester.makepyfile(test_some=TESTS)
    pytester.makeini("[pytest]\nmarkers = rare(seconds): ...\naddopts = -p no:cacheprovider")
    return pytester


def test_by_itself_pytest_runs_all_of_them(run: pytest.Pytester) -> None:
    run.runpytest_subprocess().assert_outcomes(passed=21)


def test_a_limit_leaves_those_out_that_do_not_fit(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_RARE", "55")

    done = run.runpytest_subprocess()

    done.assert_outcomes(passed=6, deselected=15)
    done.stdout.fnmatch_lines("5 of 20 rare tests this time (PENSTOCK_RARE_SEED=* chooses the same)")


def test_there_is_at_least_one(run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_RARE", "0")

    run.runpytest_subprocess().assert_outcomes(passed=2, deselected=19)


def test_there_is_at_least_one_of_each_kind(run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    run.makepyfile(
        test_some="""
        import pytest

        @pytest.mark.rare(10, kind="early")
        @pytest.mark.parametrize("number", range(20))
        def test_early(number): pass

        @pytest.mark.parametrize(
            "number", [pytest.param(n, marks=pytest.mark.rare(10, kind="late")) for n in range(20)]
        )
        def test_late(number): pass

        @pytest.mark.rare(10)
        def test_of_no_kind(): pass
        """
    )
    for limit, least, most in (("0", 1, 1), ("20", 1, 2), ("410", 20, 20)):
        monkeypatch.setenv("PENSTOCK_RARE", limit)
        done = run.runpytest_subprocess("--collect-only", "-q").outlines

        assert least <= sum("::test_late" in line for line in done) <= most
        assert least <= sum("::test_early" in line for line in done) <= most


def test_kinds_do_not_take_all_the_time_and_what_is_skipped_takes_none(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.makepyfile(
        test_some="""
        import pytest

        @pytest.mark.rare(100, kind="long")
        def test_long(): pass

        @pytest.mark.rare(100, kind="skipped")
        @pytest.mark.skipif(True, reason="not here")
        def test_skipped(): pass

        @pytest.mark.rare(5)
        @pytest.mark.parametrize("number", range(20))
        def test_short(number): pass
        """
    )
    for limit, short in (("40", 2), ("110", 5)):
        monkeypatch.setenv("PENSTOCK_RARE", limit)
        done = run.runpytest_subprocess("--collect-only", "-q").outlines

        assert sum("::test_short" in line for line in done) == short


def test_one_that_takes_longer_than_there_is_time_has_its_turn_now_and_then(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.makepyfile(
        test_some="""
        import pytest
        from random import Random
        from tests import rare_tests

        @pytest.mark.rare(100)
        def test_long(): pass

        @pytest.mark.rare(30)
        def test_short(): pass

        def test_chances(request):
            rare = [item for item in request.session.items if item.get_closest_marker("rare")]
            chosen = [rare_tests._chosen(rare, 50, Random(seed)) for seed in range(1000)]
            names = [sorted(item.name for item in some) for some in chosen]
            assert 150 < names.count(["test_long"]) < 350  # Half of the times that it comes first.
            assert names.count(["test_long"]) + names.count(["test_short"]) == 1000
        """
    )

    run.runpytest_subprocess().assert_outcomes(passed=3)


def test_the_seed_chooses(run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_RARE", "50")
    chosen = []
    for seed in ("1", "1", "2"):
        monkeypatch.setenv("PENSTOCK_RARE_SEED", seed)
        lines = run.runpytest_subprocess("--collect-only", "-q").outlines
        chosen.append([line for line in lines if "::test_rare" in line])

    assert chosen[0] == chosen[1] != chosen[2]
