"""A gateway at the command line: opened, watched, and closed in good order whatever ends it."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from contextlib import ExitStack, closing
from typing import Final

from penstock.aquifer import CurveServer, Gateway, Journal, JournalError, MemoryJournal, SqliteJournal
from penstock.cli.complaints import Complaint, LogOnScreen
from penstock.cli.gateway_audience import Audience
from penstock.cli.gateway_figures import Meter
from penstock.cli.gateway_sources import Origin, open_source
from penstock.cli.gateway_view import JsonView, LineView, LiveView, QuietView, View
from penstock.cli.interruption import Interruption

__all__ = ["run_gateway"]

_LOOK: Final = 0.1
"""Seconds between looks at the gateway; after the end of the source they are shorter, not to be late."""
_LOOK_AT_END: Final = 0.01
_SHOW: Final = 1.0


def run_gateway(arguments: argparse.Namespace) -> int:
    """Run until everything is served or a signal comes; returns the exit code."""
    curve = _curve(arguments)
    with Interruption() as interruption, ExitStack() as opened:
        # All at first that can be wrong with the command line: nothing is to be left half open.
        origin = open_source(arguments.source, arguments.max_line, arguments.codec)
        opened.callback(origin.close)
        journal = opened.enter_context(closing(_journal(arguments)))
        view = _view(arguments)
        for layer in ("penstock.aquifer", "penstock.net", "penstock.cli"):
            opened.enter_context(LogOnScreen(view.note, logging.WARNING, layer))
        gateway = _gateway(arguments, origin, journal, curve)
        opened.callback(gateway.close)
        try:
            gateway.start()
        except OSError as error:
            raise Complaint(error.strerror or str(error), 1) from None
        _introduce(gateway, arguments, origin, view)
        audience = _watch(gateway, origin, arguments.stay, view, interruption)
        return _finish(gateway, journal, audience, view, interruption)


# ---------------------------------------------------------------- opening
def _curve(arguments: argparse.Namespace) -> CurveServer | None:
    if arguments.curve is None:
        return None
    try:
        return CurveServer.load(arguments.curve, arguments.allow)
    except FileNotFoundError as error:
        # Our own says it all; that of the system only names the file.
        text = str(error) if error.errno is None else f"--allow: there is no {error.filename}"
        raise Complaint(text) from None
    except (OSError, ValueError) as error:
        raise Complaint(str(error)) from None


def _journal(arguments: argparse.Namespace) -> Journal:
    bounds = {"max_records": arguments.max_records, "max_bytes": arguments.max_bytes}
    given = {name: value for name, value in bounds.items() if value is not None}
    if arguments.journal == "memory":
        return MemoryJournal(**given)
    try:
        return SqliteJournal(os.path.expanduser(arguments.journal), max_age=arguments.max_age, **given)
    except JournalError as error:
        raise Complaint(str(error), 1) from None


def _gateway(
    arguments: argparse.Namespace, origin: Origin, journal: Journal, curve: CurveServer | None
) -> Gateway:
    try:
        return Gateway(
            None if origin.writable else origin,
            None if arguments.control == "none" else arguments.control,
            data=arguments.data,
            journal=journal,
            codec=arguments.codec,
            curve=curve,
            curve_control=arguments.curve_control,
            allow_remote=arguments.insecure,
            writable=origin.writable,
        )
    except ValueError as error:
        raise Complaint(str(error)) from None


def _view(arguments: argparse.Namespace) -> View:
    if arguments.format == "json":
        return JsonView(sys.stdout, sys.stderr, progress=not arguments.quiet)
    if arguments.quiet:
        return QuietView(sys.stderr)
    return LiveView(sys.stderr) if sys.stderr.isatty() else LineView(sys.stderr)


def _introduce(gateway: Gateway, arguments: argparse.Namespace, origin: Origin, view: View) -> None:
    plain = gateway.endpoint if arguments.control != "none" else None
    encrypted = gateway.curve_endpoint if arguments.curve is not None else None
    where = [plain] if plain is not None else []
    where += [f"{encrypted} (encrypted)"] if encrypted is not None else []
    view.begin(
        f"serving {origin.name} at {' and '.join(where)}",
        control=plain,
        curve_control=encrypted,
        source=arguments.source,
        journal=arguments.journal,
    )
    if origin.note is not None:
        view.note(origin.note)


# ---------------------------------------------------------------- running
def _watch(gateway: Gateway, origin: Origin, stay: bool, view: View, interruption: Interruption) -> Audience:
    """Show how things go, until everybody is served or a signal comes."""
    meter, audience = Meter(), Audience()
    meter.figures(gateway.status(), time.monotonic())
    next_show = time.monotonic() + _SHOW
    ended = False
    while not interruption.wait(_LOOK_AT_END if ended and not stay else _LOOK):
        status, now = gateway.status(), time.monotonic()
        origin.journalled(status["head"])
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
    gateway: Gateway, journal: Journal, audience: Audience, view: View, interruption: Interruption
) -> int:
    """Close, and say what has become of the records."""
    audience.look(gateway.status(), time.monotonic())
    gateway.close()
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
    view.close(
        f"{reason}: {taken:,} records taken, {audience.records:,} served; {whereabouts}",
        reason=reason,
        taken=taken,
        served=audience.records,
        first=journal.first,
        head=journal.head,
        durable=journal.durable,
        failure=failure,
    )
    if interruption.signal is not None:
        return interruption.exit_code
    return 0 if failure is None else 1
