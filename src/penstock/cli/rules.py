"""``penstock rules``: read the specification at the command line, in three languages."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from penstock.cli.parser import Commands
from penstock.cli.screen import say
from penstock.cli.table import pad, wrap
from penstock.spec import GLOSSARY, LANGUAGES, RULES, Rule, Subject, UnknownRule, rule

_EXAMPLES = """\
examples:
  penstock rules                        all rules, briefly
  penstock rules --subject Publisher    those that bind a Publisher
  penstock rules 3.9                    one rule in full: what, why, since when, how it is checked
  penstock rules 1.1 1.3 --lang zh      two rules, in Chinese
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


def add_parser(commands: Commands) -> None:
    """Add ``penstock rules`` to the command line."""
    parser = commands.add_parser(
        "rules",
        help="look up the rules of the specification",
        description="The 43 rules of Reactive Streams, and the one that the Aquifer document adds.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="ids of rules to show in full, for example 3.9")
    parser.add_argument("--lang", choices=LANGUAGES, default="en", help="language of the texts (default: en)")
    parser.add_argument(
        "--subject",
        choices=[str(subject) for subject in Subject],
        type=_subject,
        help="list only the rules that bind this interface",
    )
    parser.add_argument("--glossary", action="store_true", help="explain the words that the rules use")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the rules that were asked for; return 2 if there is none of that id."""
    width = max(shutil.get_terminal_size().columns, 60)
    if arguments.glossary:
        for line in _glossary(arguments.lang, width):
            print(line)
        return 0
    try:
        chosen = [rule(id) for id in arguments.ids]
    except UnknownRule as unknown:
        say(f"penstock rules: {unknown}")
        return 2
    if arguments.subject is not None:
        chosen = [entry for entry in chosen or RULES.values() if entry.subject == arguments.subject]
        if not chosen:
            say(f"penstock rules: none of these rules binds a {arguments.subject}.")
            return 2
    if arguments.ids:
        lines = _in_full(chosen, arguments.lang, width)
    else:
        lines = _briefly(chosen or RULES.values(), arguments.lang, width)
    for line in lines:
        print(line)
    return 0


def _glossary(lang: str, width: int) -> Iterator[str]:
    separator = False
    for term in GLOSSARY.values():
        if separator:
            yield ""
        separator = True
        # The English word stands beside, because the rules of other libraries are in English.
        yield term.name(lang) if lang == "en" else f"{term.name(lang)} ({term.name()})"
        yield from (f"  {line}" for line in wrap(term.meaning(lang), width - 2))


def _subject(text: str) -> str:
    # `publisher` is as good as `Publisher`; argparse compares with the choices afterwards.
    return text.capitalize()


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
