"""A process that is killed at any step of what it does to a journal: what was stored stays.

A child is forked that kills itself at its first statement to SQLite, then one that gets as far as the second,
and so on until one gets to its end.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from penstock.aquifer.log import Cursor, SqliteJournal, segments
from penstock.aquifer.records.batch import Batch
from tests.aquifer.log.format_one import EPOCH, write_format_one
from tests.aquifer.log.format_two import EPOCH as EPOCH_OF_TWO
from tests.aquifer.log.format_two import write_format_two
from tests.aquifer.log.making import batches_from, everything, fill

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
    pytest.mark.slow,
]

_connect = sqlite3.connect


def killed_at(statement: int, work: Callable[[], None]) -> bool:
    """Do the work in a child that kills itself at this statement; whether it got that far."""
    child = os.fork()
    if child == 0:
        left = statement

        def count(_: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), 9)

        def connect(*arguments: object, **options: object) -> sqlite3.Connection:
            connection: sqlite3.Connection = _connect(*arguments, **options)  # type: ignore[call-overload]
            connection.set_trace_callback(count)
            return connection

        sqlite3.connect = connect  # type: ignore[assignment]
        work()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -9)
    return os.WIFSIGNALED(status)


def at_every_statement(
    tmp_path: Path, prepare: Callable[[Path], None], work: Callable[[Path], None]
) -> list[Path]:
    """The journal after each of these deaths, and at last after none."""
    paths = []
    statement = 0
    going_on = True
    while going_on:
        statement += 1
        path = tmp_path / f"{statement}.db"
        prepare(path)
        going_on = killed_at(statement, lambda path=path: work(path))
        paths.append(path)
    assert len(paths) > 10
    return paths


def test_while_it_is_created(tmp_path: Path) -> None:
    for path in at_every_statement(tmp_path, lambda path: None, lambda path: SqliteJournal(path).close()):
        journal = SqliteJournal(path)
        assert journal.head == 0
        batches = fill(journal, [3])
        journal.close()
        journal = SqliteJournal(path)
        assert everything(journal) == batches
        journal.close()


@pytest.mark.parametrize(
    ("write", "epoch", "owner"),
    [(write_format_one, EPOCH, None), (write_format_two, EPOCH_OF_TWO, "a key")],
    ids=["1", "2"],
)
def test_while_it_is_brought_up_to_date(
    tmp_path: Path, write: Callable[[Path, Sequence[Batch]], None], epoch: str, owner: str | None
) -> None:
    batches = batches_from(0, [3, 4])

    for path in at_every_statement(
        tmp_path, lambda path: write(path, batches), lambda path: SqliteJournal(path).close()
    ):
        journal = SqliteJournal(path)
        assert journal.epoch == epoch
        assert everything(journal) == batches
        assert journal.cursors == {"ann": Cursor(2, 60_000, 60.0, owner)}
        assert journal.marks == {"delivered:totals": "31"}
        journal.close()


@pytest.mark.parametrize("inline", [segments.INLINE_BYTES, 0], ids=["in SQLite", "in segment files"])
def test_while_it_is_opened_used_and_closed(
    tmp_path: Path, inline: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "INLINE_BYTES", inline)

    def prepare(path: Path) -> None:
        journal = SqliteJournal(path)
        journal.use_codec("text")
        fill(journal, [3])
        journal.close()

    def work(path: Path) -> None:
        journal = SqliteJournal(path)
        journal.use_codec("text")
        journal.save_cursor("ann", Cursor(3, 60_000, 60.0))
        journal.append(batches_from(3, [4]), {"writer": "1"})
        journal.save_cursor("ann", Cursor(7, 60_000, 50.0, "a key"))
        journal.flush()
        journal.append([], {"writer": None})
        journal.close()

    seen = set()
    for path in at_every_statement(tmp_path, prepare, work):
        journal = SqliteJournal(path)
        assert everything(journal) == batches_from(0, [3, 4] if journal.head == 7 else [3])
        cursor = journal.cursors.get("ann")
        reached = cursor.acknowledged if cursor is not None else 0
        assert reached in ({0} if journal.head == 3 else {3, 7}), "cursors and records are of one transaction"
        assert "writer" not in journal.marks or journal.head == 7
        seen.add((journal.head, reached, *journal.marks))
        journal.close()
    assert seen == {(3, 0), (7, 3, "writer"), (7, 7, "writer"), (7, 7)}


def test_while_a_loss_is_accepted(tmp_path: Path) -> None:
    def prepare(path: Path) -> None:
        assert killed_at(10**9, lambda: _append_and_die(path)) is True
        Path(f"{path}-wal").unlink()

    for path in at_every_statement(
        tmp_path, prepare, lambda path: SqliteJournal(path, accept_loss=True).close()
    ):
        journal = SqliteJournal(path, accept_loss=True)
        assert journal.head == 0
        journal.close()


def _append_and_die(path: Path) -> None:
    journal = SqliteJournal(path)
    fill(journal, [3])
    os.kill(os.getpid(), 9)
