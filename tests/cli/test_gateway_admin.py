"""``penstock gateway ls``, ``evict``, ``forget`` and ``give``, as an administrator uses them."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock import Flux
from penstock.aquifer import CurveClient, CurveServer, Evicted, Gateway, LogReader, generate_keys, save_keys
from penstock.cli import main
from tests.aquifer.faults.rigs import ANYWHERE, Numbers, eventually, has, read
from tests.aquifer.writing import Courier, deliver

ALICE, BOB, ROOT, SERVER = (generate_keys() for _ in range(4))


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    source = Flux.concat(Flux.from_iterable(Numbers().values(0, 100)), Flux.never())
    with Gateway(source, ANYWHERE) as gateway:
        eventually(lambda: gateway.status()["head"] == 100)
        with closing(LogReader(gateway.endpoint)) as client:
            client.state(name="nightly", acknowledge=10, lease=3600)
        yield gateway


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["gateway", *arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_ids_and_sessions_are_listed(gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    reader, nameless = read(gateway.endpoint, 10, id="dashboard"), read(gateway.endpoint, 10)
    for each in (reader, nameless):
        eventually(has(each, 10))
    code, out, _ = run(capsys, "ls", gateway.endpoint)
    assert code == 0
    lines = out.splitlines()
    assert re.fullmatch(r"ID +SESSION +OWNER +BEHIND +FOR  STATE", lines[0])
    age = r"(?:-|\S+ s|\d+ min \d+ s)"
    assert re.fullmatch(rf"dashboard +\d+ +no key +\d+ +{age} +streaming from 127\.0\.0\.1", lines[1])
    assert re.fullmatch(rf"nightly +- +no key +90 +{age} +away, resumable for .+ of .+", lines[2])
    assert not re.search(r" 90 +- ", lines[2]), "it says for how long"
    assert re.fullmatch(rf"- +\d+ +no key +\d+ +{age} +streaming from 127\.0\.0\.1", lines[3])

    code, out, _ = run(capsys, "ls", gateway.endpoint, "--json")
    listed = json.loads(out)
    assert [(one["id"], one["here"]) for one in listed["ids"]] == [("dashboard", True), ("nightly", False)]
    assert len(listed["sessions"]) == 1
    assert listed["ids"][1]["lag_seconds"] > 0
    for each in (reader, nameless):
        each.cancel()


def test_nobody_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Gateway(Flux.never(), ANYWHERE) as gateway:
        assert run(capsys, "ls", gateway.endpoint)[:2] == (0, "no ids and no sessions\n")


@pytest.mark.parametrize("compress", ["zstd", None])
def test_the_status_says_what_compression_saves(
    capsys: pytest.CaptureFixture[str], compress: str | None
) -> None:
    with Gateway(Flux.from_iterable([b"x" * 100] * 1000), ANYWHERE, compress=compress) as gateway:
        eventually(lambda: gateway.status().end is not None)
        code, out, _ = run(capsys, "status", gateway.endpoint)
    assert code == 0
    first = out.splitlines()[0]
    assert bool(re.search(r", compressed to \d\.\d%$", first)) == (compress is not None), first


def test_a_session_is_ended_by_its_id_or_its_number(
    gateway: Gateway, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, nameless = read(gateway.endpoint, 10, id="dashboard"), read(gateway.endpoint, 10)
    for each in (reader, nameless):
        eventually(has(each, 10))
    assert run(capsys, "evict", gateway.endpoint, "dashboard")[:2] == (0, "ended: dashboard\n")
    assert isinstance(reader.wait().error, Evicted)
    number = gateway.ids()["sessions"][0]["session"]
    code, out, _ = run(capsys, "evict", gateway.endpoint, "--session", str(number), "--json")
    assert (code, json.loads(out)["evicted"]["session"]) == (0, number)
    assert isinstance(nameless.wait().error, Evicted)
    assert [one["id"] for one in gateway.ids()["ids"]] == ["dashboard", "nightly"]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["evict"], 2, "which session?"),
        (["evict", "nightly", "--session", "1"], 2, "which session?"),
        (["evict", "nightly"], 1, "nobody reads as 'nightly' at the moment"),
        (["evict", "--session", "99"], 1, "there is no session 99"),
        (["forget", "nobody", "--yes"], 1, "there is no id 'nobody'; `penstock gateway ls` lists them"),
        (["forget", "nobody"], 1, "there is no id 'nobody'"),
        (["give", "nightly", "no-such-file.pub", "--yes"], 2, "there is no key file"),
        (["give", "nobody", "none", "--yes"], 1, "there is no id 'nobody'"),
        (["give", "writer", "none", "--writer", "--yes"], 1, "nobody has published anything as 'writer'"),
    ],
)
def test_what_does_not_exist_is_told(
    gateway: Gateway, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, told: str
) -> None:
    command, *rest = arguments
    ended, out, err = run(capsys, command, gateway.endpoint, *rest)
    assert (ended, out) == (code, "")
    assert err.startswith(f"penstock gateway {command}: ")
    assert told in err


def test_an_id_is_deleted_only_after_it_was_said_twice(
    gateway: Gateway, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "forget", gateway.endpoint, "nightly")
    assert code == 2
    assert "nightly has not acknowledged 90 records" in err
    assert "--yes" in err
    assert len(gateway.ids()["ids"]) == 1

    assert run(capsys, "forget", gateway.endpoint, "nightly", "--yes")[:2] == (0, "deleted: nightly\n")
    assert gateway.ids()["ids"] == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "left"), [("y\n", 0), ("yes\n", 0), ("n\n", 1), ("\n", 1), ("", 1)])
def test_at_a_terminal_it_is_asked(
    gateway: Gateway,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    typed: str,
    left: int,
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    code, _, err = run(capsys, "forget", gateway.endpoint, "nightly")
    assert "Delete it? [y/N]" in err
    assert (code, len(gateway.ids()["ids"])) == (left, left)


def test_with_keys_it_takes_the_right_to_administer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, keys in (("alice", ALICE), ("bob", BOB), ("root", ROOT), ("gateway", SERVER)):
        save_keys(keys, tmp_path / name)
    allowed = {ALICE.public: "read, write", BOB.public: "read, write", ROOT.public: "admin"}

    def keys_of(name: str) -> list[str]:
        return ["--curve", str(tmp_path / f"{name}.key"), "--server-key", str(tmp_path / "gateway.pub")]

    curve = CurveServer(SERVER, allowed)
    with Gateway(None, None, curve=curve, curve_control=ANYWHERE, writable=True) as gateway:
        endpoint = gateway.curve_endpoint
        as_alice, as_bob = CurveClient(ALICE, SERVER.public), CurveClient(BOB, SERVER.public)
        with closing(Courier(endpoint, curve=as_alice)) as alice:
            deliver(alice, 0, [b"hers"], query="totals")
        with closing(LogReader(endpoint, curve=as_alice)) as client:
            client.state(name="nightly", acknowledge=0)

        code, _, err = run(capsys, "ls", endpoint, *keys_of("alice"))
        assert code == 1
        assert "this key may not administer this gateway: its rights are read, write" in err

        assert run(capsys, "ls", endpoint, *keys_of("root"))[0] == 0
        bob = str(tmp_path / "bob.pub")
        code, out, _ = run(capsys, "give", endpoint, "nightly", bob, "--yes", *keys_of("root"))
        assert (code, out) == (0, f"nightly now belongs to the key {BOB.public}\n")
        assert run(capsys, "give", endpoint, "totals", bob, "--writer", "--yes", *keys_of("root"))[0] == 0

        with closing(LogReader(endpoint, curve=as_bob)) as client:
            assert client.state(name="nightly").acknowledged == 0
        with closing(Courier(endpoint, curve=as_bob)) as courier:
            deliver(courier, 1, [b"his"], query="totals")
        assert gateway.status()["head"] == 2
