"""Names of files that UTF-8 cannot encode: in the reasons, the status and the errors of a gateway."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from penstock import feeds
from penstock.aquifer import (
    AquiferPublisher,
    Gateway,
    SqliteJournal,
    Unreadable,
    compact_journal,
    probe,
    verify_journal,
)
from penstock.aquifer.log import segments
from penstock.streams import Flux
from tests.aquifer.faults.rigs import ANYWHERE, eventually, read
from tests.aquifer.log.making import everything, fill

ODD = b"odd-\xff"
VALUE = b"x" * (segments.INLINE_BYTES + 1)


def odd(folder: Path) -> str:
    name = os.path.join(os.fsencode(folder), ODD)
    try:
        os.mkdir(name)
    except OSError:
        pytest.skip("this file system has no such names")
    return os.fsdecode(name)


def test_a_bad_line_in_a_file_with_such_a_name_is_a_dead_letter(tmp_path: Path) -> None:
    folder = odd(tmp_path)
    with open(os.path.join(folder, os.fsdecode(b"\xfe.jsonl")), "wb") as file:
        file.write(b'{"n": 1}\nbroken\n{"n": 2}\n')
    options = feeds.FeedOptions(codec="json", on_bad_line="dead-letter")
    with Gateway(
        feeds.open(f"dir:{folder}", options), ANYWHERE, codec="json", on_bad_record="dead-letter"
    ) as gateway:
        assert [*AquiferPublisher(gateway.endpoint, codec="json").flux()] == [{"n": 1}, {"n": 2}]
        (letter,) = AquiferPublisher(f"{gateway.endpoint}/dead-letters", codec="json").flux()
        assert "\\udcfe.jsonl" in letter["position"]
        assert probe(gateway.endpoint, 60).head == 2


def test_a_damaged_journal_with_such_a_name_fails_its_reader_and_not_the_gateway(tmp_path: Path) -> None:
    folder = odd(tmp_path)
    journal = SqliteJournal(os.path.join(folder, "journal"), cache_bytes=1)
    with Gateway(Flux.just(VALUE, VALUE), ANYWHERE, journal=journal) as gateway:
        eventually(lambda: gateway.status().head == 2)
        (segment,) = (
            os.path.join(f"{journal.path}-segments", name) for name in os.listdir(f"{journal.path}-segments")
        )
        os.truncate(segment, 100)
        reader = read(gateway.endpoint).wait()
        assert isinstance(reader.error, Unreadable)
        assert "odd-\\udcff" in str(reader.error)
        assert probe(gateway.endpoint, 60).head == 2, "the gateway still answers"


@pytest.mark.parametrize("name", [b"odd-\xff", b"two\nlines", b"a?b#c%d'e"])
def test_a_journal_with_such_a_name_is_verified_and_compacted(tmp_path: Path, name: bytes) -> None:
    path = os.path.join(odd(tmp_path), os.fsdecode(name))
    with closing(SqliteJournal(path)) as journal:
        stored = fill(journal, [10, 10], width=1000)

    assert compact_journal(path).records == 20

    assert verify_journal(path).is_sound
    with closing(SqliteJournal(path)) as journal:
        assert everything(journal) == stored
