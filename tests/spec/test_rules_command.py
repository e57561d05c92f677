"""``penstock rules`` at the command line."""

import subprocess
import sys

import pytest

from penstock import __version__
from penstock.cli import main
from penstock.cli.table import columns, pad, wrap
from penstock.spec import RULES, rule


@pytest.fixture
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def flat(text):
    return "".join(text.split())


@pytest.mark.parametrize("lang", ["en", "zh", "ko"])
def test_the_table_has_every_rule(lang, capsys, narrow):
    assert main(["rules", "--lang", lang]) == 0
    out = capsys.readouterr().out
    for entry in RULES.values():
        assert f"  {entry.id} " in out
        assert flat(entry.statement(lang)) in flat(out)
    assert all(columns(line) <= 80 for line in out.splitlines())


@pytest.mark.parametrize("lang", ["en", "zh", "ko"])
@pytest.mark.parametrize("entry", RULES.values(), ids=lambda entry: entry.id)
def test_one_rule_is_shown_whole(entry, lang, capsys, narrow):
    assert main(["rules", entry.id, "--lang", lang]) == 0
    out = flat(capsys.readouterr().out)
    for part in (
        entry.statement(lang),
        entry.intent(lang),
        entry.addendum(lang),
        entry.checked_how,
        entry.origin,
    ):
        assert flat(part) in out
    for change in entry.changes:
        assert flat(f"{change.version}: {change.what}") in out


def test_several_rules_in_the_order_asked_for(capsys):
    assert main(["rules", "3.9", "1.1"]) == 0
    out = capsys.readouterr().out
    assert out.index("§3.9") < out.index("§1.1")


@pytest.mark.parametrize("subject", ["Publisher", "publisher"])
def test_a_subject_has_its_own_table(subject, capsys):
    assert main(["rules", "--subject", subject]) == 0
    out = capsys.readouterr().out
    assert "  1.12 " in out
    assert "  2.1 " not in out


def test_an_unknown_rule_says_which_there_are(capsys):
    assert main(["rules", "3.99"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert (
        captured.err == "penstock rules: There is no rule '3.99': chapter 3 (Subscription) has 3.1 to 3.17.\n"
    )


def test_a_rule_of_another_subject_is_no_answer(capsys):
    assert main(["rules", "3.9", "--subject", "Publisher"]) == 2
    assert "none of these rules binds a Publisher" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong", [["rules", "--lang", "fr"], ["rules", "--subject", "Plumber"], ["nonsense"]]
)
def test_a_wrong_command_line_ends_with_2_and_the_choices(wrong, capsys):
    assert main(wrong) == 2
    assert "choose from" in capsys.readouterr().err


def test_help_and_version(capsys):
    assert main(["--help"]) == 0
    assert "examples:" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert __version__ in capsys.readouterr().out
    assert main([]) == 0
    assert "rules" in capsys.readouterr().out


def test_a_reader_that_has_enough_is_no_error():
    program = "import sys; from penstock.cli import main; sys.exit(main(['rules']))"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()  # before anything can have been written
        errors = process.stderr.read()
        assert process.wait() == 0
    assert errors == b""


def test_it_is_a_module_too():
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "rules", "3.6"], capture_output=True, text=True, check=True
    )
    assert rule("3.6").statement() in done.stdout


def test_columns_of_wide_characters():
    assert columns("ab") == 2
    assert columns("需求") == 4
    assert pad("수요", 6) == "수요  "
    assert wrap("需求量，限定", 6) == ["需求", "量，限", "定"]
    assert wrap("one two three", 8) == ["one two", "three"]
