"""A file as a source: no line is torn, none comes twice, and a file that is written is followed."""

import json
import os
import signal
import subprocess
import time
import tracemalloc
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import feeds
from penstock.aquifer import AquiferPublisher, MemoryJournal, SqliteJournal
from penstock.aquifer import Gateway as LibraryGateway
from penstock.feeds import BadFeed, FeedOptions, FileFeed
from penstock.feeds.schemes import file as file_scheme
from tests.cli.running import PATIENCE, Gateway
from tests.feeds.reading import Reader, followed, read

LONGEST = 1 << 20


def source_of(path: Path, memory: dict[str, str] | None = None, **options: Any) -> FileFeed:
    source = FileFeed(str(path), FeedOptions(**options))
    source.resume(memory or {})
    return source


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file that is read."""
    return tmp_path / "app.log"


@pytest.fixture
def memory() -> dict[str, str]:
    """The marks of the journal, with the position in the file."""
    return {}


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def open_files() -> set[Path]:
    """The files that this process has open."""
    return {entry.resolve() for entry in Path("/proc/self/fd").iterdir()}


# ---------------------------------------------------------------- the last line
def test_a_last_line_without_a_newline_is_left_out_and_told(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(b"one\ntwo\nthr")

    assert read(source_of(path)) == [b"one", b"two"]
    assert "has no newline" in caplog.text
    assert "3 bytes are left out" in caplog.text


def test_a_last_line_without_a_newline_is_taken_if_told_so(path: Path, memory: dict[str, str]) -> None:
    path.write_bytes(b"one\ntwo")

    assert read(source_of(path, memory, take_last_line=True), marks=memory) == [b"one", b"two"]
    append(path, b"\nthree\n")
    assert read(source_of(path, memory, take_last_line=True), 2, memory) == [b"three"]


def test_a_last_line_that_was_taken_and_has_grown_is_an_error(path: Path, memory: dict[str, str]) -> None:
    path.write_bytes(b"one\ntw")
    read(source_of(path, memory, take_last_line=True), marks=memory)
    append(path, b"o\n")

    with pytest.raises(ValueError, match="has grown since"):
        read(source_of(path, memory, take_last_line=True), 2, memory)


def test_a_file_that_grew_while_the_gateway_was_down_is_in_the_log_line_by_line(
    tmp_path: Path, path: Path
) -> None:
    journal = tmp_path / "app.db"
    arguments = ("--source", f"file:{path}", "--journal", str(journal), "--codec", "json", "--stay")
    path.write_bytes(b'{"n":1}\n{"n":2}\n{"n":3,"te')

    with Gateway(*arguments) as gateway:
        gateway.wait_for("has no newline")
        assert len(list(AquiferPublisher(gateway.endpoint).flux())) == 2
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.end() == 0
    append(path, b'mperature":21}\n{"n":4}\n')
    with Gateway(*arguments) as gateway:
        records = list(AquiferPublisher(gateway.endpoint).flux())

    assert records == path.read_bytes().splitlines()


# ---------------------------------------------------------------- where a restart goes on
def test_a_restart_goes_on_at_the_byte_that_was_noted(path: Path, memory: dict[str, str]) -> None:
    path.write_bytes(b"x" * 999 + b"\n" + b"line\n" * 1000)
    assert len(read(source_of(path, memory), marks=memory)) == 1001
    with path.open("r+b") as file:
        file.write(b"\n" * 500)  # Nobody looks there again.
    append(path, b"next\n")

    assert read(source_of(path, memory), 1001, memory) == [b"next"]


def test_a_mark_that_is_no_position_is_an_error(path: Path) -> None:
    path.write_bytes(b"one\n")
    with pytest.raises(ValueError, match="is not a position in a file"):
        source_of(path, {"file": "{"})


def test_a_journal_without_a_position_has_the_first_lines_of_the_file(
    path: Path, memory: dict[str, str]
) -> None:
    path.write_bytes(b"".join(b"%d\n" % number for number in range(10)))

    assert read(source_of(path), 7, memory) == [b"7", b"8", b"9"]
    append(path, b"10\n")
    assert read(source_of(path, memory), 10, memory) == [b"10"]


@pytest.mark.parametrize("before", [0, 1, 5000])
def test_a_restart_after_a_bad_line_goes_on_before_it(
    path: Path, memory: dict[str, str], before: int
) -> None:
    good = [b"%d" % number for number in range(before)]
    path.write_bytes(b"".join(line + b"\n" for line in good) + b"not a number\nnull\n6\n")

    taken: list[Any] = []
    reader = Reader(memory)
    source_of(path, memory, codec="json")(0).subscribe(reader)
    reader.subscription.request(1000)
    assert reader.ended.wait(PATIENCE)
    taken += reader.take(before)
    assert isinstance(reader.error, ValueError)
    assert f"line {before + 1}:" in str(reader.error)
    with pytest.raises(ValueError, match=f"line {before + 1}:"):
        read(source_of(path, memory, codec="json"), before, memory)
    taken += read(source_of(path, memory, codec="json", on_bad_line="skip"), before, memory)

    assert taken == [*range(before), 6]


def test_bad_lines_that_were_skipped_do_not_move_the_place(path: Path) -> None:
    path.write_bytes(b'{"n":1}\nbad\n{"n":2}\n')
    lines: list[Any] = []
    for policy in ("skip", "fail"):
        # Without a note the file is read from its beginning; with another policy it is the same place.
        source = source_of(path, codec="json", on_bad_line=policy)
        lines += read(source, len(lines))
        append(path, b'{"n":3}\n')

    assert lines == [{"n": 1}, {"n": 2}, {"n": 3}]


@pytest.mark.parametrize("follow", [False, True])
def test_a_file_with_fewer_lines_than_the_journal_is_an_error(path: Path, follow: bool) -> None:
    path.write_bytes(b"one\ntwo\n")

    with pytest.raises(ValueError, match="it has 2 lines, but the journal has 3 already"):
        read(source_of(path, follow=follow), 3)


def test_a_gateway_of_a_program_saves_the_position_and_continues_there(tmp_path: Path, path: Path) -> None:
    journal = tmp_path / "app.db"
    path.write_bytes(b"one\nbad \xff\ntwo\n")
    options = FeedOptions(codec="text", on_bad_line="skip")
    taken: list[str] = []
    for more in (b"", b"three\n"):
        append(path, more)
        with (
            feeds.open(f"file:{path}", options) as feed,
            LibraryGateway(
                feed, "tcp://127.0.0.1:0", journal=SqliteJournal(journal), codec="text"
            ) as gateway,
        ):
            assert gateway.join(PATIENCE)
            taken = list(AquiferPublisher(gateway.endpoint, codec="text").flux())
            assert gateway.status().source.skipped == feed.skipped

    assert taken == ["one", "two", "three"]
    with closing(SqliteJournal(journal)) as kept:
        assert json.loads(kept.marks["feed:file"])["position"] == path.stat().st_size


def test_the_short_lines_of_a_file_keep_the_bound_of_the_log(path: Path) -> None:
    path.write_bytes(b"".join(b"%d\n" % number for number in range(50_000)))

    with (
        feeds.open(f"file:{path}") as feed,
        LibraryGateway(feed, "tcp://127.0.0.1:0", journal=MemoryJournal(max_records=1_000)) as gateway,
    ):
        held = []
        for number, line in enumerate(AquiferPublisher(gateway.endpoint).flux()):
            assert line == b"%d" % number
            if number % 5_000 == 0:
                held.append(gateway.status().records)

    assert number == 49_999
    assert 0 < max(held) <= 1_000


def test_another_file_under_the_same_name_is_refused(path: Path, memory: dict[str, str]) -> None:
    path.write_bytes(b"one\ntwo\n")
    read(source_of(path, memory), marks=memory)
    path.write_bytes(b"1\n2\n3\n4\n5\n")

    with pytest.raises(ValueError, match=r"the first 8 bytes of .* are not those that are in the journal"):
        read(source_of(path, memory), 2, memory)


def test_a_gateway_says_that_its_file_is_another_one(tmp_path: Path, path: Path) -> None:
    journal = tmp_path / "app.db"
    arguments = ("--source", f"file:{path}", "--journal", str(journal), "--stay")
    path.write_bytes(b"one\ntwo\n")
    with Gateway(*arguments) as gateway:
        gateway.wait_for("the source has ended")
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.end() == 0
    path.write_bytes(b"1\n2\n3\n4\n5\n")
    with Gateway(*arguments) as gateway:
        gateway.wait_for(
            r"the source failed: .*the first 8 bytes of .* are not those that are in the journal"
        )
        # What the journal has is served all the same.
        assert list(AquiferPublisher(gateway.endpoint, stop=2).flux()) == [b"one", b"two"]


# ---------------------------------------------------------------- following
def test_a_file_that_is_followed_gives_a_line_when_its_newline_is_there(path: Path) -> None:
    path.write_bytes(b"one\nhal")
    with followed(source_of(path, follow=True)) as following:
        assert following.take(1) == [b"one"]
        append(path, b"f\nthree\n")
        assert following.take(2) == [b"half", b"three"]


def test_a_rotated_file_is_read_to_its_end_and_then_the_new_one(tmp_path: Path, path: Path) -> None:
    path.write_bytes(b"one\n")
    with followed(source_of(path, follow=True)) as following, path.open("ab") as writer:
        assert following.take(1) == [b"one"]
        path.rename(tmp_path / "app.log.1")
        path.write_bytes(b"four\n")
        # The writer has not heard of it yet.
        writer.write(b"two\nth")
        writer.flush()
        assert following.take(1) == [b"two"]
        writer.write(b"ree\n")
        writer.flush()
        assert following.take(2) == [b"three", b"four"]


def test_two_rotations_in_a_row_lose_nothing(tmp_path: Path, path: Path) -> None:
    path.write_bytes(b"one\n")
    with followed(source_of(path, follow=True)) as following:
        assert following.take(1) == [b"one"]
        path.rename(tmp_path / "app.log.1")
        path.write_bytes(b"two\n")
        assert following.take(1) == [b"two"]
        path.rename(tmp_path / "app.log.2")
        path.write_bytes(b"three\n")
        assert following.take(1) == [b"three"]


def test_rotations_while_nobody_asks_for_lines_lose_nothing(tmp_path: Path, path: Path) -> None:
    path.write_bytes(b"one\ntwo\n")
    reader = Reader()
    source_of(path, follow=True)(0).subscribe(reader)
    reader.subscription.request(1)  # Then the log is full, say.
    for number in range(3):
        for older in range(number, 0, -1):
            (tmp_path / f"app.log.{older}").rename(tmp_path / f"app.log.{older + 1}")
        path.rename(tmp_path / "app.log.1")
        path.write_bytes(b"file %d\n" % number)
        # As if some time lay between them.
        written = os.stat(tmp_path / "app.log.1").st_mtime_ns + 1_000_000
        os.utime(path, ns=(written, written))
    with reader.requesting(1000):
        assert reader.take(5) == [b"one", b"two", b"file 0", b"file 1", b"file 2"]


def test_a_copy_that_somebody_makes_while_nobody_asks_for_lines_is_not_read(
    tmp_path: Path, path: Path
) -> None:
    path.write_bytes(b"one\ntwo\n")
    reader = Reader()
    source_of(path, follow=True)(0).subscribe(reader)
    reader.subscription.request(1)  # Then the log is full, say.
    (tmp_path / "app.log.bak").write_bytes(path.read_bytes())
    append(path, b"three\n")
    # As if some time lay between them.
    written = os.stat(tmp_path / "app.log.bak").st_mtime_ns + 1_000_000
    os.utime(path, ns=(written, written))
    path.rename(tmp_path / "app.log.1")
    path.write_bytes(b"four\n")
    with reader.requesting(1000):
        assert reader.take(4) == [b"one", b"two", b"three", b"four"]


def test_a_file_that_got_the_inode_of_one_that_was_read_is_read(tmp_path: Path, path: Path) -> None:
    path.write_bytes(b"one\n")
    reader = Reader()
    source_of(path, follow=True)(0).subscribe(reader)
    reader.subscription.request(2)
    path.rename(tmp_path / "app.log.1")
    path.write_bytes(b"two\n")
    reader.subscription.request(1)
    assert reader.take(2) == [b"one", b"two"]
    # Nobody asks. The oldest file is removed, and two new ones come, the first of them with its inode.
    path.rename(tmp_path / "app.log.2")
    (tmp_path / "app.log.1").write_bytes(b"three\n")
    path.write_bytes(b"four\n")
    with reader.requesting(1000):
        assert reader.take(2) == [b"three", b"four"]


@pytest.mark.parametrize("step", [-3600, 3600], ids=["back", "forward"])
def test_rotations_while_a_clock_is_set_lose_nothing(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    not_set_yet = [step]
    wrong = SimpleNamespace(time=lambda: time.time() - sum(not_set_yet), monotonic=time.monotonic)
    monkeypatch.setattr(file_scheme, "time", wrong)
    (tmp_path / "app.log.7").write_bytes(b"long ago\n")
    path.write_bytes(b"one\ntwo\n")
    os.utime(path, (wrong.time(), wrong.time()))
    reader = Reader()
    source_of(path, follow=True)(0).subscribe(reader)
    reader.subscription.request(1)  # Then the log is full, say.
    not_set_yet.clear()
    (tmp_path / "app.log.7").rename(tmp_path / "app.log.9")
    path.rename(tmp_path / "app.log.2")
    path.write_bytes(b"three\n")
    path.rename(tmp_path / "app.log.1")
    path.write_bytes(b"four\n")
    with reader.requesting(1000):
        assert reader.take(4) == [b"one", b"two", b"three", b"four"]


def test_a_file_that_was_read_is_not_read_again_because_somebody_has_written_to_it_late(
    tmp_path: Path,
    path: Path,
) -> None:
    path.write_bytes(b"one\n")
    with followed(source_of(path, follow=True)) as following:
        assert following.take(1) == [b"one"]
        path.rename(tmp_path / "app.log.1")
        path.write_bytes(b"two\n")
        assert following.take(1) == [b"two"]
        path.rename(tmp_path / "app.log.2")
        append(tmp_path / "app.log.1", b"too late\n")
        path.write_bytes(b"three\n")
        assert following.take(1) == [b"three"]


def test_a_fifo_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path, path: Path) -> None:
    path.write_bytes(b"one\n")
    with followed(source_of(path, follow=True)) as following:
        assert following.take(1) == [b"one"]
        path.rename(tmp_path / "app.log.1")
        os.mkfifo(path)
        append(tmp_path / "app.log.1", b"two\n")
        assert following.take(1) == [b"two"]
        (tmp_path / "new").write_bytes(b"three\n")
        (tmp_path / "new").rename(path)
        assert following.take(1) == [b"three"]


def test_a_line_that_is_passed_over_is_not_kept_to_know_the_file_again(
    path: Path, memory: dict[str, str]
) -> None:
    with path.open("wb") as file:
        for _ in range(32):
            file.write(b"x" * LONGEST)
        file.write(b"\none\n")
    source = source_of(path, memory, on_bad_line="skip")
    tracemalloc.start()
    try:
        assert read(source, marks=memory) == [b"one"]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * LONGEST

    append(path, b"two\n")
    assert read(source_of(path, memory, on_bad_line="skip"), 1, memory) == [b"two"]


def test_a_file_that_is_cut_off_is_read_from_its_beginning(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(b"a long first line\nhalf")
    with followed(source_of(path, follow=True)) as following:
        assert following.take(1) == [b"a long first line"]
        os.truncate(path, 0)
        append(path, b"new\n")
        assert following.take(1) == [b"new"]

    assert "was truncated; its last line had no newline, and its 4 bytes are left out" in caplog.text


@pytest.mark.parametrize("restarted", [False, True])
def test_a_file_that_is_cut_off_and_longer_again_is_read_from_its_beginning(
    path: Path, memory: dict[str, str], caplog: pytest.LogCaptureFixture, restarted: bool
) -> None:
    """While nobody reads, as when the log is full, it is not seen to be shorter."""
    path.write_bytes(b"one\n")
    if restarted:
        assert read(source_of(path, memory), marks=memory) == [b"one"]
    with followed(source_of(path, memory, follow=True), marks=memory) as following:
        if not restarted:
            assert following.take(1) == [b"one"]
        append(path, b"two\n")
        assert following.take(1) == [b"two"]
        os.truncate(path, 0)
        append(path, b"a line that is longer\nanother\n")
        assert following.take(2) == [b"a line that is longer", b"another"]

    assert "was truncated; reading it from its beginning" in caplog.text


@pytest.mark.parametrize("by", ["position", "name", "number of lines"])
def test_a_file_that_is_cut_off_after_a_restart_before_more_is_read_is_read_from_its_beginning(
    tmp_path: Path, path: Path, memory: dict[str, str], by: str
) -> None:
    path.write_bytes(b"one\n")
    with followed(source_of(path, memory, follow=True), marks=memory) as following:
        assert following.take(1) == [b"one"]
    if by == "name":  # As if it was restored from a backup.
        path.rename(tmp_path / "old")
        path.write_bytes(b"one\n")
    elif by == "number of lines":
        memory.clear()
    reader = Reader()
    source_of(path, memory, follow=True)(1).subscribe(reader)
    if by == "number of lines":
        reader.subscription.request(2)  # The beginning, and the position after the lines.
    # Nothing more is read: the log is full, or nothing is written.
    os.truncate(path, 0)
    append(path, b"a line that is longer\nanother\n")

    with reader.requesting(1000):
        assert reader.take(2) == [b"a line that is longer", b"another"]


def test_a_last_line_that_its_writer_changes_does_not_make_it_another_file(path: Path) -> None:
    path.write_bytes(b"one\n 10 %")
    with followed(source_of(path, follow=True)) as following:
        assert following.take(1) == [b"one"]
        path.write_bytes(b"one\n100 % done\n")
        (line,) = following.take(1)
    assert line.endswith(b"done")


def test_a_file_that_was_rotated_while_nobody_read_is_found_under_its_new_name(
    tmp_path: Path, path: Path, memory: dict[str, str]
) -> None:
    path.write_bytes(b"one\ntwo\n")
    source = source_of(path, memory, follow=True)
    with followed(source, marks=memory) as following:
        assert following.take(2) == [b"one", b"two"]
    source.close()
    append(path, b"three\n")
    path.rename(tmp_path / "app.log.1")
    path.write_bytes(b"four\n")

    with followed(source_of(path, memory, follow=True), 2) as following:
        assert following.take(2) == [b"three", b"four"]


def test_a_rotation_while_files_from_before_the_restart_are_read_loses_nothing(
    tmp_path: Path, path: Path, memory: dict[str, str]
) -> None:
    path.write_bytes(b"one\n")
    with followed(source_of(path, memory, follow=True), marks=memory) as following:
        assert following.take(1) == [b"one"]
    append(path, b"two\n")
    path.rename(tmp_path / "app.log.1")
    path.write_bytes(b"three\n")
    # As if some time lay between them.
    written = os.stat(tmp_path / "app.log.1").st_mtime_ns + 1_000_000
    os.utime(path, ns=(written, written))
    reader = Reader()
    source_of(path, memory, follow=True)(1).subscribe(reader)
    reader.subscription.request(1)
    assert reader.take(1) == [b"two"]
    # Now the log is full, and the names change again before the next file is read.
    (tmp_path / "app.log.1").rename(tmp_path / "app.log.2")
    path.rename(tmp_path / "app.log.1")
    path.write_bytes(b"four\n")

    with reader.requesting(1000):
        assert reader.take(2) == [b"three", b"four"]


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="the system does not list open files")
def test_a_followed_file_of_which_nothing_is_requested_is_closed(
    tmp_path: Path, path: Path, memory: dict[str, str]
) -> None:
    """A gateway whose log is full the whole time requests nothing."""
    path.write_bytes(b"one\n")
    with followed(source_of(path, memory, follow=True), marks=memory) as following:
        assert following.take(1) == [b"one"]
    reader = Reader()
    source_of(path, memory, follow=True)(1).subscribe(reader)
    assert path.resolve() in open_files()

    reader.subscription.cancel()

    assert path.resolve() not in open_files()


def test_a_file_that_was_removed_while_nobody_read_is_told(
    path: Path, memory: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(b"one\ntwo\n")
    source = source_of(path, memory, follow=True)
    with followed(source, marks=memory) as following:
        assert following.take(2) == [b"one", b"two"]
    source.close()
    path.unlink()
    path.write_bytes(b"1\n2\n3\n4\n5\n")

    with followed(source_of(path, memory, follow=True), 2) as following:
        assert following.take(5) == [b"1", b"2", b"3", b"4", b"5"]
    assert "what was written after that is lost" in caplog.text


@pytest.mark.slow
def test_a_gateway_that_follows_a_file_and_is_killed_has_every_line_once(tmp_path: Path, path: Path) -> None:
    journal = tmp_path / "app.db"
    path.write_bytes(b"")
    arguments = ("--source", f"file:{path}", "--follow", "--journal", str(journal))
    written = 0
    taken: list[Any] = []

    def write(count: int) -> None:
        nonlocal written
        append(path, b"".join(b"line %d\n" % number for number in range(written, written + count)))
        written += count

    for round in range(3):
        with Gateway(*arguments) as gateway:
            write(500)
            if round == 1:
                path.rename(tmp_path / "app.log.1")
            write(500)
            taken = list(AquiferPublisher(gateway.endpoint, stop=written).flux())
            assert len(taken) == written
            gateway.process.kill()
            gateway.process.wait(PATIENCE)

    with closing(SqliteJournal(journal)) as kept:
        assert kept.head == written
    assert taken == [b"line %d" % number for number in range(written)]


def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(BadFeed, match="is not a regular file; read it with --source stdin"):
        source_of(tmp_path / "fifo", follow=True)


def test_only_files_are_followed() -> None:
    with pytest.raises(BadFeed, match=r"follow=True \(--follow\) is for files"):
        feeds.open("stdin", FeedOptions(follow=True))


def test_lines_of_standard_input_end_with_the_pipe(tmp_path: Path) -> None:
    with Gateway("--source", "stdin", "--stay", stdin=subprocess.PIPE) as gateway:
        gateway.stdin.write(b"one\ntwo")
        gateway.stdin.close()
        gateway.wait_for("the source has ended")
        assert list(AquiferPublisher(gateway.endpoint).flux()) == [b"one", b"two"]


def test_a_relative_path_after_two_slashes_is_told_how_it_is_written() -> None:
    with pytest.raises(BadFeed, match=r"file://no/such means /no/such, .* a relative path is file:PATH"):
        feeds.open("file://no/such")
