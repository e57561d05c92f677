"""The words of the rules are explained in three languages, and "eventually" does not mean "soon"."""

import re

import pytest

from penstock.cli import main
from penstock.cli.table import columns
from penstock.spec import GLOSSARY, LANGUAGES, RULES, VERSIONS, rule
from tests.spec.test_rules import SCRIPTS

SOON = {
    "en": r"\bsoon\b(?! or later)|before long|shortly",
    "zh": "很快|不久|马上|即将",
    "ko": "머지않아|곧(?!바로)|이내|조만간",
}


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("term", GLOSSARY.values(), ids=lambda term: term.id)
def test_every_term_is_explained_in_its_own_script(term, lang):
    assert term.name(lang)
    assert term.id == "nop" or re.search(SCRIPTS[lang], term.name(lang))
    assert re.search(SCRIPTS[lang], term.meaning(lang))
    assert term.meaning(lang).endswith("。" if lang == "zh" else ".")
    assert "  " not in term.meaning(lang)
    for other in {"zh", "ko"} - {lang}:
        assert not re.search(SCRIPTS[other], term.name(lang) + term.meaning(lang))


def test_a_term_of_an_unknown_language_says_which_there_are():
    with pytest.raises(ValueError, match="en, zh, ko"):
        GLOSSARY["demand"].meaning("tlh")


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("id", ["1.8", "3.12", "3.13"])
def test_what_has_to_happen_eventually_does_not_have_to_happen_soon(id, lang):
    assert not re.search(SOON[lang], rule(id).statement(lang))


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_command_prints_the_glossary(lang, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    assert main(["rules", "--glossary", "--lang", lang]) == 0

    out = capsys.readouterr().out
    for term in GLOSSARY.values():
        assert term.name(lang) in out
        assert term.name() in out
        assert "".join(term.meaning(lang).split()) in "".join(out.split())
    assert all(columns(line) <= 80 for line in out.splitlines())


def test_one_release_changed_a_duty_and_says_so():
    changed = {entry.id: change for entry in RULES.values() for change in entry.changes if change.duty}

    assert list(changed) == ["3.9"]
    assert changed["3.9"].version == "1.0.1"
    assert "MUST cite" in changed["3.9"].what
    assert "§3.9" in VERSIONS["1.0.1"]
