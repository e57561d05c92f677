"""A gateway at the command line: opened, watched, and closed in good order whatever ends it."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from contextlib import ExitStack, closing
from typing import Final

from penstock import feeds
from penstock.aquifer import CurveServer, Gateway, Journal, JournalError, MemoryJournal, SqliteJournal
from penstock.cli.errors import CommandError, ScreenLog
from penstock.cli.gateway.figures import Audience, Meter
from penstock.cli.gateway.view import JsonView, LineView, LiveView, QuietView, View
from penstock.cli.screen import Screen
from penstock.cli.signals import Interruption

__all__ = ["run_gateway"]

WRITERS: Final = "writers"
"""The source of a gateway that is only written to."""

_LOOK: Final = 0.1
"""Seconds between looks at the gateway; after the end of the source they are shorter, not to be late."""
_LOOK_AT_END: Final = 0.01
_SHOW: Final = 1.0


def run_gateway(arguments: argparse.Namespace) -> int:
    """Run until everything is served or a signal comes; returns the exit code."""
    try:
        return _run(arguments)
    except JournalError as error:
        # When it is opened or closed: what happens in between is told by the gateway.
        raise CommandError(str(error), 1) from None


def _run(arguments: argparse.Namespace) -> int:
    curve = _curve(arguments)
    with Interruption(reloads=curve is not None) as interruption, ExitStack() as opened:
        # All at first that can be wrong with the command line: nothing is to be left half open.
        feed = _feed(arguments)
        if feed is not None:
            opened.callback(feed.close)
        journal = opened.enter_context(closing(_journal(arguments)))
        if journal.durable and feed is not None:
            feed.remember_at(f"{_path(arguments)}.source", journal.epoch)
        view = _view(arguments)
        for layer in ("penstock.aquifer", "penstock.net", "penstock.feeds"):
            opened.enter_context(ScreenLog(view.note, logging.WARNING, layer))
        gateway = _gateway(arguments, feed, journal, curve)
        opened.callback(gateway.close)
        try:
            gateway.start()
        except OSError as error:
            raise CommandError(error.strerror or str(error), 1) from None
        _introduce(gateway, arguments, feed, view)
        audience = _watch(gateway, feed, arguments.stay, view, interruption)
        return _finish(gateway, feed, journal, audience, view, interruption)


# ---------------------------------------------------------------- opening
def _feed(arguments: argparse.Namespace) -> feeds.Feed | None:
    """The feed that --source names; None if the gateway is only written to."""
    if arguments.source == WRITERS:
        return None
    options = feeds.FeedOptions(
        codec=arguments.codec,
        on_bad_line=arguments.on_bad_line,
        follow=arguments.follow,
        take_last_line=arguments.take_last_line,
        max_line=arguments.max_line,
        allow_remote=arguments.insecure,
    )
    try:
        return feeds.open(arguments.source, options)
    except feeds.FeedError as error:
        raise CommandError(
            f"--source: {error}", 1 if isinstance(error, feeds.FeedUnavailable) else 2
        ) from None


def _curve(arguments: argparse.Namespace) -> CurveServer | None:
    if arguments.curve is None:
        return None
    try:
        return CurveServer.load(arguments.curve, arguments.allow)
    except FileNotFoundError as error:
        # Our own says it all; that of the system only names the file.
        text = str(error) if error.errno is None else f"--allow: there is no {error.filename}"
        raise CommandError(text) from None
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from None


def _journal(arguments: argparse.Namespace) -> Journal:
    bounds = {"max_records": arguments.max_records, "max_bytes": arguments.max_bytes}
    given = {name: value for name, value in bounds.items() if value is not None}
    if arguments.journal == "memory":
        return MemoryJournal(**given)
    return SqliteJournal(
        _path(arguments), max_age=arguments.max_age, accept_loss=arguments.accept_loss, **given
    )


def _path(arguments: argparse.Namespace) -> str:
    return os.path.expanduser(str(arguments.journal))


def _gateway(
    arguments: argparse.Namespace, feed: feeds.Feed | None, journal: Journal, curve: CurveServer | None
) -> Gateway:
    try:
        return Gateway(
            feed,
            None if arguments.control == "none" else arguments.control,
            data=arguments.data,
            journal=journal,
            codec=arguments.codec,
            curve=curve,
            curve_control=arguments.curve_control,
            allow_remote=arguments.insecure,
            writable=feed is None,
        )
    except ValueError as error:
        raise CommandError(str(error)) from None


def _view(arguments: argparse.Namespace) -> View:
    screen = Screen()
    if arguments.format == "json":
        return JsonView(sys.stdout, screen, progress=not arguments.quiet)
    if arguments.quiet:
        return QuietView(screen)
    return LiveView(screen) if screen.is_terminal else LineView(screen)


def _introduce(gateway: Gateway, arguments: argparse.Namespace, feed: feeds.Feed | None, view: View) -> None:
    plain = gateway.endpoint if arguments.control != "none" else None
    encrypted = gateway.curve_endpoint if arguments.curve is not None else None
    where = [plain] if plain is not None else []
    where += [f"{encrypted} (encrypted)"] if encrypted is not None else []
    view.begin(
        f"serving {feed.name if feed is not None else 'what others write'} at {' and '.join(where)}",
        control=plain,
        curve_control=encrypted,
        source=arguments.source,
        journal=arguments.journal,
    )
    if feed is not None and feed.note is not None:
        view.note(feed.note)


# ---------------------------------------------------------------- running
def _watch(
    gateway: Gateway, feed: feeds.Feed | None, stay: bool, view: View, interruption: Interruption
) -> Audience:
    """Show how things go, until everybody is served or a signal comes."""
    meter, audience = Meter(), Audience()
    meter.figures(gateway.status(), time.monotonic())
    next_show = time.monotonic() + _SHOW
    ended = False
    while not interruption.wait(_LOOK_AT_END if ended and not stay else _LOOK):
        if interruption.take_reload() and gateway.reload_keys():
            view.note("SIGHUP: the list of clients was read again")
        if feed is not None:
            gateway.skipped = feed.skipped
        status, now = gateway.status(), time.monotonic()
        if feed is not None:
            feed.journalled(status["head"])
        meter.look(status)
        audience.look(status, now)
        if now >= next_show:
            next_show = max(next_show + _SHOW, now)
            view.show(meter.figures(status, now))
        if status["end"] is not None and not ended:
            ended = True
            view.note(_told_of_end(gateway, stay))
        if ended and not stay and audience.is_served:
            view.show(meter.figures(status, now))
            break
    return audience


def _told_of_end(gateway: Gateway, stay: bool) -> str:
    what = "the source has ended" if gateway.failure is None else f"the source failed: {gateway.failure}"
    until = "until it is interrupted" if stay else "until its subscribers have everything"
    return f"{what}; serving on {until}"


def _finish(
    gateway: Gateway,
    feed: feeds.Feed | None,
    journal: Journal,
    audience: Audience,
    view: View,
    interruption: Interruption,
) -> int:
    """Close, and say what has become of the records."""
    audience.look(gateway.status(), time.monotonic())
    gateway.close()
    if feed is not None:
        feed.journalled(journal.head)
        gateway.skipped = feed.skipped
    failure = gateway.failure
    taken = gateway.status()["source"]["received"]
    if not journal.durable:
        whereabouts = "they were in memory only, and are gone"
    elif journal.head > journal.first:
        whereabouts = f"the journal keeps the offsets {journal.first:,} to {journal.head - 1:,}"
    else:
        whereabouts = "the journal is empty"
    reason = "source failed" if failure is not None else "everything is served"
    reason = "interrupted" if interruption.signal is not None else reason
    skipped = f", {gateway.skipped:,} bad lines skipped" if gateway.skipped else ""
    view.close(
        f"{reason}: {taken:,} records taken{skipped}, {audience.records:,} served; {whereabouts}",
        reason=reason,
        taken=taken,
        skipped=gateway.skipped,
        served=audience.records,
        first=journal.first,
        head=journal.head,
        durable=journal.durable,
        failure=failure,
    )
    if interruption.signal is not None:
        return interruption.exit_code
    return 0 if failure is None else 1
