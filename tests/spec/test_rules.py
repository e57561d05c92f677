"""The catalogue is complete, in order, and told in three languages."""

import pickle
import re

import pytest

from penstock.spec import LANGUAGES, RULES, VERSIONS, Check, Level, Origin, Rule, Subject, UnknownRule, rule

EVERY_RULE = list(RULES.values())
SCRIPTS = {"en": r"[A-Za-z]{3}", "zh": r"[\u4e00-\u9fff]", "ko": r"[\uac00-\ud7a3]"}
BINDING = re.compile(r"MUST NOT|NOT REQUIRED|MUST|REQUIRED|SHOULD|RECOMMENDED|MAY")


def every_rule(test):
    return pytest.mark.parametrize("entry", EVERY_RULE, ids=lambda entry: entry.id)(test)


def test_there_are_44_in_the_order_of_the_document():
    chapters = {1: 12, 2: 13, 3: 17, 4: 2}
    assert list(RULES) == [f"{c}.{n}" for c, count in chapters.items() for n in range(1, count + 1)]
    assert len(RULES) == 44


def test_43_are_of_reactive_streams_and_one_of_aquifer():
    assert [entry.id for entry in EVERY_RULE if entry.origin is Origin.AQUIFER] == ["1.12"]
    assert {entry.since for entry in EVERY_RULE if entry.origin is Origin.REACTIVE_STREAMS} == {"1.0.0"}


@every_rule
def test_the_chapter_tells_the_subject(entry):
    assert entry.subject is list(Subject)[int(entry.id[0]) - 1]


@every_rule
@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_text_is_there_in_its_own_script(entry, lang):
    for text in (entry.statement(lang), entry.intent(lang)):
        assert re.search(SCRIPTS[lang], text)
        assert text.endswith("。" if lang == "zh" else ".")
        assert text == text.strip()
        assert "  " not in text


@every_rule
def test_a_language_does_not_borrow_from_another(entry):
    assert not re.search(SCRIPTS["ko"], entry.statement("zh") + entry.intent("zh"))
    assert not re.search(SCRIPTS["zh"], entry.statement("ko") + entry.intent("ko"))
    assert (entry.statement() + entry.intent()).replace("→", "").replace("…", "").replace("§", "").isascii()


@every_rule
def test_method_names_are_the_same_in_every_language(entry):
    def methods(text):
        return set(re.findall(r"on_subscribe|on_next|on_error|on_complete", text))

    assert methods(entry.statement("zh")) == methods(entry.statement())
    assert methods(entry.statement("ko")) == methods(entry.statement())


@every_rule
def test_the_levels_are_the_binding_words_of_the_statement(entry):
    assert set(BINDING.findall(entry.statement())) == {str(level) for level in entry.levels}
    assert entry.level is entry.levels[0]


def test_levels_are_as_in_the_document():
    others = {
        "1.2": "MAY",
        "1.7": "REQUIRED",
        "1.11": "MAY",
        "2.2": "RECOMMENDED",
        "2.3": "MUST NOT",
        "3.4": "SHOULD",
        "3.10": "MAY",
        "3.11": "MAY",
        "3.14": "MAY",
    }
    assert {entry.id: str(entry.level) for entry in EVERY_RULE if entry.level is not Level.MUST} == others


def test_rules_with_two_sides_say_both():
    assert rule("1.10").levels == (Level.MUST, Level.MAY)
    assert rule("3.9").levels == (Level.MUST, Level.SHOULD)
    assert rule("3.12").levels == (Level.MUST, Level.NOT_REQUIRED)
    assert rule("4.2").levels == (Level.MUST, Level.MAY)


@every_rule
def test_every_rule_says_how_it_is_checked(entry):
    assert entry.checks
    assert entry.checked_how.endswith(".")
    if Check.NOTHING in entry.checks:
        assert entry.checks == (Check.NOTHING,)
        assert entry.level is Level.MAY


def test_a_rule_that_no_program_can_see_says_so():
    assert rule("3.1").checks == (Check.REVIEW,)


@every_rule
def test_changes_name_known_releases_in_order(entry):
    versions = [change.version for change in entry.changes]
    assert versions == sorted(versions)
    assert set(versions) <= set(VERSIONS) - {"1.0.0"}


def test_the_changes_that_matter_are_recorded():
    assert [change.version for change in rule("1.3").changes] == ["1.0.1", "1.0.2", "1.0.3"]
    assert [change.version for change in rule("2.7").changes] == ["1.0.3", "1.0.4"]
    assert [change.version for change in rule("3.9").changes] == ["1.0.1"]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_stricter_rule_of_aquifer_is_recorded(lang):
    assert "Aquifer" in rule("3.9").addendum(lang)
    assert [entry.id for entry in EVERY_RULE if entry.addendum(lang)] == ["3.9"]


@pytest.mark.parametrize("spelling", ["3.9", "§3.9", " § 3.9 "])
def test_a_rule_is_found_by_its_number(spelling):
    assert rule(spelling) is RULES["3.9"]


@pytest.mark.parametrize(
    ("id", "hint"),
    [
        ("3.18", r"chapter 3 \(Subscription\) has 3\.1 to 3\.17"),
        ("1.0", r"chapter 1 \(Publisher\) has 1\.1 to 1\.12"),
        ("5.1", r"1\.1 to 1\.12 \(Publisher\), 2\.1 to 2\.13"),
        ("", r"4\.1 to 4\.2 \(Processor\)"),
    ],
)
def test_an_unknown_number_says_which_there_are(id, hint):
    with pytest.raises(UnknownRule, match=hint) as caught:
        rule(id)
    assert isinstance(caught.value, KeyError)
    assert caught.value.id == id
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_an_unknown_language_says_which_there_are():
    with pytest.raises(ValueError, match="en, zh, ko"):
        rule("3.9").statement("tlh")


def test_the_catalogue_cannot_be_changed():
    with pytest.raises(TypeError):
        RULES["3.9"] = RULES["3.8"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        rule("3.9").id = "3.10"  # type: ignore[misc]
    assert isinstance(rule("3.9"), Rule)
