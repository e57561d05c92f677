"""``penstock doctor``: each check is made for real, and whatever happens it comes to an end."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.cli.doctor import examination, machine, packages
from penstock.cli.doctor.examination import _within as within
from penstock.cli.doctor.examination import examine
from penstock.cli.doctor.health import DoctorCheck, Finding, Health
from tests.cli.running import PATIENCE, complaints, penstock
from tests.cli.test_missing_extras import bare, run

__all__ = ["bare"]

NAMES = ["python", "gateway", "encryption", "java", "ports", "descriptors", "disk", "clock"]


def test_on_this_machine_everything_that_is_needed_works(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A machine that is busy with other tests works, however long it takes.
    monkeypatch.setattr(machine, "_SLOW_SYNC", PATIENCE)
    monkeypatch.setattr(examination, "_within", lambda check, seconds: within(check, PATIENCE))
    assert main(["doctor", "--no-spark", "--json", "--folder", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)

    assert told["ok"]
    verdicts = {check["name"]: check["verdict"] for check in told["checks"]}
    assert {name: verdicts[name] for name in NAMES} == dict.fromkeys(NAMES, "ok")
    assert list(tmp_path.iterdir()) == []


def test_without_extras_it_names_the_commands_that_install_them(bare: Path) -> None:
    done = run(bare, "-m", "penstock.cli", "doctor")

    assert complaints(done.stderr) == []
    # The disk of a busy machine may be slow.
    assert done.returncode == 0 or "batches a second" in done.stdout, done.stdout
    assert "pip install 'penstock-streams[aquifer]'" in done.stdout
    assert "pip install 'penstock-streams[spark]'" in done.stdout
    assert "not tried without the extra" in done.stdout
    remedies = [line for line in done.stdout.splitlines() if line.startswith("  pip install")]
    assert len(remedies) == len(set(remedies)), "a command is named once, with all that it mends"


def test_a_check_that_hangs_or_raises_is_told_and_the_others_are_made() -> None:
    never = threading.Event()

    def hang(limit: float) -> Finding:
        never.wait()
        return Finding("hangs", Health.OK, "")

    def fail(limit: float) -> Finding:
        raise OSError("the disk is on fire")

    def leave(limit: float) -> Finding:
        sys.exit("a library that exits")

    checks = [
        DoctorCheck("hangs", hang, 0.05, "unplug it"),
        DoctorCheck("leaves", leave, remedy="another library"),
        DoctorCheck("fails", fail, remedy="a bucket of water"),
        DoctorCheck("works", lambda limit: Finding("works", Health.OK, "fine")),
    ]
    hangs, leaves, fails, works = examine(checks, 10.0)
    assert (hangs.verdict, hangs.remedy) == (Health.BAD, "unplug it")
    assert "no answer within" in hangs.detail
    assert (fails.verdict, fails.detail, fails.remedy) == (
        Health.BAD,
        "OSError: the disk is on fire",
        "a bucket of water",
    )
    assert (leaves.verdict, leaves.detail) == (Health.BAD, "SystemExit: a library that exits")
    assert works.verdict is Health.OK
    assert [finding.detail for finding in examine(checks[3:], 0.0)] == ["not tried: the time is over"]
    never.set()


def test_a_process_with_a_check_that_hangs_exits() -> None:
    code = (
        "import threading\n"
        "from penstock.cli import main\n"
        "from penstock.cli.doctor import examination, machine\n"
        "from penstock.cli.doctor.health import DoctorCheck\n"
        "stuck = DoctorCheck('clock', lambda limit: threading.Event().wait(), 0.1)\n"
        "examination.clock_check = lambda: stuck\n"
        "raise SystemExit(main(['doctor', '--no-spark', '--json']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)

    assert done.returncode == 1
    told = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert told["clock"]["verdict"] == "bad"


def test_a_folder_that_cannot_be_written_is_told() -> None:
    done = penstock("doctor", "--no-spark", "--folder", "/proc")

    assert done.returncode == 1
    assert "disk" in done.stdout
    assert "penstock doctor --folder" in done.stdout


def test_a_slow_disk_and_a_full_one_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = machine.disk_check(str(tmp_path))
    monkeypatch.setattr(machine, "_sync_seconds", lambda path, limit: 0.2)
    slow = check.run(5.0)
    assert slow.verdict is Health.BAD
    assert "about 5 batches a second" in slow.detail
    monkeypatch.setattr(machine, "_sync_seconds", lambda path, limit: 0.001)
    monkeypatch.setattr(machine, "_LITTLE_SPACE", 1 << 60)
    assert "a journal takes" in check.run(5.0).detail


def test_few_file_descriptors_are_told_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 4096))
    found = machine.descriptor_check().run(1.0)

    assert (found.verdict, found.remedy) == (Health.BAD, "ulimit -n 4096")


def test_a_taken_port_is_told_and_is_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(machine, "_PORT", taken.getsockname()[1])
        found = machine.port_check().run(5.0)
    assert found.verdict is Health.OK
    assert "is taken" in found.detail


def test_a_clock_of_another_century_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import UTC, datetime

    class Then(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime(1970, 1, 1, tzinfo=UTC)

    monkeypatch.setattr(machine, "datetime", Then)
    assert machine.clock_check().run(1.0).verdict is Health.BAD


@pytest.mark.rare(20)
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_spark_starts_and_reads_one_record() -> None:
    found = packages.spark_check().run(280.0)

    assert found.verdict is Health.OK, found.detail
    assert "read a record of a gateway" in found.detail


def test_a_spark_that_does_not_start_in_time_is_ended_with_its_java() -> None:
    found = packages.spark_check().run(1.0)

    assert (found.verdict, found.remedy) == (Health.BAD, "penstock doctor --limit 10m")
