"""Whatever is wrong with a command line is told in one line: which argument, what is wrong, what to do."""

import re

import pytest

from penstock.cli import REGISTRATIONS, build_parser, main

WRONG = [
    ("demo --duration abc", "--duration", "write 90s"),
    ("demo --duration 0.5", "--duration", "at least 1 second"),
    ("demo --records none", "--records", "write 500"),
    ("demo --start-limit soon", "--start-limit", "write 90s"),
    ("demo --folow", "--folow", "not known"),
    ("gateway --source", "--source", "expected one argument"),
    ("gateway --source stdin --max-line long", "--max-line", "write 500000"),
    ("gateway --source stdin --max-records 0", "--max-records", "write 500"),
    ("gateway --source stdin --max-age old", "--max-age", "write 90s"),
    ("gateway --source stdin --on-bad-line weep", "--on-bad-line", "choose from"),
    ("gateway --source stdin --folow", "--folow", "not known"),
    ("gateway --sorce stdin", "--sorce", "(did you mean --source?); see `penstock gateway --help`"),
    ("gateway --source=stdin --max-record=few", "--max-records", "write 500"),
    ("gateway staus tcp://127.0.0.1:1", "'staus'", "(did you mean status?)"),
    ("tail tcp://127.0.0.1:1 --coedc json", "--coedc", "(did you mean --codec?)"),
    ("tale tcp://127.0.0.1:1", "'tale'", "(did you mean tail?); see `penstock --help`"),
    ("--debgu rules", "--debgu", "(did you mean --debug?)"),
    ("gateway --source stdin --follow", "--follow", "file:PATH"),
    ("gateway --source stdin --take-last-line", "--take-last-line", "file:PATH"),
    ("gateway --source file:x --follow --take-last-line", "--take-last-line", "give one of them"),
    ("gateway status", "ENDPOINT", "required"),
    ("tail", "ENDPOINT", "required"),
    ("tail tcp://127.0.0.1:1 --lease never", "--lease", "write 90s"),
    ("tail tcp://127.0.0.1:1 --patience never", "--patience", "write 90s"),
    ("tail tcp://127.0.0.1:1 --codec xml", "--codec", "write bytes, text"),
    ("tail tcp://127.0.0.1:1 --id mine --optional", "--id and --optional", "remembers nothing for"),
    ("run", "TARGET", "required"),
    ("run app.py --conf nonsense", "--conf", "write KEY=VALUE"),
    ("send -", "ADDRESS", "required"),
    ("send - tcp://127.0.0.1", "tcp://127.0.0.1", "the port is missing"),
    ("send - tcp://127.0.0.1:0", "tcp://127.0.0.1", "name the host and the port"),
    ("send - tcp://127.0.0.1:99999", "99999", "write unix:PATH"),
    ("send - http://127.0.0.1:80", "http://", "has to start with tcp:// or unix:"),
    ("echo --port abc", "--port", "from 0 to 65535"),
    ("echo --max-connections few", "--max-connections", "write 500"),
    ("rules --lang xx", "--lang", "choose from"),
    ("tck os:path --timeout soon", "--timeout", "write 90s"),
    ("tck os:path --elements -3", "--elements", "write 0, 1"),
    ("gateway peek tcp://127.0.0.1:1 first", "OFFSET", "write 0, 1"),
    ("gateway move tcp://127.0.0.1:1 nightly", "OFFSET", "required"),
    ("gateway verify", "JOURNAL", "required"),
    ("gateway export tcp://127.0.0.1:1", "FILE", "required"),
    ("doctor --limit soon", "--limit", "write 90s"),
    ("completion fish", "fish", "choose from"),
    ("nonsense", "nonsense", "choose from"),
]


@pytest.mark.parametrize(("line", "argument", "remedy"), WRONG)
def test_a_wrong_argument_is_named_with_the_remedy(
    capsys: pytest.CaptureFixture[str], line: str, argument: str, remedy: str
) -> None:
    assert main(line.split()) == 2

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("penstock")
    assert argument in said.err
    assert remedy in said.err
    assert said.err.count("\n") == 1


COMMANDS = [
    "demo",
    "gateway",
    "gateway status",
    "gateway ls",
    "gateway evict",
    "gateway forget",
    "gateway move",
    "gateway give",
    "gateway peek",
    "gateway export",
    "gateway verify",
    "gateway compact",
    "tail",
    "run",
    "top",
    "why",
    "dashboard",
    "send",
    "echo",
    "rules",
    "tck",
    "doctor",
    "completion",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_has_examples_that_can_be_parsed(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main([*command.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    examples = re.sub(r"\\\n\s*", "", shown.partition("examples:\n")[2])
    lines = [line.strip().split("  ")[0] for line in examples.splitlines() if f"penstock {command}" in line]

    assert lines
    for line in lines:
        words = line.partition(f"penstock {command}")[2].partition("|")[0].replace("'", "").split()
        build_parser().parse_args([*command.split(), *words])


def test_every_command_is_among_those_whose_help_was_looked_at() -> None:
    assert len({command.split()[0] for command in COMMANDS}) == len(REGISTRATIONS)
