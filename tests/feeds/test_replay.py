"""Bad lines become dead letters, and dead letters are put back into their stream, each once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import feeds
from penstock.aquifer import (
    AlreadyReplayed,
    AquiferError,
    AquiferPublisher,
    Gateway,
    Producer,
    SqliteJournal,
    StreamOptions,
)
from penstock.aquifer.protocol.replays import marks_with, replayed_before
from penstock.feeds.lines import BadLines, LineSplitter, decoder

ANYWHERE = "tcp://127.0.0.1:0"


def lines(path: Path, *given: bytes) -> str:
    path.write_bytes(b"".join(line + b"\n" for line in given))
    return f"file:{path}"


def taken(endpoint: str, count: int, codec: str = "json") -> list[Any]:
    return list(AquiferPublisher(endpoint, codec=codec).flux().take(count))


class Served:
    """A gateway that follows a file, and keeps its bad lines."""

    def __init__(self, url: str, journal: Path | None = None, **settings: Any) -> None:
        options = feeds.FeedOptions(
            **{"codec": "json", "on_bad_line": "dead-letter", "follow": True, **settings}
        )
        with ExitStack() as opened:
            feed = opened.enter_context(feeds.open(url, options))
            log = SqliteJournal(str(journal)) if journal is not None else None
            self.gateway = opened.enter_context(
                Gateway(
                    feed,
                    ANYWHERE,
                    codec=options.codec,
                    on_bad_record="dead-letter",
                    writable=True,
                    journal=log,
                )
            )
            self._opened = opened.pop_all()
        self.endpoint = self.gateway.endpoint
        self.letters = f"{self.endpoint}/dead-letters"

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *exception: object) -> None:
        self._opened.close()


# ---------------------------------------------------------------- lines
def test_every_kind_of_bad_line_is_a_dead_letter_with_its_place_and_bytes(tmp_path: Path) -> None:
    url = lines(tmp_path / "in", b"1", b"{", b"2", b"\xff", b'"' + b"x" * 5000 + b'"', b"null", b"3")
    with Served(url, max_line=100) as served:
        assert taken(served.endpoint, 3) == [1, 2, 3]
        letters = taken(served.letters, 4)
        assert [letter["position"] for letter in letters] == ["line 2", "line 4", "line 5", "line 6"]
        assert [letter["bytes"] for letter in letters] == [1, 1, 5002, 4]
        assert letters[0]["text"] == "{"
        assert letters[1]["base64"] == "/w=="
        assert "has more than 100 bytes" in letters[2]["reason"]
        assert served.gateway.skipped == 4


def test_several_streams_have_dead_letters_of_their_own(tmp_path: Path) -> None:
    options = feeds.FeedOptions(codec="json", on_bad_line="dead-letter")
    with ExitStack() as opened:
        urls = {name: lines(tmp_path / name, b"{", name.encode()) for name in ("1", "2")}
        named = {
            f"s{name}": StreamOptions(
                opened.enter_context(feeds.open(url, options)), codec="json", on_bad_record="dead-letter"
            )
            for name, url in urls.items()
        }
        gateway = opened.enter_context(Gateway(control=ANYWHERE, streams=named))
        for name in urls:
            assert taken(f"{gateway.endpoint}/s{name}", 1) == [int(name)]
            assert [letter["text"] for letter in taken(f"{gateway.endpoint}/s{name}.dead-letters", 9)] == [
                "{"
            ]


@given(
    st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b" ")), max_size=20),
    st.lists(st.integers(1, 40), max_size=30),
    st.integers(1, 20),
)
def test_records_and_letters_together_are_the_lines_however_they_arrive(
    given_lines: list[bytes], cuts: list[int], longest: int
) -> None:
    data = b"".join(line + b"\n" for line in given_lines)
    splitter = LineSplitter(longest, decoder("text"), BadLines("dead-letter"))
    made: list[Any] = []
    for size in (*cuts, len(data)):
        made += splitter.feed(data[:size])
        data = data[size:]
    assert len(made) == len(given_lines)
    for element, line in zip(made, given_lines, strict=True):
        if isinstance(element, feeds.BadRecord):
            size = len(element.value) if element.size is None else element.size
            assert (line[: len(element.value)], len(line)) == (element.value, size)
            assert len(line) > longest or element.value == line
        else:
            assert element.encode() == line


def test_a_webhook_tells_its_sender_what_became_a_dead_letter() -> None:
    import httpx2

    options = feeds.FeedOptions(codec="json", on_bad_line="dead-letter")
    with (
        feeds.open("webhook+http://127.0.0.1:0/in", options) as feed,
        Gateway(feed, ANYWHERE, codec="json", on_bad_record="dead-letter") as gateway,
        httpx2.Client(base_url=f"http://127.0.0.1:{feed.port}") as client,  # type: ignore[attr-defined]
    ):
        as_lines, as_json = {"content-type": "text/plain"}, {"content-type": "application/json"}
        assert client.post("/in", content=b"1\n{\n2\n", headers=as_lines).json() == {
            "stored": 2,
            "dead_letters": 1,
        }
        again = {**as_json, "idempotency-key": "a"}
        assert client.post("/in", content=b"[3,", headers=again).json() == {"stored": 0, "dead_letters": 1}
        assert client.post("/in", content=b"[3,", headers=again).json() == {"stored": 0, "repeated": True}
        assert taken(gateway.endpoint, 2) == [1, 2]
        letters = taken(f"{gateway.endpoint}/dead-letters", 2)
        assert [letter["text"] for letter in letters] == ["{", "[3,"]


def test_a_sender_that_counts_lines_cannot_have_dead_letters() -> None:
    options = feeds.FeedOptions(on_bad_line="dead-letter")
    with pytest.raises(feeds.BadFeed, match="--on-bad-line dead-letter"):
        feeds.open("tcp-listen://127.0.0.1:0?acknowledge", options)


# ---------------------------------------------------------------- replaying
def mended(letter: feeds.DeadLetter) -> bytes | None:
    return letter.value.strip(b"{") or None


def test_a_letter_is_replayed_once_and_others_stay(tmp_path: Path) -> None:
    url = lines(tmp_path / "in", b"1", b"{2", b"{", b"{3")
    with Served(url) as served:
        taken(served.letters, 3)
        assert feeds.replay(served.letters).wrong == 3, "nothing has changed, so all are as wrong as before"
        first = feeds.replay(served.letters, mended)
        assert (first.letters, first.replayed, first.records, first.left) == (3, 2, 2, 1)
        second = feeds.replay(served.letters, lambda letter: [b"7", "8"])
        assert (second.replayed, second.records, second.replayed_before) == (1, 2, 2)
        third = feeds.replay(served.letters)
        assert (third.wrong, third.replayed_before) == (0, 3)
        assert taken(served.endpoint, 5) == [1, 2, 3, 7, 8]


def test_what_was_replayed_is_known_after_a_restart(tmp_path: Path) -> None:
    url, journal = lines(tmp_path / "in", b"1", b"{2"), tmp_path / "log.db"
    with Served(url, journal) as served:
        taken(served.letters, 1)
        assert feeds.replay(served.letters, mended).replayed == 1
    with Served(url, journal) as served:
        assert feeds.replay(served.letters, mended).replayed_before == 1
        assert taken(served.endpoint, 2) == [1, 2]


def test_two_replays_at_the_same_time_replay_each_letter_once(tmp_path: Path) -> None:
    url = lines(tmp_path / "in", *(b"{%d" % number for number in range(1200)))
    reports: list[feeds.ReplayReport] = []
    with Served(url) as served:
        taken(served.letters, 1200)
        together = threading.Barrier(3)

        def run() -> None:
            together.wait()
            reports.append(feeds.replay(served.letters, mended))

        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(taken(served.endpoint, 1200)) == list(range(1200))
        assert sum(report.replayed for report in reports) == 1200
        assert served.gateway.status().head == 1200


def test_edited_letters_are_replayed_with_their_new_text(tmp_path: Path) -> None:
    url = lines(tmp_path / "in", b"{2", b"{3", b"x" * 3_000_000)
    with Served(url) as served:
        letters = [
            {"offset": record.offset, "value": record.value}
            for record in AquiferPublisher(served.letters, codec="json", records=True).flux().take(3)
        ]
        letters[1]["value"]["text"] = "33"
        chosen = list(feeds.edited_letters(json.dumps(each).encode() for each in letters[1:]))
        report = feeds.replay(served.letters, edited=chosen)
        assert (report.letters, report.replayed, report.wrong) == (2, 1, 1)
        assert "only the first" in report.reasons[0], "nobody has mended the one that was cut off"
        assert taken(served.endpoint, 1) == [33]
        letters[0]["value"]["time"] = "another"
        with pytest.raises(ValueError, match="comes from another stream"):
            feeds.replay(served.letters, edited=letters[:1])
        with pytest.raises(LookupError, match="no letter 77"):
            feeds.replay(served.letters, edited=[{**letters[1], "offset": 77}])
    with pytest.raises(ValueError, match="line 2 is not a dead letter"):
        list(feeds.edited_letters([b"\n", b'{"offset": 1}']))


def test_a_letter_keeps_its_key() -> None:
    from penstock.streams import Flux

    source = Flux.just(feeds.BadRecord(b"{1", "no", "a", b"k")).concat_with(Flux.never())
    with Gateway(source, ANYWHERE, codec="json", on_bad_record="dead-letter", writable=True) as gateway:
        letters = f"{gateway.endpoint}/dead-letters"
        taken(letters, 1)
        assert feeds.replay(letters, mended).replayed == 1
        (record,) = AquiferPublisher(gateway.endpoint, records=True).flux().take(1)
        assert (record.value, record.key) == (b"1", b"k")


@pytest.mark.parametrize(
    ("run", "error", "text"),
    [
        (lambda endpoint: feeds.replay(endpoint), ValueError, "not a stream of dead letters"),
        (lambda endpoint: feeds.replay(f"{endpoint}/dead-letters"), AquiferError, "accepts no records"),
        (
            lambda endpoint: feeds.replay(f"{endpoint}/dead-letters", lambda _: 7),  # type: ignore[arg-type, return-value]
            TypeError,
            "not 7",
        ),
    ],
)
def test_what_cannot_be_replayed_says_why(
    tmp_path: Path, run: Callable[[str], object], error: type[Exception], text: str
) -> None:
    options = feeds.FeedOptions(max_line=3, on_bad_line="dead-letter", follow=True)
    with (
        feeds.open(lines(tmp_path / "in", b"long line"), options) as feed,
        Gateway(feed, ANYWHERE, on_bad_record="dead-letter") as gateway,
    ):
        taken(f"{gateway.endpoint}/dead-letters", 1)
        with pytest.raises(error, match=text):
            run(gateway.endpoint)


def test_a_commit_with_a_letter_that_was_replayed_publishes_nothing(tmp_path: Path) -> None:
    with Gateway(None, ANYWHERE, writable=True) as gateway, Producer(gateway.endpoint, "p") as producer:
        for batch, offsets in ((1, [1, 2]), (2, [2000])):
            transaction = producer.transaction(batch)
            transaction.write([b"%d" % batch])
            producer.commit(batch, [transaction.prepare()], replay=("e", offsets))
        transaction = producer.transaction(3)
        transaction.write([b"3"])
        with pytest.raises(AlreadyReplayed) as caught:
            producer.commit(3, [transaction.prepare()], replay=("e", [0, 2, 2000]))
        assert caught.value.offsets == (2, 2000)
        assert gateway.status().head == 2
        assert producer.replayed("other", [1]) == []
        with pytest.raises(AquiferError, match="at most 1024 letters"):
            producer.commit(4, [], replay=("e", range(2000)))


@given(st.lists(st.sets(st.integers(0, 5000), max_size=40), max_size=8), st.sets(st.integers(0, 5000)))
def test_the_set_of_replayed_letters_is_a_set(added: list[set[int]], asked: set[int]) -> None:
    marks: dict[str, str] = {}
    for offsets in added:
        marks |= marks_with(marks, "e", offsets)
    assert set(replayed_before(marks, "e", asked)) == asked & set().union(*added)
    assert replayed_before(marks, "f", asked) == []
