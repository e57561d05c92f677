"""The parts of the demo: why one did not start, and why one has ended, as the user is told."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from penstock.cli.demo.ipc import Part, PartFailed, SensorsReport


def part(tmp_path: Path, *arguments: str) -> Part[SensorsReport]:
    return Part("sensors", SensorsReport, *arguments, log=tmp_path / "sensors.log")


def test_a_part_that_takes_too_long_is_told_with_the_option_that_allows_more(tmp_path: Path) -> None:
    slow = part(tmp_path, "1", "--rate", "1", "--duration", "1")
    try:
        with pytest.raises(PartFailed, match=r"not started within 0 s.*--start-limit 0s"):
            slow.wait(0, lambda seconds, elapsed: False)
    finally:
        slow.end(0)


def test_a_part_that_has_ended_is_told_with_its_reason(tmp_path: Path) -> None:
    # Nobody listens there.
    ended = part(tmp_path, "1", "--rate", "1", "--duration", "1")
    try:
        with pytest.raises(PartFailed, match=r"has ended: ConnectFailed: .*Connection refused"):
            ended.wait(60, lambda seconds, elapsed: False)
    finally:
        ended.end(0)
