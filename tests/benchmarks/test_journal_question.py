"""What is asked about journals: all alternatives store all records, and leave the settings as they were."""

from __future__ import annotations

from benchmarks.questions import ask
from penstock.aquifer.log import database, segments


def test_every_alternative_stores_everything() -> None:
    before = database.PAGE_BYTES, segments.INLINE_BYTES
    with ask("journal_append") as question:
        names = {each.name for each in question.alternatives}
        assert {question.base, *(each.base for each in question.alternatives)} <= names
        for alternative in question.alternatives:
            assert alternative.run(6_000) == question.expected(6_000), alternative.name
    assert before == (database.PAGE_BYTES, segments.INLINE_BYTES)
