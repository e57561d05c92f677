"""``penstock rules``: read the specification at the command line, in three languages."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.cli.parser import Commands, add_command
from penstock.cli.screen import say
from penstock.cli.style import json_option, print_json
from penstock.cli.table import pad, wrap
from penstock.options import option
from penstock.spec import GLOSSARY, LANGUAGES, RULES, Rule, Subject, UnknownRule, rule

_EXAMPLES = """\
examples:
  penstock rules                        all rules, briefly
  penstock rules --subject Publisher    those that bind a Publisher
  penstock rules 3.9                    one rule in full: what, why, since when, how it is checked
  penstock rules 1.1 1.3 --lang zh      two rules, in Chinese
  penstock rules --json                 for a program
  penstock rules --glossary --lang ko   the words that the rules use, in Korean
"""


class _Headings(NamedTuple):
    binds: str
    why: str
    origin: str
    history: str
    unchanged: str
    checked: str


_HEADINGS: Final[dict[str, _Headings]] = {
    "en": _Headings("Binds", "Why", "Origin", "History", "the same since", "Checked by"),
    "zh": _Headings("约束对象", "原因", "出处", "沿革", "未变更，始于", "检查方式"),
    "ko": _Headings("대상", "이유", "출처", "변천", "변함없음, 최초", "검사 방법"),
}


def _subject(text: str) -> str:
    # `publisher` is as good as `Publisher`; argparse compares it with the choices afterwards.
    return text.capitalize()


@dataclass(frozen=True, kw_only=True)
class RulesOptions:
    """The options of ``penstock rules``."""

    ids: tuple[str, ...] = option(
        (), positional=True, repeated=True, metavar="ID", help="rules to show in full, such as 3.9"
    )
    lang: str = option("en", choices=LANGUAGES, help="the language of the texts")
    subject: str | None = option(
        None,
        choices=[str(subject) for subject in Subject],
        parse=_subject,
        help="list only the rules for this interface",
    )
    glossary: bool = option(False, help="explain the words that the rules use")
    json: bool = json_option()


def _load() -> tuple[type[RulesOptions], Callable[[RulesOptions], int]]:
    return RulesOptions, run_rules


def add_parser(commands: Commands) -> None:
    """Add ``penstock rules`` to the command line."""
    add_command(
        commands,
        "rules",
        _load,
        help="look up the rules of the specification",
        description="The 43 rules of Reactive Streams, and the one that the Aquifer document adds.",
        examples=_EXAMPLES,
    )


def run_rules(options: RulesOptions) -> int:
    """Print the rules that were asked for; 2 if a rule does not exist."""
    width = max(shutil.get_terminal_size().columns, 60)
    if options.glossary and options.json:
        terms = [
            {"name": term.name(options.lang), "meaning": term.meaning(options.lang)}
            for term in GLOSSARY.values()
        ]
        print_json({"terms": terms})
        return 0
    if options.glossary:
        for line in _glossary(options.lang, width):
            print(line)
        return 0
    try:
        chosen = [rule(id) for id in options.ids]
    except UnknownRule as unknown:
        say(f"penstock rules: {unknown}")
        return 2
    if options.subject is not None:
        chosen = [entry for entry in chosen or RULES.values() if entry.subject == options.subject]
        if not chosen:
            say(f"penstock rules: none of these rules binds a {options.subject}.")
            return 2
    if options.json:
        print_json({"rules": [_as_dict(entry, options.lang) for entry in chosen or RULES.values()]})
        return 0
    if options.ids:
        lines = _in_full(chosen, options.lang, width)
    else:
        lines = _briefly(chosen or RULES.values(), options.lang, width)
    for line in lines:
        print(line)
    return 0


def _as_dict(entry: Rule, lang: str) -> dict[str, object]:
    return {
        "id": entry.id,
        "subject": str(entry.subject),
        "levels": [str(level) for level in entry.levels],
        "statement": entry.statement(lang),
        "intent": entry.intent(lang),
        "addendum": entry.addendum(lang) or None,
        "origin": str(entry.origin),
        "since": str(entry.since),
        "checks": [str(check) for check in entry.checks],
    }


def _glossary(lang: str, width: int) -> Iterator[str]:
    separator = False
    for term in GLOSSARY.values():
        if separator:
            yield ""
        separator = True
        # The English word stands beside, because the rules of other libraries are in English.
        yield term.name(lang) if lang == "en" else f"{term.name(lang)} ({term.name()})"
        yield from (f"  {line}" for line in wrap(term.meaning(lang), width - 2))


def _briefly(rules: Iterable[Rule], lang: str, width: int) -> Iterator[str]:
    subject = None
    for entry in rules:
        if entry.subject != subject:
            if subject is not None:
                yield ""
            subject = entry.subject
            yield str(subject)
        prefix = f"  {pad(entry.id, 5)} {pad(entry.level, 11)} "
        for line in wrap(entry.statement(lang), width - len(prefix)):
            yield prefix + line
            prefix = " " * len(prefix)


def _in_full(rules: Iterable[Rule], lang: str, width: int) -> Iterator[str]:
    separator = False
    for entry in rules:
        if separator:
            yield ""
        separator = True
        yield f"§{entry.id}  {', '.join(entry.levels)}"
        yield ""
        yield from (f"  {line}" for line in wrap(entry.statement(lang), width - 2))
        yield ""
        for heading, texts in _details(entry, lang):
            indent = f"  {pad(heading, 14)}"
            for text in texts:
                for line in wrap(text, width - 16):
                    yield indent + line
                    indent = " " * 16


def _details(entry: Rule, lang: str) -> Iterator[tuple[str, list[str]]]:
    headings = _HEADINGS[lang]
    yield headings.why, [entry.intent(lang)]
    if entry.addendum(lang):
        yield "Aquifer", [entry.addendum(lang)]
    yield headings.binds, [str(entry.subject)]
    yield headings.origin, [str(entry.origin)]
    changes = [f"{change.version}: {change.what}" for change in entry.changes]
    yield headings.history, changes or [f"{headings.unchanged} {entry.since}"]
    yield headings.checked, [f"{', '.join(entry.checks)}: {entry.checked_how}"]
