"""Elements that cannot become records: the stream fails, leaves them out, or keeps them as dead letters."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from penstock.aquifer import (
    AquiferPublisher,
    Gateway,
    MemoryJournal,
    SourceFailed,
    SqliteJournal,
    StreamOptions,
    probe,
)
from penstock.delivery import BadRecord
from penstock.streams import Flux
from tests.aquifer.faults.rigs import ANYWHERE, ByHand, eventually, read

BAD = BadRecord(b"{broken", "Expecting value", "line 2")
ELEMENTS: list[Any] = [{"n": 0}, BAD, {"n": 1}, object(), {"n": 2}]


def values(endpoint: str, **settings: Any) -> list[Any]:
    return list(AquiferPublisher(endpoint, codec="json", **settings).flux())


def test_one_bad_element_is_left_out_and_counted() -> None:
    with Gateway(Flux.from_iterable(ELEMENTS), ANYWHERE, codec="json", on_bad_record="skip") as gateway:
        assert values(gateway.endpoint) == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert gateway.streams == ("",)
        assert gateway.skipped == gateway.status().source.skipped == 2


def test_by_default_a_bad_element_fails_the_stream_after_those_before_it() -> None:
    for bad in (BAD, object()):
        with Gateway(Flux.just({"n": 0}, bad, {"n": 1}), ANYWHERE, codec="json") as gateway:
            reader = read(gateway.endpoint, codec="json").wait()
            assert reader.items == [{"n": 0}]
            assert isinstance(reader.error, SourceFailed)


def test_dead_letters_say_what_why_where_and_when() -> None:
    source = Flux.from_iterable([*ELEMENTS, BadRecord(b"\xff\xfe", "not UTF-8")])
    with Gateway(source, ANYWHERE, codec="json", on_bad_record="dead-letter") as gateway:
        assert gateway.streams == ("", "dead-letters")
        assert values(gateway.endpoint) == [{"n": 0}, {"n": 1}, {"n": 2}]
        first, second, third = values(f"{gateway.endpoint}/dead-letters")
        assert gateway.skipped == 3
        eventually(gateway.drained, "nobody has to read dead letters")
        assert first.pop("time").endswith("Z")
        assert first == {
            "offset": 1,
            "epoch": gateway.status().epoch,
            "position": "line 2",
            "reason": "Expecting value",
            "bytes": 7,
            "text": "{broken",
        }
        assert "object object" in second["text"]
        assert second["reason"].startswith("TypeError: ")
        assert b64decode(third["base64"]) == b"\xff\xfe"


def test_dead_letters_of_a_named_stream_carry_its_name_and_survive_with_it(tmp_path: Path) -> None:
    def streams(*elements: Any) -> dict[str, StreamOptions]:
        journal = SqliteJournal(tmp_path / "orders.db")
        source = Flux.from_iterable(elements)
        return {"orders": StreamOptions(source, journal=journal, codec="json", on_bad_record="dead-letter")}

    with Gateway(control=ANYWHERE, streams=streams(*ELEMENTS)) as gateway:
        assert gateway.join(60)
    with Gateway(control=ANYWHERE, streams=streams(BAD)) as gateway:
        letters = values(f"{gateway.endpoint}/orders.dead-letters")
        assert [letter["position"] for letter in letters] == ["line 2", "", "line 2"]
        assert [letter["offset"] for letter in letters] == [1, 2, 3]


def test_a_dead_letter_has_the_offset_of_the_record_after_it_whatever_an_element_holds() -> None:
    bad = BadRecord(b"?", "bad")
    rows = [pyarrow.RecordBatch.from_pydict({"n": list(range(count))}) for count in (3, 0, 2)]
    source = Flux.from_iterable([rows[0], bad, rows[1], bad, rows[2], bad])
    with Gateway(source, ANYWHERE, codec="arrow", on_bad_record="dead-letter") as gateway:
        letters = values(f"{gateway.endpoint}/dead-letters")
        assert [letter["offset"] for letter in letters] == [3, 3, 5]


def test_dead_letters_are_bounded_and_the_oldest_make_space_unless_a_reader_needs_them() -> None:
    source, few = ByHand(), MemoryJournal(max_records=10)
    stream = StreamOptions(source, codec="json", on_bad_record="dead-letter", dead_letters=few)
    with Gateway(control=ANYWHERE, streams={"orders": stream}) as gateway:
        for number in range(50):
            source.give(BadRecord(b"%d" % number, "bad"))
        source.give({"good": True})
        reading = read(gateway.endpoint, 1, codec="json")
        eventually(lambda: reading.items == [{"good": True}], "the stream waits for its dead letters")
        status = gateway.status("orders.dead-letters")
        assert status.head == 50
        assert 0 < status.records <= 10

        needed = read(f"{gateway.endpoint}/orders.dead-letters", 1, codec="json", id="mender")
        eventually(lambda: needed.items, "a dead letter")
        first = gateway.status("orders.dead-letters").first
        for number in range(5):
            source.give(BadRecord(b"%d" % number, "bad"))
        source.complete()
        needed.request(1000)
        assert [letter["reason"] for letter in needed.wait().items] == ["bad"] * (55 - first)
        reading.cancel()


def test_a_stream_that_waits_for_its_dead_letters_stores_cursors_and_retires_records(tmp_path: Path) -> None:
    source, journal = ByHand(), SqliteJournal(tmp_path / "orders.db", max_age=0.5)
    stream = StreamOptions(
        source,
        journal=journal,
        codec="json",
        on_bad_record="dead-letter",
        dead_letters=MemoryJournal(max_records=10),
    )
    with Gateway(control=ANYWHERE, streams={"orders": stream}) as gateway:
        source.give({"good": 1})
        needed = read(f"{gateway.endpoint}/orders.dead-letters", 1, codec="json", id="mender")
        eventually(lambda: gateway.status("orders.dead-letters").subscribers, "a reader that needs them")
        for number in range(30):
            source.give(BadRecord(b"%d" % number, "bad"))
        eventually(lambda: gateway.status("orders.dead-letters").records >= 9, "their log is full")
        eventually(lambda: gateway.status("orders").first == 1, "what is too old goes")

        reading = read(f"{gateway.endpoint}/orders", 1, codec="json", id="reader", start="latest", lease=600)
        eventually(lambda: gateway.status("orders").subscribers, "a reader")
        reading.cancel()
        eventually(lambda: "reader" in journal.cursors, "its cursor is stored")
        times = gateway.status("orders").log.times
        assert times.waiting_for_demand > times.working

        needed.request(1000)
        source.give({"good": 2})
        eventually(lambda: gateway.status("orders").head == 2, "the stream goes on")
        needed.cancel()


def test_a_thousand_bad_elements_among_good_ones_cost_no_batch_each() -> None:
    source = Flux.from_iterable([{"n": n} if n % 10 else BAD for n in range(10_000)])
    journal = MemoryJournal()
    with Gateway(source, ANYWHERE, codec="json", on_bad_record="skip", journal=journal) as gateway:
        assert values(gateway.endpoint) == [{"n": n} for n in range(10_000) if n % 10]
        assert gateway.skipped == 1000


def test_wrong_policies_are_refused() -> None:
    with pytest.raises(ValueError, match="'fail', 'skip' or 'dead-letter'"):
        StreamOptions(Flux.empty(), on_bad_record="ignore")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one by one"):
        StreamOptions(Flux.empty(), batched=True, on_bad_record="skip")
    with pytest.raises(ValueError, match="the name for dead letters"):
        Gateway(
            Flux.empty(),
            ANYWHERE,
            on_bad_record="dead-letter",
            streams={"dead-letters": StreamOptions(Flux.empty())},
        )


class _Shy:
    def __repr__(self) -> str:
        raise RuntimeError("nobody sees me")


class _Speechless(ValueError):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class _Picky:
    name = "picky"

    def encode(self, element: Any) -> bytes:
        if element == b"bad":
            raise _Speechless
        return bytes(element)

    def decode(self, value: bytes) -> bytes:
        return value


@pytest.mark.parametrize("policy", ["skip", "dead-letter"])
def test_what_cannot_be_written_as_text_does_not_end_the_stream(policy: Any) -> None:
    name = b"data-\xff.csv".decode(errors="surrogateescape")
    bad = [BadRecord(b"x", f"{name} is not a number", name), _Shy()]
    with Gateway(
        Flux.just({"n": 0}, *bad, {"n": 1}), ANYWHERE, codec="json", on_bad_record=policy
    ) as gateway:
        assert values(gateway.endpoint) == [{"n": 0}, {"n": 1}]
        assert probe(gateway.endpoint, 60).source.skipped == 2
        if policy == "dead-letter":
            first, second = values(f"{gateway.endpoint}/dead-letters")
            assert (first["position"], second["text"].count("_Shy")) == ("data-\\udcff.csv", 1)


def test_an_error_without_a_text_does_not_end_the_stream() -> None:
    with Gateway(
        Flux.just(b"1", b"bad", b"2"), ANYWHERE, codec=_Picky(), on_bad_record="dead-letter"
    ) as gateway:
        assert list(AquiferPublisher(gateway.endpoint).flux()) == [b"1", b"2"]
        (letter,) = values(f"{gateway.endpoint}/dead-letters")
        assert letter["text"] == "bad"
        assert "_Speechless" in letter["reason"]
