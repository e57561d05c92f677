"""The rules of the specification as data: look one up, list them, print them.

>>> from penstock.spec import rule
>>> print(rule("3.6").statement())
On a cancelled Subscription, request MUST do nothing.

There are 44: the 43 rules of Reactive Streams (1.1 to 1.11 for the Publisher, 2.1 to 2.13 for the Subscriber,
3.1 to 3.17 for the Subscription, 4.1 and 4.2 for the Processor) and rule 1.12 of the Aquifer document. Error
messages, the strict guard, the conformance kit and ``penstock rules`` all draw on this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from penstock.spec.rule_model import Rule, Subject, Term
from penstock.spec.rule_table import ALL_RULES
from penstock.spec.texts import TEXTS

RULES: Final[Mapping[str, Rule]] = MappingProxyType({entry.id: entry for entry in ALL_RULES})
"""Every rule by its id, in the order of the document: 1.1, 1.2, … 4.2."""


GLOSSARY: Final[Mapping[str, Term]] = MappingProxyType({id: Term(id) for id in TEXTS["en"].glossary})
"""The words that the rules use in a sense of their own, by their id."""


class UnknownRule(KeyError):
    """There is no rule of that id; the message says which ones there are."""

    def __init__(self, id: str) -> None:
        """Remember ``id``, the id that was asked for."""
        super().__init__(id)
        self.id = id

    def __str__(self) -> str:
        chapter = self.id.lstrip("§ ").partition(".")[0]
        known = [known for known in RULES if known.partition(".")[0] == chapter]
        if known:
            where = f"chapter {chapter} ({RULES[known[0]].subject}) has {known[0]} to {known[-1]}"
        else:
            where = "there are " + ", ".join(
                f"{ids[0]} to {ids[-1]} ({subject})" for subject, ids in _ids_by_subject().items()
            )
        return f"There is no rule {self.id!r}: {where}."


def rule(id: str) -> Rule:
    """Look a rule up by its id, written ``"3.9"`` or ``"§3.9"``.

    An id that does not exist raises ``UnknownRule``, a ``KeyError`` that says which ids there are.
    """
    found = RULES.get(id.strip().removeprefix("§").strip())
    if found is None:
        raise UnknownRule(id)
    return found


def _ids_by_subject() -> dict[Subject, list[str]]:
    return {subject: [r.id for r in RULES.values() if r.subject is subject] for subject in Subject}
