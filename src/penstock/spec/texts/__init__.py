"""What every rule says and why, in the languages of the readers: English, Chinese and Korean.

Each module of this package holds the same three tables: ``STATEMENTS`` (the rule), ``INTENTS`` (why it is
there) and ``ADDENDA`` (where a document asks for more than the others). ``glossary`` explains the words that
the rules use. The wording is ours and speaks of the Python methods; the Reactive Streams document stays the
authority for what a rule means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.spec.texts import en, glossary, ko, zh


class Texts(NamedTuple):
    """The tables of one language, each from rule id to text; the glossary from term to word and meaning."""

    statements: Mapping[str, str]
    intents: Mapping[str, str]
    addenda: Mapping[str, str]
    glossary: Mapping[str, tuple[str, str]]


TEXTS: Final[Mapping[str, Texts]] = {
    "en": Texts(en.STATEMENTS, en.INTENTS, en.ADDENDA, glossary.ENGLISH),
    "zh": Texts(zh.STATEMENTS, zh.INTENTS, zh.ADDENDA, glossary.CHINESE),
    "ko": Texts(ko.STATEMENTS, ko.INTENTS, ko.ADDENDA, glossary.KOREAN),
}
