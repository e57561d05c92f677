"""The streams of a gateway at the command line: what feeds each of them, and where its log is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, Final

from penstock import feeds
from penstock.aquifer import (
    Journal,
    JournalOptions,
    KafkaJournal,
    MemoryJournal,
    OnBadRecord,
    SqliteJournal,
)
from penstock.cli.errors import CommandError
from penstock.cli.gateway.stream_options import OptionsOfStream, StreamOption, check_stream_options
from penstock.cli.gateway.useless_options import refuse_useless_for_journal, refuse_useless_for_writers
from penstock.endpoint import check_stream_name
from penstock.kafka import KafkaAddress, is_kafka_url

__all__ = ["WRITERS", "ServedStream", "open_streams", "parse_stream"]

WRITERS: Final = "writers"
"""The source of a stream that has no feed: others write to it."""


@dataclass(frozen=True)
class ServedStream:
    """A stream whose feed and journal are open."""

    name: str
    """Empty for the only one."""
    source: str
    feed: feeds.Feed | None
    """None if others write to it."""
    journal: Journal
    options: OptionsOfStream

    @property
    def shown(self) -> str:
        """What it serves, for people."""
        what = self.feed.name if self.feed is not None else "what others write"
        return f"{self.name} ({what})" if self.name else what

    @property
    def on_bad_record(self) -> OnBadRecord:
        """What happens to an element that cannot become a record."""
        return self.feed.on_bad_record if self.feed is not None else self.options.feed.on_bad_line or "fail"

    @property
    def refuses_lines(self) -> bool:
        """Whether a bad line was an error of its feed."""
        return self.feed is not None and self.feed.bad is not None and self.feed.bad.has_refused

    @property
    def where(self) -> str | None:
        """Where its journal is, without a password; None for memory."""
        return self.journal.path if isinstance(self.journal, KafkaJournal | SqliteJournal) else None

    @property
    def whereabouts(self) -> str:
        """Where its records are after the gateway was closed."""
        journal, of = self.journal, f" of {self.name}" if self.name else ""
        if journal.head > journal.first:
            return f"the journal{of} has the offsets {journal.first:,} to {journal.head - 1:,}"
        return f"the journal{of} is empty"


def parse_stream(text: str) -> str:
    """Check ``NAME=SOURCE``; a ValueError shows one that is right."""
    name, equals, source = text.partition("=")
    if not (equals and source):
        raise ValueError(f"{text!r} does not name a stream; write NAME=SOURCE, as in orders=stdin")
    check_stream_name(name)
    return text


def open_streams(
    source: str | None,
    named: Sequence[str],
    options: OptionsOfStream,
    own: Sequence[StreamOption],
    opened: ExitStack,
) -> list[ServedStream]:
    """Open the feeds first and then the journals, so that a wrong command line leaves nothing behind.

    ``own`` are the options of single streams.
    """
    wanted = [(name, url) for name, _, url in (each.partition("=") for each in named)]
    names = [name for name, _ in wanted]
    if len(set(names)) < len(names):
        raise CommandError(f"--stream: each stream has a name of its own, not {', '.join(names)}")
    check_stream_options(names, own)
    if source is not None:
        wanted.insert(0, ("", source))
    served = [(name, url, options.of(name, own)) for name, url in wanted]
    alone = all(url == WRITERS for _, url, _ in served)
    for name, url, its in served:
        refuse_useless_for_journal(its.journal)
        if url == WRITERS:
            given = {each.name for each in own if each.stream == name}
            refuse_useless_for_writers(its.feed, given, alone=alone)
    sources = [(name, url, its, _feed(name, url, its.feed, opened)) for name, url, its in served]
    if named and options.journal.path is not None and not is_kafka_url(options.journal.path):
        _make_directory(options.journal.path)
    return [
        ServedStream(name, url, fed, opened.enter_context(closing(_journal(name, its.journal))), its)
        for name, url, its, fed in sources
    ]


def _feed(name: str, url: str, options: feeds.FeedOptions, opened: ExitStack) -> feeds.Feed | None:
    if url == WRITERS:
        return None
    try:
        feed = feeds.open(url, options.with_dead_letters())
    except feeds.FeedError as error:
        code = 1 if isinstance(error, feeds.FeedUnavailable) else 2
        writers = f" or {WRITERS}" if isinstance(error, feeds.UnknownScheme) else ""
        flag = f"--stream {name}" if name else "--source"
        raise CommandError(f"{flag}: {error}{writers}", code) from None
    opened.callback(feed.close)
    return feed


def _make_directory(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"with --stream, --journal names a directory, which gets a file for each stream; {path} cannot "
            f"be one: {error.strerror}",
            1,
        ) from None


def _journal(name: str, options: JournalOptions) -> Journal:
    bounds = {"max_records": options.max_records, "max_bytes": options.max_bytes}
    given: dict[str, Any] = {bound: value for bound, value in bounds.items() if value is not None}
    if options.path is None:
        return MemoryJournal(**given)
    if is_kafka_url(options.path):
        return _kafka_journal(name, options.path, max_age=options.max_age, **given)
    path = os.path.join(options.path, f"{name}.db") if name else options.path
    return SqliteJournal(path, max_age=options.max_age, accept_loss=options.accept_loss, **given)


def _kafka_journal(name: str, url: str, **given: Any) -> Journal:
    try:
        address = KafkaAddress.of_url(url)
    except ValueError as error:
        raise CommandError(f"--journal: {error}") from None
    topic = f"{address.topic}-{name}" if name else address.topic
    try:
        return KafkaJournal(",".join(address.brokers), topic, settings=address.settings, **given)
    except ModuleNotFoundError as error:
        raise CommandError(str(error), 1) from None
