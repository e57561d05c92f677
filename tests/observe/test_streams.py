"""A gateway with several streams: each has its hops, and the verdict names the stream."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock import feeds
from penstock.aquifer import AquiferPublisher, Gateway, MemoryJournal, StreamOptions
from penstock.cli import main
from penstock.observe import Observer, Snapshot, exposition
from penstock.streams import Flux
from tests.aquifer.faults.rigs import eventually
from tests.observe.dashboard.pipelines import HeldReader

ANYWHERE = "tcp://127.0.0.1:0"


def numbers() -> Flux[bytes]:
    return Flux.from_iterable(b"%d" % number for number in itertools.count())


def small(source: Flux[bytes] | None) -> StreamOptions:
    journal = MemoryJournal(max_records=500)
    return StreamOptions(source, journal=journal, codec="bytes", writable=source is None)


@contextmanager
def read(endpoint: str, id: str, *, is_held: bool) -> Iterator[HeldReader]:
    reader = HeldReader()
    reader.is_held = is_held
    AquiferPublisher(endpoint, id=id, codec="bytes", max_window=128).subscribe(reader)
    try:
        yield reader
    finally:
        reader.cancel()


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    """``orders`` is the default stream; nobody writes to ``results``."""
    streams = {"orders": small(numbers()), "clicks": small(numbers()), "results": small(None)}
    with Gateway(control=ANYWHERE, streams=streams) as running:
        yield running


def seen_when(observer: Observer, holds: Callable[[Snapshot], bool]) -> Snapshot:
    """Look until the snapshot is as expected."""
    found: list[Snapshot] = []

    def look() -> bool:
        found.append(observer.look())
        return holds(found[-1])

    eventually(look)
    return found[-1]


def ids(snapshot: Snapshot, kind: str) -> list[str]:
    return [hop.id for hop in snapshot.hops if hop.kind == kind]


@pytest.mark.parametrize("way", ["over the wire", "in the process"])
def test_every_stream_has_its_log_its_source_and_its_cursors(gateway: Gateway, way: str) -> None:
    at = gateway.endpoint
    looks = gateway.looks()
    observer = Observer(at) if way == "over the wire" else Observer(*looks, looks=looks)
    with (
        read(at, "first", is_held=True),  # It names no stream, and gets the default one.
        read(f"{at}/clicks", "second", is_held=True),
    ):
        snapshot = seen_when(observer, lambda one: len(ids(one, "cursor")) == 2)

    assert ids(snapshot, "log") == [f"{at}/orders/log", f"{at}/clicks/log", f"{at}/results/log"]
    assert ids(snapshot, "intake") == [f"{at}/orders/intake", f"{at}/clicks/intake"]
    assert ids(snapshot, "cursor") == [f"{at}/orders/cursor/first", f"{at}/clicks/cursor/second"]
    assert {one.gateway for one in snapshot.subscribers} == {f"{at}/orders", f"{at}/clicks"}
    assert f'hop="{at}/clicks/log"' in exposition(snapshot).decode()


def test_an_endpoint_with_a_name_is_that_stream_alone(gateway: Gateway) -> None:
    snapshot = Observer(f"{gateway.endpoint}/clicks").look()

    assert ids(snapshot, "log") == [f"{gateway.endpoint}/clicks/log"]


def test_the_same_stream_by_two_endpoints_is_shown_once(gateway: Gateway) -> None:
    at = gateway.endpoint
    snapshot = Observer(f"{at}/orders", at, at.replace("127.0.0.1", "localhost")).look()

    assert sorted(ids(snapshot, "log")) == sorted(f"{at}/{name}/log" for name in gateway.streams)


def test_each_stream_that_is_held_up_is_named_with_its_reader(
    gateway: Gateway, capsys: pytest.CaptureFixture[str]
) -> None:
    at = gateway.endpoint
    held = {f"{at}/orders/cursor/first", f"{at}/clicks/cursor/second"}
    with read(f"{at}/orders", "first", is_held=True), read(f"{at}/clicks", "second", is_held=True):
        snapshot = seen_when(Observer(at), lambda one: one.limiting == held)
        assert snapshot.verdict is not None
        sentences = [one.sentence for one in (snapshot.verdict, *snapshot.other_verdicts)]
        assert f"The reader `first` at {at}/orders limits the flow" in sentences[0]
        assert f"The reader `second` at {at}/clicks limits the flow" in sentences[1]

        assert main(["why", at, "--within", "0.5"]) == 3
        said = capsys.readouterr().out
        assert f"`first` at {at}/orders" in said
        assert f"`second` at {at}/clicks" in said

        assert main(["top", at, "--count", "2", "--interval", "0.3"]) == 0
        shown = capsys.readouterr().out
        assert f"log {at}/results" in shown
        assert "intake of clicks" in shown
        assert shown.count("limits the flow") >= 4, "two sentences, and two marks"


def test_a_stream_that_flows_does_not_hide_one_that_is_held_up() -> None:
    steady = Flux.interval(0.01).map(lambda number: b"%d" % number)
    streams = {"orders": small(steady), "clicks": small(numbers())}
    with Gateway(control=ANYWHERE, streams=streams) as gateway:
        at = gateway.endpoint
        with read(at, "first", is_held=False), read(f"{at}/clicks", "second", is_held=True):
            snapshot = seen_when(Observer(at), lambda one: one.limiting == {f"{at}/clicks/cursor/second"})

    assert snapshot.other_verdicts == ()
    assert snapshot.verdict is not None
    assert f"at {at}/clicks limits the flow" in snapshot.verdict.sentence
    assert "orders" not in snapshot.verdict.sentence


def test_a_gateway_that_feeds_another_is_one_pipeline_with_it(gateway: Gateway) -> None:
    """The reader of the default stream names none, and is found at the stream all the same."""
    upper = AquiferPublisher(gateway.endpoint, id="bridge", codec="bytes").flux()
    with Gateway(upper, ANYWHERE, journal=MemoryJournal(max_records=500), codec="bytes") as lower:
        snapshot = seen_when(Observer(gateway.endpoint, lower.endpoint), lambda one: bool(ids(one, "cursor")))
        reader = next(hop for hop in snapshot.hops if hop.kind == "reader")

    assert f"{gateway.endpoint}/orders/cursor/bridge" in reader.upstream


def test_bad_elements_are_errors_with_their_reasons() -> None:
    source = Flux.just({"a": 1}, 1j, {"a": 2}, 2j, threading.Lock())
    with Gateway(source, ANYWHERE, codec="json", on_bad_record="dead-letter") as gateway:
        gateway.join()
        snapshot = Observer(gateway.endpoint).look()
        assert ids(snapshot, "log") == [f"{gateway.endpoint}/log", f"{gateway.endpoint}/dead-letters/log"]
        assert snapshot.hop(f"{gateway.endpoint}/dead-letters/log").records_in == 3
        assert ids(snapshot, "intake") == [f"{gateway.endpoint}/intake"], (
            "letters have no source of their own"
        )

    told = [(error.hop, error.message) for error in snapshot.errors]
    assert [hop for hop, _ in told] == [f"{gateway.endpoint}/intake"] * len(told)
    assert all(message.startswith("a dead letter: ") for _, message in told)
    assert ["complex" in message and message.endswith("(2 times)") for _, message in told] == [True, False]
    assert "lock" in told[1][1]
    assert snapshot.hop(f"{gateway.endpoint}/intake").errors == 3


def test_the_dead_letters_of_a_stream_belong_to_it() -> None:
    bad = StreamOptions(Flux.just(1j), codec="json", on_bad_record="dead-letter")
    streams = {"orders": bad, "clicks": small(numbers())}
    with Gateway(control=ANYWHERE, streams=streams) as gateway:
        gateway._stream("orders").log.wait_until_ended(30)
        at = gateway.endpoint
        snapshot = Observer(f"{at}/orders").look()

    assert ids(snapshot, "log") == [f"{at}/orders/log", f"{at}/orders.dead-letters/log"]
    assert [error.hop for error in snapshot.errors] == [f"{at}/orders/intake"]


def test_lines_that_a_feed_has_skipped_are_errors_with_their_reasons(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_text('{"a": 1}\nnot json\n{"a": 2}\nnot json\n')
    options = feeds.FeedOptions(codec="json", on_bad_line="skip")
    with (
        feeds.open(f"file:{lines}", options) as feed,
        Gateway(feed, ANYWHERE, codec="json") as gateway,
    ):
        gateway.join()
        assert main(["why", gateway.endpoint, "--within", "0.1", "--json"]) in (0, 3)

    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["hop"] == f"{gateway.endpoint}/intake"
    assert error["message"].startswith("left out: JSON is malformed")
    assert error["message"].endswith("(2 times)")
