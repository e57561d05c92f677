"""What a feed is: where records come from, how they are read, and what can be wrong with one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from penstock.arguments import a_count
from penstock.bad_reasons import BadReason
from penstock.codec_names import parse_codec
from penstock.delivery import UP, ConnectionMeter, Delivery, FeedState
from penstock.feeds.lines import BadLines, Decode, OnBadLine, decoder
from penstock.options import option, parse_size
from penstock.spec import Publisher
from penstock.streams import Flux

if TYPE_CHECKING:
    from penstock.aquifer import Codec

__all__ = [
    "BadFeed",
    "Feed",
    "FeedError",
    "FeedOptions",
    "FeedUnavailable",
    "FileFormat",
    "Restart",
    "UnknownScheme",
]

FileFormat: TypeAlias = Literal["lines", "csv", "parquet"]
"""What a file holds."""
Restart: TypeAlias = Literal["never", "on-failure", "always"]
"""When a program is started again."""


class FeedError(Exception):
    """A feed cannot be opened."""


class BadFeed(FeedError, ValueError):
    """The URL of a feed, or an option, is wrong; the message says what to write."""


class UnknownScheme(BadFeed):
    """No feed has the scheme of a URL; the message lists the known ones."""


class FeedUnavailable(FeedError, OSError):
    """A server is not there, or a port is taken: the same URL may work later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """How a feed is read."""

    codec: str = option(
        "bytes",
        parse=parse_codec,
        metavar="CODEC",
        help="what a line holds: bytes as they come, text (UTF-8), or JSON, stored as json or msgpack. With "
        "a schema: jsonschema:FILE, avro:FILE or protobuf:FILE",
    )
    columns: bool = option(
        False,
        help="store Arrow batches with the columns of the codec's schema, which Spark reads with value=arrow",
    )
    on_bad_line: OnBadLine | None = option(
        None,
        choices=("fail", "skip", "dead-letter"),
        shown="depends on the feed",
        help="what happens to a line that is too long, or that the codec cannot read. fail: the stream ends "
        "with an error; with tcp-listen, only the sender of the line is disconnected. skip: the line is left "
        "out, counted and reported. dead-letter: it is kept, with the reason, in the stream dead-letters, "
        "from which `penstock gateway replay` can put it back. By default, feeds that can tell the sender "
        "refuse the line, udp skips it, and others keep it as a dead letter, or with the codec bytes fail",
    )
    follow: bool = option(
        False,
        help="keep reading a file that is still being written, as tail -F does, also across rotation and "
        "truncation",
    )
    format: FileFormat | None = option(
        None,
        choices=("lines", "csv", "parquet"),
        shown="lines",
        help="what files hold: lines; csv, with a header, where a record is an object; or parquet, with "
        "--columns as Arrow batches",
    )
    take_last_line: bool = option(
        False, help="take the last line of a file even if it has no newline; without this it is left out"
    )
    restart: Restart | None = option(
        None,
        choices=("never", "on-failure", "always"),
        shown="never",
        help="when to start the program of exec: again after it has ended, or to ask http: again, "
        "with growing pauses",
    )
    max_line: int = option(
        1 << 20, parse=parse_size, metavar="SIZE", shown="1M", help="the longest line, in bytes"
    )
    allow_remote: bool = option(
        False,
        flag=None,
        help="let a feed listen where other machines reach it; at the command line this is --insecure",
    )
    default_policy: OnBadLine = "fail"
    """What happens to a bad line if ``on_bad_line`` is None, and the feed has no better default."""

    def __post_init__(self) -> None:
        self._check_codec()
        for name in ("on_bad_line", "default_policy"):
            policy = getattr(self, name)
            if policy not in ("fail", "skip", "dead-letter") and (name, policy) != ("on_bad_line", None):
                raise BadFeed(f"{name}={policy!r} is not known; write fail, skip or dead-letter")
        if self.restart not in (None, "never", "on-failure", "always"):
            raise BadFeed(f"restart={self.restart!r} is not known; write never, on-failure or always")
        a_count(self.max_line, "max_line")

    def _check_codec(self) -> None:
        try:
            parse_codec(self.codec)
            if self.has_schema:
                from penstock.aquifer import open_schema

                schema = open_schema(self.codec)
                if self.columns:
                    schema.arrow_schema()
        except ValueError as error:
            # An error about a schema begins with the codec: it is named once.
            what, told = f"codec {self.codec!r}", str(error)
            told = told.removeprefix(what) if told.startswith(what) else f": {told}"
            raise BadFeed(f"codec={self.codec!r} (--codec){told}") from None
        if self.columns and not self.has_schema and self.format != "parquet":
            raise BadFeed(
                "columns=True (--columns) needs a codec with a schema (--codec), such as jsonschema:FILE, "
                f"and codec={self.codec!r} has none"
            )

    def check_format(self) -> None:
        """BadFeed if the format is not known, or does not fit the other options."""
        if self.format not in (None, "lines", "csv", "parquet"):
            raise BadFeed(f"format={self.format!r} is not known; write lines, csv or parquet")
        if self.format == "parquet" and self.columns and self.has_schema:
            raise BadFeed(
                "format='parquet' (--format) with columns=True (--columns) has the columns of the files: "
                "leave the codec (--codec) out"
            )
        if self.take_last_line and self.format in ("csv", "parquet"):
            raise BadFeed("take_last_line=True (--take-last-line) is for files of lines")

    @property
    def has_schema(self) -> bool:
        """Whether the codec has a schema."""
        return ":" in self.codec

    @property
    def stored_codec(self) -> str | Codec:
        """The codec of the gateway that takes the records: one that builds columns, if they are wanted."""
        if not self.columns:
            return self.codec
        if not self.has_schema:
            return "arrow"  # A Parquet file has columns of its own.
        from penstock.aquifer import ColumnCodec, open_schema

        return ColumnCodec(open_schema(self.codec))

    def with_dead_letters(self) -> FeedOptions:
        """The same options, for a gateway: unless a policy was chosen, a bad line becomes a dead letter.

        Lines of bytes stay as they are: they can only be too long.
        """
        if self.codec == "bytes" and self.format in (None, "lines"):
            return self
        return replace(self, default_policy="dead-letter")

    def bad_lines(self, default: OnBadLine | None = None) -> BadLines:
        """Return a new count of bad lines, with the policy that was chosen, or this default of the feed."""
        return BadLines(self.on_bad_line or default or self.default_policy)

    def decoder(self) -> Decode | None:
        """Return what makes an element of a line; None if the line itself is the element."""
        if self.columns:
            from penstock.aquifer import open_schema

            return open_schema(self.codec).read
        return decoder(self.codec)


