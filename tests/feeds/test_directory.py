"""Directories: files in the order of their names, each line once, whoever dies."""

import gzip
import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from penstock import feeds
from penstock.feeds import BadFeed, FeedOptions
from tests.feeds.brokers import Process, gateway_command, records_of, wait_until
from tests.feeds.reading import Reader, followed, read

FOLLOW = FeedOptions(follow=True)


def add(folder: Path, name: str, text: bytes) -> None:
    """A complete file under its name."""
    new = folder / f"{name}.tmp"
    new.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    new.rename(folder / name)


def test_files_are_read_in_the_order_of_their_names_and_decompressed(tmp_path: Path) -> None:
    add(tmp_path, "2.log", b"c\nd")
    add(tmp_path, "1.log.gz", b"a\nb\n")
    add(tmp_path, "3.log", b"")
    for name in ("0.tmp", "0.part", ".0"):
        (tmp_path / name).write_bytes(b"x\n")
    (tmp_path / "0").mkdir()
    assert read(feeds.open(f"dir:{tmp_path}")) == [b"a", b"b", b"c", b"d"]
    assert read(feeds.open(f"dir:{tmp_path}?pattern=*.gz")) == [b"a", b"b"]


def test_a_restart_continues_in_the_middle_of_a_file_also_of_a_compressed_one(tmp_path: Path) -> None:
    lines = [b"%d" % number for number in range(3000)]
    add(tmp_path, "1.gz", b"\n".join(lines[:2000]) + b"\n")
    add(tmp_path, "2", b"\n".join(lines[2000:]) + b"\n")
    marks: dict[str, str] = {}
    taken: list[bytes] = []
    for _ in range(100):
        reader = Reader(marks)
        feed = feeds.open(f"dir:{tmp_path}")
        feed.resume(marks)
        feed(0).subscribe(reader)
        reader.subscription.request(1)
        taken += reader.take(reader.lines.qsize())
        reader.subscription.cancel()
        if len(taken) == 3000 and reader.ended.is_set():
            break
    assert taken == lines


def test_new_files_and_more_of_the_last_one_are_followed(tmp_path: Path) -> None:
    with feeds.open(f"dir:{tmp_path}", FOLLOW) as feed, followed(feed) as reader:
        add(tmp_path, "1", b"a\nb")
        assert reader.take(1) == [b"a"]
        with (tmp_path / "1").open("ab") as file:
            file.write(b"c\nd")
        assert reader.take(1) == [b"bc"]
        add(tmp_path, "2.gz", b"e\n")
        assert reader.take(2) == [b"d", b"e"], "a file that another one follows is finished"


def test_a_truncated_file_is_read_again_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    add(tmp_path, "1", b"a\nb\n")
    with feeds.open(f"dir:{tmp_path}", FOLLOW) as feed, followed(feed) as reader:
        assert reader.take(2) == [b"a", b"b"]
        os.truncate(tmp_path / "1", 0)
        wait_until(lambda: "was truncated" in caplog.text, "nothing is said")
        with (tmp_path / "1").open("ab") as file:
            file.write(b"c\n")
        assert reader.take(1) == [b"c"]


@pytest.mark.parametrize("next_file", [None, "2"])
def test_a_truncated_file_that_is_longer_again_is_read_from_its_beginning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, next_file: str | None
) -> None:
    """While nobody reads, as when the log is full, it is not seen to be shorter."""
    add(tmp_path, "1", b"a\n")
    with feeds.open(f"dir:{tmp_path}", FOLLOW) as feed:
        reader = Reader()
        feed(0).subscribe(reader)
        reader.subscription.request(1)
        assert reader.take(1) == [b"a"]
        (tmp_path / "1").write_bytes(b"a longer line\n")
        if next_file is not None:
            add(tmp_path, next_file, b"b\n")
        with reader.requesting():
            assert reader.take(1) == [b"a longer line"]
            if next_file is not None:
                assert reader.take(1) == [b"b"]
    assert "was truncated; reading it from its beginning" in caplog.text


