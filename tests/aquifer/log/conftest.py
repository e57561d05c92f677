"""What the tests of the journals have in common."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.aquifer.log import Journal, SqliteJournal, kafka_segments, segments
from tests.aquifer.log.making import open_journal

Open = Callable[..., Any]


@pytest.fixture(scope="session", autouse=True)
def small_segments() -> Iterator[None]:
    """Segments of the index in Kafka have four batches here, so that tests with few batches have segments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_segments, "_MOST_BATCHES", 4)
        yield


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        "sqlite-without-memory",
        "segments-without-memory",
        pytest.param("kafka", marks=pytest.mark.slow),
    ]
)
def open_any(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens each kind of journal in turn; those without memory find every batch on the disk."""
    if request.param == "segments-without-memory":
        request.getfixturevalue("all_in_segments")
    opened: list[Journal] = []
    kind, where = request.param, tmp_path
    topic = ""
    if kind == "kafka":
        where, topic = request.getfixturevalue("kafka"), f"log-{secrets.token_hex(4)}"

    def open_one(**settings: Any) -> Journal:
        if kind.endswith("-without-memory"):
            settings["cache_bytes"] = 1
        if kind == "kafka":
            # It finds some batches in memory, and reads the others back.
            settings.setdefault("cache_bytes", 2000)
        opened.append(open_journal(kind, where, topic=topic, **settings))
        return opened[-1]

    yield open_one
    for journal in opened:
        journal.close()


@pytest.fixture
def all_in_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every group is large, and segment files are short."""
    monkeypatch.setattr(segments, "INLINE_BYTES", 0)
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 4000)


@pytest.fixture
def journal(open_any: Open) -> Journal:
    """Each kind of journal, new and empty, for a hundred records or ten thousand bytes."""
    made: Journal = open_any(max_records=100, max_bytes=10_000)
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the journal in a file is."""
    return tmp_path / "journal.db"


@pytest.fixture
def open_sqlite(path: Path) -> Iterator[Callable[..., SqliteJournal]]:
    """Opens the journal in the file, and closes it after the test."""
    opened: list[SqliteJournal] = []

    def open_one(where: Path = path, **settings: Any) -> SqliteJournal:
        opened.append(SqliteJournal(where, **settings))
        return opened[-1]

    yield open_one
    for journal in opened:
        journal.close()
