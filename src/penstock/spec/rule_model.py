"""What a rule of the specification consists of; the rules themselves are in :mod:`penstock.spec.rules`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.spec.texts import TEXTS, Texts

LANGUAGES: Final[tuple[str, ...]] = tuple(TEXTS)
"""The languages in which every rule is told: English, Chinese and Korean, as ISO 639-1 codes."""


class Subject(StrEnum):
    """Whom a rule binds."""

    PUBLISHER = "Publisher"
    SUBSCRIBER = "Subscriber"
    SUBSCRIPTION = "Subscription"
    PROCESSOR = "Processor"


class Level(StrEnum):
    """How strongly a rule binds, in the words of RFC 2119."""

    MUST = "MUST"
    MUST_NOT = "MUST NOT"
    REQUIRED = "REQUIRED"
    SHOULD = "SHOULD"
    RECOMMENDED = "RECOMMENDED"
    MAY = "MAY"
    NOT_REQUIRED = "NOT REQUIRED"


class Origin(StrEnum):
    """Which document a rule comes from."""

    REACTIVE_STREAMS = "reactive-streams"
    AQUIFER = "aquifer"


class Check(StrEnum):
    """How one finds out whether a rule is kept."""

    GUARD = "guard"
    """While the program runs, at the boundary where ``strict`` was put."""
    KIT = "kit"
    """In a test, by the conformance kit, for an implementation that its author hands in."""
    REVIEW = "review"
    """By reading the code; no program can see it from outside."""
    NOTHING = "nothing"
    """Not at all: the rule is a permission, which cannot be broken."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a release of the specification changed about a rule.

    ``duty`` is true if code that kept the rule before may break it afterwards, or the other way round. All
    other changes are of the wording.
    """

    version: str
    what: str
    duty: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: what it demands of whom, why, since when, and how it is checked.

    ``levels`` are the binding words of the rule, the strongest first: a rule can demand one thing and allow
    another. ``checked_how`` says in a sentence what the checks can see, and what they cannot.
    """

    id: str
    subject: Subject
    levels: tuple[Level, ...]
    origin: Origin
    since: str
    changes: tuple[Change, ...]
    checks: tuple[Check, ...]
    checked_how: str

    @property
    def level(self) -> Level:
        """The strongest binding word of the rule."""
        return self.levels[0]

    def statement(self, lang: str = "en") -> str:
        """What the rule demands or allows, in one of ``LANGUAGES``, in words of our own."""
        return _texts(lang).statements[self.id]

    def intent(self, lang: str = "en") -> str:
        """Why the rule is there: what would go wrong without it."""
        return _texts(lang).intents[self.id]

    def addendum(self, lang: str = "en") -> str:
        """What the Aquifer document asks for beyond this rule (of §3.9 only), or an empty string."""
        return _texts(lang).addenda.get(self.id, "")


@dataclass(frozen=True, slots=True)
class Term:
    """A word that the rules use in a sense of their own."""

    id: str

    def name(self, lang: str = "en") -> str:
        """The word itself, in one of ``LANGUAGES``."""
        return _texts(lang).glossary[self.id][0]

    def meaning(self, lang: str = "en") -> str:
        """What it means in the rules."""
        return _texts(lang).glossary[self.id][1]


def _texts(lang: str) -> Texts:
    try:
        return TEXTS[lang]
    except KeyError:
        raise ValueError(f"No texts in language {lang!r}; there are {', '.join(LANGUAGES)}.") from None