def test_a_file_that_is_truncated_and_removed_does_not_end_the_feed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add(tmp_path, "1", b"a\n")
    with feeds.open(f"dir:{tmp_path}", FOLLOW) as feed:
        reader = Reader()
        feed(0).subscribe(reader)
        reader.subscription.request(1)
        assert reader.take(1) == [b"a"]
        os.truncate(tmp_path / "1", 0)
        (tmp_path / "1").unlink()
        with reader.requesting():
            wait_until(
                lambda: reader.error is not None or "was removed before it was read" in caplog.text,
                "nothing is said",
            )
            assert reader.error is None
            add(tmp_path, "2", b"b\n")
            assert reader.take(1) == [b"b"]


@pytest.mark.parametrize("name", ["1", "1.gz"])
def test_a_file_that_is_replaced_by_a_longer_one_is_continued(tmp_path: Path, name: str) -> None:
    add(tmp_path, name, b"a\nb")
    with feeds.open(f"dir:{tmp_path}", FOLLOW) as feed, followed(feed) as reader:
        assert reader.take(1) == [b"a"]
        add(tmp_path, name, b"a\nb\nc\n")
        assert reader.take(2) == [b"b", b"c"]
        add(tmp_path, "2", b"d\n")
        assert reader.take(1) == [b"d"]


def test_a_file_that_is_replaced_by_another_one_is_read_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add(tmp_path, "1", b"a\nb\n")
    with feeds.open(f"dir:{tmp_path}", FOLLOW) as feed, followed(feed) as reader:
        assert reader.take(2) == [b"a", b"b"]
        add(tmp_path, "1", b"x\ny\nz\n")
        assert reader.take(3) == [b"x", b"y", b"z"]
    assert "was replaced" in caplog.text


def test_a_directory_that_goes_and_comes_back_is_a_state(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    add(folder, "1", b"a\n")
    with feeds.open(f"dir:{folder}", FOLLOW) as feed, followed(feed) as reader:
        assert reader.take(1) == [b"a"]
        folder.rename(tmp_path / "elsewhere")
        wait_until(lambda: feed.state.status == "down", "nothing is said")
        assert "No such file" in str(feed.state)
        folder.mkdir()
        add(folder, "2", b"b\n")
        assert reader.take(1) == [b"b"]
        assert feed.state.status == "up"
    assert "waiting until it is there again" in caplog.text


def test_what_is_not_a_file_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "0").symlink_to("0")
    (tmp_path / "1").symlink_to("nowhere")
    os.mkfifo(tmp_path / "2")
    add(tmp_path, "3", b"a\n")
    assert read(feeds.open(f"dir:{tmp_path}")) == [b"a"]


def test_a_link_is_followed_when_its_target_comes(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    add(folder, "1", b"a\n")
    (folder / "2").symlink_to(tmp_path / "target")
    long_ago = 1_000_000_000
    os.utime(folder, (long_ago, long_ago))
    with feeds.open(f"dir:{folder}", FOLLOW) as feed, followed(feed) as reader:
        assert reader.take(1) == [b"a"]
        add(tmp_path, "target", b"b\n")
        assert reader.take(1) == [b"b"]


def test_a_directory_with_many_files_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(200):
        (tmp_path / f"{number:03}").write_bytes(b"%d\n" % number)
    long_ago = 1_000_000_000
    os.utime(tmp_path, (long_ago, long_ago))
    listed: list[Path] = []
    scandir = os.scandir

    def counted(path: Path) -> object:
        listed.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counted)
    assert len(read(feeds.open(f"dir:{tmp_path}"))) == 200
    assert len(listed) == 2, "once when it is opened, once for all files"


def test_names_that_are_not_text_are_read_and_continued(tmp_path: Path) -> None:
    for name in (b"a\xff", b"b\nc"):
        (tmp_path / os.fsdecode(name)).write_bytes(b"1\n2\n")
    marks: dict[str, str] = {}
    assert read(feeds.open(f"dir:{tmp_path}"), marks=marks) == [b"1", b"2"] * 2
    again = feeds.open(f"dir:{tmp_path}")
    again.resume(marks)
    assert read(again) == []


