"""The codec of the records is recorded: one log has records of one kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.aquifer import JournalError
from tests.aquifer.log.making import fill

Open = Callable[..., Any]


class TestCodec:
    def test_of_records_that_are_there_cannot_be_changed(self, open_any: Open) -> None:
        journal = open_any()
        journal.use_codec("json")
        fill(journal, [3])
        journal.use_codec("json")

        with pytest.raises(
            JournalError, match=r"records of the codec 'json'.* 'text': no reader could read both"
        ):
            journal.use_codec("text")

    def test_of_an_empty_journal_can_be_changed(self, open_any: Open) -> None:
        journal = open_any(max_records=10)
        journal.use_codec("json")
        journal.use_codec("text")
        fill(journal, [3])
        assert journal.make_space(10, 0, 10)

        journal.use_codec("json")

    def test_is_known_after_a_restart(self, open_sqlite: Open) -> None:
        journal = open_sqlite()
        journal.use_codec("json")
        fill(journal, [3])
        journal.close()

        with pytest.raises(JournalError, match="codec 'json'"):
            open_sqlite().use_codec("text")

    def test_of_a_journal_that_does_not_know_it_is_that_of_the_first_gateway(self, open_sqlite: Open) -> None:
        journal = open_sqlite()
        fill(journal, [3])
        journal.close()
        journal = open_sqlite()
        journal.use_codec("json")
        journal.close()

        with pytest.raises(JournalError, match="codec 'json'"):
            open_sqlite().use_codec("text")
