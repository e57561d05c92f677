"""The estimate for Spark's start: the last one, and none if that is not known for whatever reason."""

from __future__ import annotations

import io
import json
import os
import re
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.doctor import packages
from penstock.cli.run import runner
from penstock.cli.screen import Screen
from penstock.cli.spark_start import SparkStart


def test_the_next_start_is_expected_to_take_as_long_as_the_last(tmp_path: Path) -> None:
    first = SparkStart("run", tmp_path)
    assert (first.last, first.estimate, first.progress(8)) == (None, "", "8 s")
    first.took(14.2)

    second = SparkStart("run", tmp_path)
    assert second.estimate == " (last time 14 s)"
    assert second.progress(8) == "8 of about 14 s"
    assert second.progress(20) == "20 s, longer than the last time (14 s)"


def test_each_command_has_a_figure_of_its_own(tmp_path: Path) -> None:
    SparkStart("run", tmp_path).took(5)
    SparkStart("doctor", tmp_path).took(9)
    SparkStart("run", tmp_path).took(6)

    assert [SparkStart(command, tmp_path).last for command in ("run", "doctor", "demo")] == [6, 9, None]


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e9, float("nan"), float("inf")])
def test_what_cannot_be_a_start_is_not_noted(tmp_path: Path, seconds: float) -> None:
    SparkStart("run", tmp_path).took(seconds)

    assert list(tmp_path.iterdir()) == []


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.just("run"), inner),
        max_leaves=5,
    ).map(lambda value: json.dumps(value).encode())
)
def test_a_file_with_anything_in_it_does_no_harm(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    folder = tmp_path_factory.mktemp("cache")
    (folder / "spark-start.json").write_bytes(content)

    start = SparkStart("run", folder)

    assert start.last is None or 0 < start.last < 3600
    start.took(7)
    assert SparkStart("run", folder).last == 7


def test_a_cache_directory_that_cannot_be_used_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    start = SparkStart("run", tmp_path / "file" / "below")
    start.took(7)

    assert start.last is None
    assert SparkStart("run", tmp_path / "file" / "below").last is None


def test_without_a_home_there_is_no_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("XDG_CACHE_HOME", "relative/paths/do/not/count")
    monkeypatch.setattr(Path, "home", homeless)
    start = SparkStart("run")
    start.took(7)

    assert start.last is None
    assert not os.path.exists("relative")


def test_commands_that_end_at_once_leave_a_whole_file(tmp_path: Path) -> None:
    together = threading.Barrier(8)

    def note(seconds: int) -> None:
        together.wait(30)
        for _ in range(20):
            SparkStart("run", tmp_path).took(seconds)

    threads = [threading.Thread(target=note, args=(seconds,)) for seconds in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert SparkStart("run", tmp_path).last in range(1, 9)
    assert [path.name for path in tmp_path.iterdir()] == ["spark-start.json"]


def test_doctor_says_how_long_spark_took_the_last_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert packages.spark_check().estimate == ""
    SparkStart("doctor").took(11)

    assert packages.spark_check().estimate == " (last time 11 s)"


def test_a_start_that_takes_long_gives_a_sign_of_life_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_SIGN_EVERY", 0.01)
    reads, writes = os.pipe()
    screen = os.dup(2)
    os.dup2(writes, 2)  # the view keeps a copy of it, because standard error belongs to Spark meanwhile
    try:
        view = runner.RunView(Screen(io.StringIO()), quiet=False)
        with open(reads) as said, view.starting(SparkStart("run", tmp_path)):
            lines = [said.readline() for _ in range(3)]
    finally:
        os.dup2(screen, 2)
        os.close(screen)
        os.close(writes)

    assert all(re.fullmatch(r"still starting Spark, \d+ s\n", line) for line in lines), lines