class Feed(ABC):
    """A source of records for a gateway or a pipeline; :func:`penstock.feeds.open` makes one of a URL.

    A :class:`penstock.aquifer.Gateway` takes it in place of a Publisher: it calls :meth:`resume` with the
    marks that its journal has, then the feed itself, and subscribes to what that returns. The elements are
    records, or a :class:`Delivery` each: records, with the marks to store in the same transaction, and a
    function to call after the commit.

    Without a gateway, :meth:`flux` has the records, for one subscriber.
    """

    name: str
    """What to call it on a screen."""
    opened_with: FeedOptions | None = None
    """The options, if :func:`penstock.feeds.open` has opened it."""
    note: str | None = None
    """Something that the user should know at the start."""
    bad: BadLines | None = None
    """The count of bad lines, if the feed can have any."""
    state: FeedState = UP
    """Whether it can give records at the moment; a feed with a connection replaces it as things change."""
    senders: ConnectionMeter | None = None
    """Who sends to it, if it has connections that can be told apart."""

    def resume(self, marks: Mapping[str, str]) -> None:
        """Learn the marks of the deliveries that are in the journal; most feeds have none, and ignore it."""
        return

    @abstractmethod
    def __call__(self, journalled: int) -> Publisher[Any]:
        """Return what comes after the records that the journal holds, of which there are ``journalled``.

        A feed that cannot be read again returns what comes from now on.
        """

    def flux(self, journalled: int = 0) -> Flux[Any]:
        """Return the records, for a program without a gateway; those that were taken count as safe."""
        return Flux.from_publisher(self(journalled)).flat_map_iterable(_records_in)

    @property
    def on_bad_record(self) -> OnBadLine:
        """What its gateway should do with an element that cannot become a record.

        ::

            Gateway(feed, codec=feed.opened_with.stored_codec, on_bad_record=feed.on_bad_record)
        """
        if self.opened_with is None:
            return self.bad.policy if self.bad is not None else "fail"
        if self.opened_with.on_bad_line is not None:
            return self.opened_with.on_bad_line
        # A sender that is told of a bad line is not told what no column can hold: the gateway finds that out.
        if self.bad is None or (self.bad.policy == "fail" and self.opened_with.columns):
            return self.opened_with.default_policy
        return self.bad.policy

    @property
    def skipped(self) -> int:
        """How many lines were left out because they could not be records."""
        return self.bad.skipped if self.bad is not None else 0

    @property
    def bad_reasons(self) -> tuple[BadReason, ...]:
        """Why lines were left out: the newest reasons, with how often each was given."""
        return self.bad.reasons.newest if self.bad is not None else ()

    def bounded(self, records: int | None, nbytes: int | None) -> None:
        """Learn how much the log can hold at all, before the feed is read; most feeds ignore it."""
        return

    def journalled(self, head: int) -> None:
        """Learn that the journal holds ``head`` records, several times a second; most feeds ignore it."""
        return

    def close(self) -> None:
        """Close what the feed has open; most feeds have nothing open beyond their stream."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _records_in(element: Any) -> Iterable[Any]:
    return _taken(element) if isinstance(element, Delivery) else (element,)


def _taken(delivery: Delivery) -> Iterator[Any]:
    yield from delivery.records
    if delivery.stored is not None:
        delivery.stored()
