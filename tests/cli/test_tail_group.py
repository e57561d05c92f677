"""``penstock tail --group``: several of them share the records, and the gateway shows who reads what."""

from __future__ import annotations

import json
import signal

import pytest

from penstock.aquifer import Gateway, Limits, Record, partition_of, probe
from penstock.cli import main
from penstock.streams import Flux
from tests.aquifer.faults.rigs import ANYWHERE, ByHand, eventually
from tests.cli.running import PATIENCE, Program, penstock


def records(count: int, first: int = 0) -> list[Record]:
    return [Record(b"line %d" % n, key=b"k%d" % (n % 20)) for n in range(first, first + count)]


def test_two_tails_share_the_records_and_one_takes_over(capsys: pytest.CaptureFixture[str]) -> None:
    source = ByHand()
    with Gateway(source, ANYWHERE, limits=Limits(member_timeout=60.0)) as gateway:
        where = gateway.endpoint, "--group", "printers", "--partitions", "4", "--json"
        with Program("tail", *where) as one, Program("tail", *where) as two:

            def are_shared() -> bool:
                groups = probe(gateway.endpoint, 10.0).groups or []
                return [sorted(map(len, (m.partitions for m in group.members))) for group in groups] == [
                    [2, 2]
                ]

            eventually(are_shared)
            source.give(*records(100))
            parts = [
                {partition_of(entry["key"].encode(), 0, 4) for entry in read_lines(program, 25)}
                for program in (one, two)
            ]
            assert not parts[0] & parts[1], "each has keys of its own"

            assert main(["gateway", "ls", gateway.endpoint]) == 0
            listed = capsys.readouterr().out
            assert listed.count("streaming by ") == 4
            assert "printers/0-of-4" in listed
            assert main(["gateway", "status", gateway.endpoint]) == 0
            shown = " ".join(capsys.readouterr().out.split())
            assert "groups printers: 4 partitions, 2 members;" in shown
            assert shown.count(" reads ") == 2

            two.process.send_signal(signal.SIGINT)
            assert two.end() == 130
            assert "printers can continue there within" in two.said[-1]
            one.wait_for("partitions of printers that this member reads: 0, 1, 2, 3")
            source.give(*records(40, first=100))
            source.complete()
            rest = [json.loads(line) for line in one.stdout]
            assert one.end() == 0
            assert {entry["offset"] for entry in rest} >= set(range(100, 140))
    assert main(["tail", "tcp://127.0.0.1:1", "--group", "g", "--id", "me"]) == 2
    assert "--group and --id do not go together" in capsys.readouterr().err


def read_lines(program: Program, count: int) -> list[dict[str, str]]:
    return [json.loads(program.stdout.readline()) for _ in range(count)]


def test_a_group_prints_everything_once_and_remembers_it() -> None:
    with Gateway(Flux.from_iterable(records(200)), ANYWHERE) as gateway:
        first = penstock("tail", gateway.endpoint, "--group", "g", "--count", "50")
        second = penstock("tail", gateway.endpoint, "--group", "g")
        third = penstock("tail", gateway.endpoint, "--group", "g")
    assert [first.returncode, second.returncode, third.returncode] == [0, 0, 0]
    assert len(first.stdout.splitlines()) == 50
    printed = first.stdout.splitlines() + second.stdout.splitlines()
    assert sorted(printed) == sorted(f"line {n}" for n in range(200))
    assert third.stdout == ""


def test_a_new_group_begins_at_a_time() -> None:
    noon = 1_769_860_800_000_000
    minutes = [Record(b"minute %d" % minute, timestamp=noon + minute * 60_000_000) for minute in range(60)]
    with Gateway(Flux.from_iterable(minutes), ANYWHERE) as gateway:
        assert gateway.join(PATIENCE)
        done = penstock("tail", gateway.endpoint, "--group", "g", "--from", "2026-01-31T12:57")
    assert sorted(done.stdout.splitlines()) == ["minute 57", "minute 58", "minute 59"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--partitions", "4"], "add --group NAME"),
        (["--group", "g", "--key", "k"], "--group and --key do not go together"),
        (["--group", "g", "--to", "9"], "--group and --to do not go together"),
        (["--group", "g", "--optional"], "--group and --optional do not go together"),
        (["--group", "g", "--dialect", "plain"], "--group and --dialect plain do not go together"),
    ],
)
def test_options_that_do_not_go_together(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tail", "tcp://127.0.0.1:1", *arguments]) == 2
    assert text in capsys.readouterr().err


def test_another_number_of_partitions_is_one_sentence() -> None:
    with Gateway(Flux.from_iterable(records(5)), ANYWHERE) as gateway:
        assert penstock("tail", gateway.endpoint, "--group", "g", "--partitions", "2").returncode == 0
        done = penstock("tail", gateway.endpoint, "--group", "g", "--partitions", "3")
    assert done.returncode == 1
    assert "has 2 partitions, and 3 were asked for" in done.stderr
    assert "Traceback" not in done.stderr