def test_a_changed_a_removed_and_an_incomplete_file_are_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add(tmp_path, "1", b"a\n" * 1000)
    marks: dict[str, str] = {}
    reader = Reader(marks)
    feeds.open(f"dir:{tmp_path}")(0).subscribe(reader)
    reader.subscription.request(1)
    reader.subscription.cancel()
    add(tmp_path, "1", b"b\n" * 1000)
    feed = feeds.open(f"dir:{tmp_path}")
    feed.resume(marks)
    with pytest.raises(ValueError, match="is not the file that is in the journal"):
        read(feed)
    (tmp_path / "1").unlink()
    add(tmp_path, "2", b"c\n")
    feed = feeds.open(f"dir:{tmp_path}")
    feed.resume(marks)
    assert read(feed) == [b"c"]
    assert "was removed before it was read to its end" in caplog.text
    (tmp_path / "3.gz").write_bytes(gzip.compress(os.urandom(5000))[:2000])
    with pytest.raises(ValueError, match="not a complete gzip file"):
        read(feeds.open(f"dir:{tmp_path}"))


def test_a_file_that_comes_too_late_is_counted_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add(tmp_path, "1", b"a\n")
    add(tmp_path, "3", b"c\n")
    with feeds.open(f"dir:{tmp_path}", FOLLOW) as feed, followed(feed) as reader:
        assert isinstance(feed, feeds.DirectoryFeed)
        assert reader.take(2) == [b"a", b"c"]
        add(tmp_path, "2", b"b\n")
        wait_until(lambda: f"{tmp_path / '2'} came when 3 had been read" in caplog.text, "it is not said")
        assert feed.late_files == 1
        (tmp_path / "1").unlink()
        add(tmp_path, "4", b"d\n")
        assert reader.take(1) == [b"d"]
    assert feed.late_files == 1


def test_a_bad_line_ends_the_stream_after_those_before_it_or_is_skipped(tmp_path: Path) -> None:
    add(tmp_path, "1", b"1\nx\n3\n")
    reader = Reader()
    feeds.open(f"dir:{tmp_path}", FeedOptions(codec="json"))(0).subscribe(reader)
    reader.subscription.request(10)
    assert (reader.take(1), str(tmp_path / "1: line 2") in str(reader.error)) == ([1], True)
    assert read(feeds.open(f"dir:{tmp_path}", FeedOptions(codec="json", on_bad_line="skip"))) == [1, 3]


def test_what_is_not_a_directory_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadFeed, match="is not a directory; write file:"):
        feeds.open(f"dir:{tmp_path}/file")
    with pytest.raises(BadFeed, match="does not name a directory; write dir:PATH"):
        feeds.open("dir:")  # Such as dir:$LOGS without the variable: it was the current directory.
    with pytest.raises(BadFeed, match="does not name a file; write file:PATH"):
        feeds.open("file:")
    with pytest.raises(BadFeed, match="No such file or directory; check dir:"):
        feeds.open(f"dir:{tmp_path}/nothing")


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_gateway_that_is_killed_again_and_again_has_every_line_once(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    folder, log = tmp_path / "in", tmp_path / "log.db"
    folder.mkdir()
    sent: list[bytes] = []

    def stored() -> int:
        try:
            with closing(sqlite3.connect(f"file:{log}?mode=ro", uri=True, timeout=1)) as database:
                row = database.execute("select value from marks where name = 'feed:dir'").fetchone()
            return int(row[0].partition('"name": "')[2][:6]) if row else -1
        except sqlite3.OperationalError:
            return -1

    command = gateway_command(f"dir:{folder}", "--follow", "--journal", str(log))
    with Process(tmp_path / "gateway.log", *command) as gateway:
        for number in range(40):
            lines = [b"%d" % (len(sent) + n) for n in range(chance.randint(1, 3000))]
            sent += lines
            add(folder, f"{number:06}" + chance.choice(["", ".gz"]), b"\n".join(lines) + b"\n")
            if number % 8 == 7:
                goal = number - chance.randint(0, 6)
                wait_until(lambda goal=goal: stored() >= goal, f"no progress (seed {seed})")  # type: ignore[misc]
                gateway.kill()
                gateway.start()
        add(folder, "999999", b"the end\n")
        wait_until(lambda: stored() == 999999, f"not everything is stored (seed {seed})")
    assert records_of(log) == [*sent, b"the end"]
