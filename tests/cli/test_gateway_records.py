"""``penstock gateway move``, ``peek``, ``export``, ``verify`` and ``compact``."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from penstock import Flux
from penstock.aquifer import Gateway, LogReader, Record, SqliteJournal
from penstock.cli.gateway import records
from tests.aquifer.faults.rigs import ANYWHERE, eventually
from tests.cli.running import complaints
from tests.cli.test_gateway_admin import run

COUNT = 5000


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    values = [Record({"n": number}, key=b"k%d" % (number % 3)) for number in range(COUNT)]
    source = Flux.concat(Flux.from_iterable(values), Flux.never())
    with Gateway(source, ANYWHERE, codec="json") as gateway:
        eventually(lambda: gateway.status().head == COUNT)
        yield gateway


def test_an_id_is_moved_after_a_confirmation_if_it_loses_records(
    gateway: Gateway, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(LogReader(gateway.endpoint)) as client:
        client.state(name="nightly", acknowledge=10, lease=3600)
    code, _, err = run(capsys, "move", gateway.endpoint, "nightly", "90")
    assert code == 2
    assert "nightly never gets the records 10 to 89" in err
    assert gateway.status().saved["nightly"].acknowledged == 10

    code, out, _ = run(capsys, "move", gateway.endpoint, "nightly", "90", "--yes")
    assert (code, out) == (0, "moved: nightly from 10 to 90\n")
    # Back loses nothing, so nobody is asked.
    code, out, _ = run(capsys, "move", gateway.endpoint, "nightly", "20", "--json")
    assert (code, json.loads(out)) == (0, {"moved": {"id": "nightly", "acknowledged": 90, "offset": 20}})
    code, _, err = run(capsys, "move", gateway.endpoint, "nightly", "99999", "--yes")
    assert code == 1
    assert f"the log has the offsets 0 to {COUNT - 1}" in err
    gateway.forget("nightly")


def test_a_record_is_shown_with_its_time_key_and_size(
    gateway: Gateway, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "peek", gateway.endpoint, "7", "--count", "2")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split() == ["OFFSET", "TIME", "KEY", "SIZE", "VALUE"]
    assert [line.split()[0] for line in lines[1:]] == ["7", "8"]
    assert lines[1].split()[2:] == ["k1", "7B", '{"n":7}']

    code, out, _ = run(capsys, "peek", gateway.endpoint, "7", "--json")
    shown = json.loads(out)
    assert (shown["offset"], shown["key"], shown["size"], shown["value"]) == (7, "k1", 7, {"n": 7})
    assert shown["timestamp"].endswith("Z")
    assert gateway.status().saved == {}


def test_a_record_that_is_not_there_is_told(gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "peek", gateway.endpoint, "123456")
    assert code == 1
    assert f"there is no record 123456: the log has the offsets 0 to {COUNT - 1}" in err


def test_everything_is_exported_as_lines_of_json_or_raw(
    gateway: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, raw = tmp_path / "all.jsonl", tmp_path / "part.txt"
    code, out, err = run(capsys, "export", gateway.endpoint, str(file))
    assert (code, complaints(err)) == (0, [])
    assert out.startswith(f"{COUNT:,} records")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["offset"] for line in lines] == list(range(COUNT))
    assert lines[7]["value"] == {"n": 7}
    code, out, _ = run(
        capsys, "export", gateway.endpoint, str(raw), "--raw", "--from", "3", "--to", "5", "--json"
    )
    assert json.loads(out)["exported"]["records"] == 2
    assert raw.read_text() == '{"n":3}\n{"n":4}\n'
    assert sorted(os.listdir(tmp_path)) == ["all.jsonl", "part.txt"]

    code, _, err = run(capsys, "export", gateway.endpoint, str(file))
    assert code == 2
    assert "name another file" in err


def test_an_interrupted_export_is_resumed_and_torn_lines_are_cut(
    gateway: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "all.jsonl"

    class Killed(BaseException):
        pass

    whole = records._records

    def some(*arguments: Any, **settings: Any) -> Iterator[Record]:
        for number, record in enumerate(whole(*arguments, **settings)):
            if number == 1234:
                raise Killed
            yield record

    monkeypatch.setattr(records, "_records", some)
    with pytest.raises(Killed):
        run(capsys, "export", gateway.endpoint, str(file))
    assert json.loads(Path(f"{file}-progress").read_text())["next"] == 1234
    with file.open("ab") as torn:
        torn.write(b'{"offset": 1234, "val')
    monkeypatch.setattr(records, "_records", whole)
    code, out, _ = run(capsys, "export", gateway.endpoint, str(file), "--json")
    assert (code, json.loads(out)["resumed"]) == (0, True)
    assert [json.loads(line)["offset"] for line in file.read_text().splitlines()] == list(range(COUNT))
    assert not Path(f"{file}-progress").exists()


def test_an_export_of_another_log_is_not_mixed_with_this_one(
    gateway: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "all.jsonl"
    file.write_text("something\n")
    state = {"epoch": "another", "start": 0, "next": 5, "bytes": 10, "raw": False}
    Path(f"{file}-progress").write_text(json.dumps(state))
    code, _, err = run(capsys, "export", gateway.endpoint, str(file))
    assert code == 1
    assert "another log by now" in err
    assert file.read_text() == "something\n"


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "journal.db"
    with Gateway(
        Flux.range(0, 1000).map(str), ANYWHERE, codec="text", journal=SqliteJournal(path)
    ) as gateway:
        eventually(lambda: gateway.status().end is not None)
    return path


def test_a_journal_is_verified(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "verify", str(journal))
    assert (code, complaints(err)) == (0, [])
    assert out.startswith("sound: 1,000 records")
    assert "offsets 0 to 999" in out
    with closing(sqlite3.connect(journal)) as connection, connection:
        connection.execute("update batches set notes = x'00' where first = 0")
    code, out, err = run(capsys, "verify", str(journal))
    assert code == 1
    assert out.startswith("damaged: 1 finding")
    assert "are not what was written" in out
    assert "move the file away" in err
    code, out, _ = run(capsys, "verify", str(journal), "--json")
    assert (code, json.loads(out)["sound"]) == (1, False)


def test_a_journal_is_compacted(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "compact", str(journal), "--json")
    assert (code, json.loads(out)["records"]) == (0, 1000)
    assert run(capsys, "compact", str(journal))[0] == 0
    assert run(capsys, "verify", str(journal))[0] == 0


@pytest.mark.parametrize("command", ["verify", "compact"])
def test_a_journal_of_a_running_gateway_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal.db"
    with Gateway(Flux.never(), ANYWHERE, journal=SqliteJournal(path)):
        code, _, err = run(capsys, command, str(path))
    assert code == 1
    assert "is already open in this process" in err
    code, _, err = run(capsys, command, str(tmp_path / "nothing.db"))
    assert code == 1
    assert "there is no journal" in err


# ---------------------------------------------------------------- exports that cannot be what was asked for
def begun(file: Path, gateway: Gateway, up_to: int) -> None:
    """An export that was interrupted."""
    file.write_bytes(b"".join(b'{"n":%d}\n' % number for number in range(up_to)))
    state = {
        "epoch": gateway.status().epoch,
        "start": 0,
        "next": up_to,
        "bytes": file.stat().st_size,
        "raw": True,
    }
    Path(f"{file}-progress").write_text(json.dumps(state))


def test_a_resumed_export_does_not_claim_to_end_before_what_the_file_has(
    gateway: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "part.txt"
    begun(file, gateway, 20)
    code, _, err = run(capsys, "export", gateway.endpoint, str(file), "--raw", "--to", "5")
    assert code == 2
    assert "has the records up to 20 already, beyond --to 5; remove" in err
    assert run(capsys, "export", gateway.endpoint, str(file), "--raw", "--to", "30")[0] == 0
    assert [json.loads(line) for line in file.read_text().splitlines()] == [{"n": n} for n in range(30)]


@pytest.mark.parametrize(
    ("bounds", "code", "said"),
    [
        (("--from", "20", "--to", "10"), 2, "--from 20 is beyond --to 10"),
        (("--from", "99999"), 1, f"there is no record 99999: the log has the offsets 0 to {COUNT - 1}"),
    ],
)
def test_a_range_that_the_log_does_not_have_is_told_and_leaves_no_file(
    gateway: Gateway,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    bounds: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    ended, _, err = run(capsys, "export", gateway.endpoint, str(tmp_path / "part.txt"), *bounds)
    assert ended == code
    assert said in err
    assert not list(tmp_path.iterdir())


def test_an_export_that_was_killed_at_its_very_beginning_is_begun_again(
    gateway: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "all.jsonl"

    class Killed(BaseException):
        pass

    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(records, "_save", kill)
        with pytest.raises(Killed):
            run(capsys, "export", gateway.endpoint, str(file))
    assert file.exists()
    assert run(capsys, "export", gateway.endpoint, str(file))[0] == 0
    assert len(file.read_text().splitlines()) == COUNT


def test_two_exports_do_not_write_the_same_file(
    gateway: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "all.jsonl"
    whole, seconds = records._records, []

    def meanwhile(*arguments: Any, **settings: Any) -> Iterator[Record]:
        monkeypatch.setattr(records, "_records", whole)
        seconds.append(run(capsys, "export", gateway.endpoint, str(file)))
        yield from whole(*arguments, **settings)

    monkeypatch.setattr(records, "_records", meanwhile)
    assert run(capsys, "export", gateway.endpoint, str(file))[0] == 0
    ((code, _, err),) = seconds
    assert code == 1
    assert "another export writes" in err
    assert [json.loads(line)["offset"] for line in file.read_text().splitlines()] == list(range(COUNT))


def test_a_stream_that_ends_too_early_is_not_a_complete_export(
    gateway: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, whole = tmp_path / "all.jsonl", records._records
    with monkeypatch.context() as patched:
        patched.setattr(records, "_records", lambda *given: islice(whole(*given), 100))
        code, _, err = run(capsys, "export", gateway.endpoint, str(file))
    assert code == 1
    assert f"the stream ended at 100, before {COUNT}" in err
    assert run(capsys, "export", gateway.endpoint, str(file))[0] == 0
    assert [json.loads(line)["offset"] for line in file.read_text().splitlines()] == list(range(COUNT))


@pytest.mark.parametrize("wrong", [{"bytes": None}, {"next": "20"}, {"start": [0]}])
def test_a_progress_that_says_nothing_is_told(
    gateway: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: dict[str, object]
) -> None:
    file = tmp_path / "all.txt"
    begun(file, gateway, 20)
    progress, before = Path(f"{file}-progress"), file.read_bytes()
    progress.write_text(json.dumps(json.loads(progress.read_text()) | wrong))
    code, _, err = run(capsys, "export", gateway.endpoint, str(file), "--raw")
    assert code == 2
    assert "does not say how far the export had come; remove" in err
    assert file.read_bytes() == before


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root has others' journals")
@pytest.mark.parametrize("command", ["verify", "compact"])
def test_root_leaves_a_journal_to_its_user(
    command: str, journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(f"{journal}-lock").unlink()
    os.chown(journal, 12345, 12346)
    assert run(capsys, command, str(journal))[0] == 0
    for file in (journal, Path(f"{journal}-lock")):
        assert (file.stat().st_uid, file.stat().st_gid) == (12345, 12346)


@pytest.mark.parametrize("command", ["verify", "compact"])
def test_an_empty_path_of_a_journal_is_a_wrong_command_line(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, command, "")
    assert code == 2
    assert "the path of the journal is empty" in err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_an_output_without_space_is_a_failure_and_no_defect(gateway: Gateway) -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "penstock.cli", "gateway", "peek", gateway.endpoint, "7"]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    assert "cannot write the output: No space left on device" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
