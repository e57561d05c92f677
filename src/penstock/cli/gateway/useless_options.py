"""Options that would have no effect beside the others: each is refused, with what it is for.

An option that is accepted and does nothing looks as if it had worked.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from penstock.aquifer import GatewayOptions, JournalOptions
from penstock.cli.errors import CommandError
from penstock.feeds import FeedOptions
from penstock.kafka import is_kafka_url

__all__ = ["refuse_useless_endpoint", "refuse_useless_for_journal", "refuse_useless_for_writers"]

_OF_READING: Final = ("follow", "take_last_line", "format", "restart", "columns", "max_line")
"""The options of a source that say how it is read."""
_OF_EACH: Final = frozenset({"columns", "max_line", "on_bad_line"})
"""Those that may be meant for the other streams, if they are given for all."""


def refuse_useless_for_writers(feed: FeedOptions, own: Collection[str], *, alone: bool) -> None:
    """CommandError for an option of a source, where nothing is read because others write.

    ``own`` are the names of the options that were given for this stream; ``alone`` says whether all streams
    are like this one.
    """
    usual = FeedOptions()
    for name in _OF_READING:
        flag = name.replace("_", "-")
        meant = alone or flag in own or name not in _OF_EACH
        if meant and getattr(feed, name) != getattr(usual, name):
            raise CommandError(
                f"--{flag} is for a source that is read, and the source writers reads nothing: leave it out"
            )
    if feed.on_bad_line == "skip" and (alone or "on-bad-line" in own):
        raise CommandError(
            "--on-bad-line skip is for a source that is read, and the source writers reads nothing: a writer "
            "is told of each record that it cannot write. Leave it out"
        )


def refuse_useless_for_journal(journal: JournalOptions) -> None:
    """CommandError for an option that this kind of journal does not have."""
    in_file = journal.path is not None and not is_kafka_url(journal.path)
    if journal.max_age is not None and journal.path is None:
        raise CommandError("--max-age needs a journal in a file: --journal PATH.db")
    if journal.accept_loss and not in_file:
        raise CommandError(
            "--accept-loss is for a journal in a file, whose newest records were lost: name it with "
            "--journal PATH.db, or leave --accept-loss out"
        )


def refuse_useless_endpoint(gateway: GatewayOptions) -> None:
    """CommandError for a place that nobody would connect to."""
    if gateway.control is None and gateway.data is not None:
        raise CommandError(
            "--data is for subscribers that connect to --control, and --control is none: leave --data out. "
            "Subscribers with keys get their records at a free port of --curve-control"
        )
