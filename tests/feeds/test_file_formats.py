"""Files that are compressed, CSV or Parquet: each record once, wherever reading stops and goes on."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import feeds
from penstock.aquifer import AquiferPublisher, Gateway, SqliteJournal
from penstock.feeds import BadFeed, FeedOptions
from penstock.feeds.csv_rows import RowSplitter
from penstock.feeds.lines import BadLines
from tests.cli.running import Gateway as GatewayProgram
from tests.feeds.reading import Reader, followed, read

ANYWHERE = "tcp://127.0.0.1:0"
JSON = FeedOptions(codec="json", format="csv")


def packed(name: str, data: bytes) -> bytes:
    if name.endswith(".gz"):
        return gzip.compress(data)
    if not name.endswith(".zst"):
        return data
    half = len(data) // 2  # Two frames, as appended files have.
    return zstandard.compress(data[:half]) + zstandard.compress(data[half:])


def resumed(url: str, options: FeedOptions, most: int = 1000) -> list[Any]:
    """All records, with a new feed after each delivery, that continues at the marks."""
    marks: dict[str, str] = {}
    taken: list[Any] = []
    for _ in range(most):
        reader = Reader(marks)
        feed = feeds.open(url, options)
        feed.resume(marks)
        feed(0).subscribe(reader)
        reader.subscription.request(2)  # The first may only have the marks.
        taken += reader.take(reader.lines.qsize())
        reader.subscription.cancel()
        if reader.error is not None:
            raise reader.error
        if reader.ended.is_set():
            return taken
    raise AssertionError("it does not end")


# ---------------------------------------------------------------- compressed
@pytest.mark.parametrize("name", ["a.log.gz", "a.log.zst"])
def test_a_compressed_file_is_read_from_any_position(tmp_path: Path, name: str) -> None:
    lines = [b"%d" % number for number in range(3000)]
    (tmp_path / name).write_bytes(packed(name, b"\n".join(lines)))
    assert read(feeds.open(f"file:{tmp_path / name}")) == lines
    assert resumed(f"file:{tmp_path / name}", FeedOptions()) == lines
    assert read(feeds.open(f"dir:{tmp_path}")) == lines


@pytest.mark.parametrize("name", ["a.gz", "a.zst"])
@pytest.mark.parametrize("harm", ["short", "changed"])
def test_a_compressed_file_that_is_not_complete_says_so(tmp_path: Path, name: str, harm: str) -> None:
    data = packed(name, random.Random(1).randbytes(300_000).replace(b"\n", b" ") + b"\n")
    (tmp_path / name).write_bytes(data[:-9] if harm == "short" else b"xxxx" + data)
    with pytest.raises(ValueError, match=f"is not a complete {'gzip' if name == 'a.gz' else 'zstd'} file"):
        read(feeds.open(f"file:{tmp_path / name}"))


def test_a_missing_package_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.zst").write_bytes(zstandard.compress(b"x\n"))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ImportError, match=r"pip install 'penstock-streams\[zstd\]'"):
        feeds.open(f"file:{tmp_path / 'a.zst'}")


# ---------------------------------------------------------------- CSV
FIELDS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=6)
ROWS = st.lists(st.fixed_dictionaries({"a": FIELDS, "b": FIELDS}), max_size=12)


@settings(max_examples=150, deadline=None)
@given(ROWS, st.lists(st.integers(1, 25), max_size=12), st.sampled_from(["\n", "\r\n"]))
def test_rows_are_what_a_writer_of_csv_wrote_however_they_arrive(
    rows: list[dict[str, str]], cuts: list[int], end: str
) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, ["a", "b"], lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writeheader()
    writer.writerows(rows)
    data = whole = text.getvalue().encode()
    splitter, made, place = RowSplitter(JSON, BadLines("fail")), [], 0
    for size in (*cuts, len(data)):
        records, error = splitter.take(data[:size])
        assert error is None
        made += records
        place += len(data[:size])
        data = data[size:]
        if splitter.pending == 0 and place:
            # Another splitter goes on here, as after a restart.
            splitter = RowSplitter(JSON, BadLines("fail"))
            splitter.pass_over(whole[:place])
    assert [*made, *splitter.finish()] == rows


def test_a_field_may_have_line_breaks_and_positions_survive(tmp_path: Path) -> None:
    rows = [{"id": str(number), "text": f'line 1\nline, {number} "x"'} for number in range(1500)]
    with (tmp_path / "in.csv.zst").open("wb") as file:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, ["id", "text"])
        writer.writeheader()
        writer.writerows(rows)
        file.write(zstandard.compress(text.getvalue().encode()))
    assert resumed(f"file:{tmp_path / 'in.csv.zst'}", JSON) == rows
    assert read(feeds.open(f"dir:{tmp_path}?pattern=*.csv.zst", JSON)) == rows
    assert json.loads(read(feeds.open(f"dir:{tmp_path}", FeedOptions(format="csv")))[3]) == rows[3]


def test_bad_rows_follow_the_policy(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b'a,b\n1,2\n3\n"4\n5",6\n7,"x\n8,9\n')
    url = f"file:{tmp_path / 'in.csv'}"
    with pytest.raises(ValueError, match=r"line 3: it has 1 fields, and the header has 2"):
        read(feeds.open(url, JSON))
    found = read(feeds.open(url, FeedOptions(codec="json", format="csv", on_bad_line="dead-letter")))
    assert [each if isinstance(each, dict) else each.value for each in found] == [
        {"a": "1", "b": "2"},
        b"3",
        {"a": "4\n5", "b": "6"},
        b'7,"x\n8,9',
    ]
    (tmp_path / "in.csv").write_bytes(b"a,a\n1,2\n")
    with pytest.raises(ValueError, match="the header has 'a' twice"):
        read(feeds.open(url, JSON))


def test_a_quote_that_is_never_closed_costs_one_row_of_the_longest_length(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b'a\n"open\n' + b"".join(b"%d\n" % n for n in range(1000)))
    options = FeedOptions(codec="json", format="csv", on_bad_line="skip", max_line=100)
    feed = feeds.open(f"file:{tmp_path / 'in.csv'}", options)
    rows = read(feed)
    assert feed.skipped == 1
    assert rows[-1] == {"a": "999"}
    assert len(rows) > 950


def test_csv_with_a_schema_has_values_and_columns(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "ok": {"type": "boolean"}}}
    (tmp_path / "schema").write_text(json.dumps(schema))
    (tmp_path / "in.csv").write_bytes(b"id,ok\n1,true\nx,false\n2,\n")
    options = FeedOptions(
        codec=f"jsonschema:{tmp_path / 'schema'}", format="csv", columns=True, on_bad_line="dead-letter"
    )
    with (
        feeds.open(f"file:{tmp_path / 'in.csv'}", options) as feed,
        Gateway(
            feed, "tcp://127.0.0.1:0", codec=options.stored_codec, on_bad_record="dead-letter"
        ) as gateway,
    ):
        (batch,) = AquiferPublisher(gateway.endpoint, codec="arrow").flux()
        letters = list(AquiferPublisher(f"{gateway.endpoint}/dead-letters", codec="json").flux())
    assert batch.to_pylist() == [{"id": 1, "ok": True}]
    assert [letter["text"] for letter in letters] == ["x,false", "2,"], "null is not a boolean"


def test_a_csv_file_is_followed_while_it_grows_and_over_restarts(tmp_path: Path) -> None:
    path, marks = tmp_path / "in.csv", Reader().marks
    follow = FeedOptions(format="csv", codec="json", follow=True)

    def write(text: str) -> None:
        with path.open("a") as file:
            file.write(text)

    write("id,who\n1,a\n2,")
    with feeds.open(f"file:{path}", follow) as feed, followed(feed, marks=marks) as reader:
        assert reader.take(1) == [{"id": "1", "who": "a"}]
        write("b\n")
        assert reader.take(1) == [{"id": "2", "who": "b"}]
    write("3,c\n")
    for options in (replace(follow, follow=False), follow):
        feed = feeds.open(f"file:{path}", options)
        feed.resume(marks)
        if options.follow:
            with followed(feed, marks=marks) as reader:
                assert reader.take(1) == [{"id": "4", "who": "d"}]
                path.write_text("id,who\n9,z\n")
                assert reader.take(1) == [{"id": "9", "who": "z"}]
        else:
            assert read(feed, 2, marks) == [{"id": "3", "who": "c"}]
            write("4,d\n")


def test_a_last_row_that_was_taken_without_a_line_break_and_grows_is_an_error(tmp_path: Path) -> None:
    path, marks = tmp_path / "in.csv", Reader().marks
    path.write_text("id,who\n1,a")
    options = FeedOptions(format="csv", codec="json")
    assert read(feeds.open(f"file:{path}", options), 0, marks) == [{"id": "1", "who": "a"}]
    for text, more in (("id,who\n1,a", []), ("id,who\n1,a\n2,b\n", [{"id": "2", "who": "b"}])):
        path.write_text(text)
        feed = feeds.open(f"file:{path}", options)
        feed.resume(marks)
        assert read(feed, 1, dict(marks)) == more
    path.write_text("id,who\n1,and more\n")
    feed = feeds.open(f"file:{path}", options)
    feed.resume(marks)
    with pytest.raises(ValueError, match="was taken without a line break, and it may grow"):
        read(feed, 1, marks)


# ---------------------------------------------------------------- Parquet
def table(first: int, count: int) -> pa.Table:
    return pa.table({"id": range(first, first + count), "who": ["me"] * count})


@pytest.mark.parametrize("columns", [False, True])
def test_rows_of_parquet_files_are_read_once(tmp_path: Path, columns: bool) -> None:
    pq.write_table(table(0, 5000), tmp_path / "1.parquet", row_group_size=1500)
    pq.write_table(table(5000, 0), tmp_path / "2.parquet")
    pq.write_table(table(5000, 10), tmp_path / "3.parquet")
    options = FeedOptions(format="parquet", codec="bytes" if columns else "json", columns=columns)
    taken = resumed(f"dir:{tmp_path}", options)
    rows = [row for batch in taken for row in batch.to_pylist()] if columns else taken
    assert rows == [{"id": number, "who": "me"} for number in range(5010)]
    assert len(read(feeds.open(f"file:{tmp_path / '3.parquet'}", options))) == (1 if columns else 10)


def test_a_parquet_file_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    path, marks = tmp_path / "a.parquet", Reader().marks
    pq.write_table(table(0, 5000), path)
    reader = Reader(marks)
    feeds.open(f"file:{path}", FeedOptions(format="parquet"))(0).subscribe(reader)
    reader.subscription.request(1)
    reader.subscription.cancel()
    pq.write_table(table(7, 5000), path)
    feed = feeds.open(f"file:{path}", FeedOptions(format="parquet"))
    feed.resume(marks)
    with pytest.raises(ValueError, match="it was changed"):
        read(feed)


def test_columns_of_parquet_go_through_a_gateway(tmp_path: Path) -> None:
    pq.write_table(table(0, 2000), tmp_path / "a.parquet")
    options, journal = FeedOptions(format="parquet", columns=True), str(tmp_path / "log.db")
    for _ in range(2):
        with (
            feeds.open(f"dir:{tmp_path}?pattern=*.parquet", options) as feed,
            Gateway(
                feed, "tcp://127.0.0.1:0", codec=options.stored_codec, journal=SqliteJournal(journal)
            ) as gateway,
        ):
            batches = AquiferPublisher(gateway.endpoint, codec="arrow").flux()
            assert [row["id"] for batch in batches for row in batch.to_pylist()] == list(range(2000))


def test_a_parquet_file_that_is_removed_is_said_and_the_next_one_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        pq.write_table(table(2000 * number, 2000), tmp_path / f"{number}.parquet")
    options, marks = FeedOptions(format="parquet", codec="json"), Reader().marks
    reader = Reader(marks)
    feeds.open(f"dir:{tmp_path}", options)(0).subscribe(reader)
    reader.subscription.request(1)
    reader.subscription.cancel()
    (tmp_path / "0.parquet").unlink()
    long_ago = 1_000_000_000
    os.utime(tmp_path, (long_ago, long_ago))
    feed = feeds.open(f"dir:{tmp_path}", options)
    feed.resume(marks)
    reader = Reader(marks)
    feed(0).subscribe(reader)
    reader.subscription.request(1)
    assert "0.parquet was removed before it was read to its end: continuing with the next file" in caplog.text
    (tmp_path / "2.parquet").unlink()
    os.utime(tmp_path, (long_ago, long_ago))  # So it is as if the file went after the look at the directory.
    reader.subscription.request(1_000_000)
    assert reader.error is None
    rows = [reader.lines.get() for _ in range(reader.lines.qsize())]
    assert [row["id"] for row in rows] == list(range(2000, 4000))
    assert "2.parquet was removed before it was read\n" in caplog.text


# ---------------------------------------------------------------- what is wrong
@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        ("file:{}/a.gz", {"follow": True}, r"--follow\) waits for more lines"),
        ("file:{}/nothing.gz", {}, "cannot read .*nothing.gz"),
        ("file:{}/a.gz", {"format": "xml"}, "write lines, csv or parquet"),
        (
            "file:{}/a.gz",
            {"format": "csv", "take_last_line": True},
            r"--take-last-line\) is for",
        ),
        ("stdin", {"format": "csv"}, r"--format\) is for files and directories"),
    ],
)
def test_wrong_options_say_what_to_write(
    tmp_path: Path, url: str, options: dict[str, Any], text: str
) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(BadFeed, match=text):
        feeds.open(url.format(tmp_path), FeedOptions(**options))


@pytest.mark.slow
def test_a_killed_gateway_goes_on_in_the_middle_of_a_file_with_quoted_line_breaks(tmp_path: Path) -> None:
    total = 20_000
    data = b"id,text\n" + b"".join(b'%d,"two\nlines"\n' % number for number in range(total))
    (tmp_path / "in.csv.zst").write_bytes(zstandard.compress(data))
    arguments = (
        "--source",
        f"file:{tmp_path / 'in.csv.zst'}",
        "--format",
        "csv",
        "--codec",
        "json",
        "--stay",
    )
    for _ in range(3):
        with GatewayProgram(*arguments, "--journal", str(tmp_path / "log.db")) as gateway:
            list(AquiferPublisher(gateway.endpoint).flux().take(1))
            gateway.process.kill()
    with GatewayProgram(*arguments, "--journal", str(tmp_path / "log.db")) as gateway:
        rows = list(AquiferPublisher(gateway.endpoint, codec="json").flux())
    assert [row["id"] for row in rows] == [str(number) for number in range(total)]
