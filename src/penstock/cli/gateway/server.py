"""A gateway at the command line: opened, watched, and closed in order however it ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from penstock import feeds
from penstock.aquifer import (
    CurveServer,
    Gateway,
    GatewayOptions,
    GatewayStatus,
    JournalError,
    JournalOptions,
    StreamOptions,
    generate_keys,
    save_keys,
)
from penstock.cli.dashboard.server import (
    metrics_option,
    otlp_export,
    otlp_option,
    refuse_without_page,
    serving,
    serving_metrics,
)
from penstock.cli.errors import CommandError
from penstock.cli.gateway.figures import Audience, Meter
from penstock.cli.gateway.served import WRITERS, ServedStream, open_streams, parse_stream
from penstock.cli.gateway.stream_options import OptionsOfStream, StreamOption, parse_stream_option
from penstock.cli.gateway.useless_options import refuse_useless_endpoint
from penstock.cli.gateway.view import GatewayView, JsonView, LineView, LiveView, QuietView
from penstock.cli.logs import CommandLog, LogOptions, without_secrets
from penstock.cli.parser import section
from penstock.cli.screen import Screen
from penstock.cli.signals import Interruption
from penstock.cli.style import json_option
from penstock.cli.table import counted
from penstock.observe import DashboardOptions, Observer
from penstock.options import option

__all__ = ["GatewayCommandOptions", "run_gateway", "sources"]

_LOOK: Final = 0.1
"""Seconds between two looks at the gateway."""
_LOOK_AT_END: Final = 0.01
"""The same after the end of the source, so that the command exits without delay."""
_LOOK_PER_READER: Final = 0.0002
"""At least so many seconds for each subscriber: a look takes the thread that serves them 4 µs for each."""
_SHOW: Final = 1.0


def sources() -> str:
    """List the sources for the help: the feeds that are known, and the one that is not a feed."""
    rows: list[tuple[str, str]] = []
    for scheme in feeds.known_schemes().values():
        rows.append((scheme.form, scheme.help))
        rows += [(f"{scheme.form}?{flag}", what) for flag, what in scheme.flags.items()]
    rows.append((WRITERS, "nothing is read: a Spark query or a producer writes to the gateway"))
    width = max(len(form) for form, _ in rows)
    return "sources:\n" + "".join(f"  {form:{width}}  {what}\n" for form, what in rows)


@dataclass(frozen=True, kw_only=True)
class KeyOptions:
    """Which clients are let in."""

    curve: str | None = option(
        None, metavar="KEYFILE", help="the gateway's keys: the .key file that --keygen made"
    )
    allow: str | None = option(
        None,
        metavar="WHERE",
        help="who is let in, and with which rights: a directory of .pub files, or a list",
    )
    keygen: str | None = option(
        None, metavar="PATH", help="write new keys to PATH.key and PATH.pub, and exit"
    )


@dataclass(frozen=True, kw_only=True)
class GatewayCommandOptions:
    """The options of ``penstock gateway``."""

    source: str | None = option(
        None, metavar="SOURCE", help=f"where records come from: the URL of a feed, or {WRITERS}"
    )
    stream: tuple[str, ...] = option(
        (),
        repeated=True,
        metavar="NAME=SOURCE",
        parse=parse_stream,
        help="a stream of this name, in place of --source; may be given several times. It is served at "
        "tcp://HOST:PORT/NAME, the first one also without a name. The other options hold for each, unless "
        "--stream-option says otherwise; --journal is a directory",
    )
    stream_option: tuple[StreamOption, ...] = option(
        (),
        repeated=True,
        metavar="NAME.OPTION[=VALUE]",
        parse=parse_stream_option,
        help="an option that holds for one stream, as in orders.codec=json or app.follow; may be given "
        "several times. It can be any option of the source, any option of the log except --journal, or "
        "--compress",
    )
    stay: bool = option(False, help="keep serving after the end of the source")
    quiet: bool = option(False, help="show no progress")
    json: bool = json_option("show progress as lines of JSON, on standard output")
    feed: feeds.FeedOptions = section(feeds.FeedOptions, "how the source is read")
    journal: JournalOptions = section(JournalOptions, "the log")
    gateway: GatewayOptions = section(GatewayOptions, "how records are served", without=("codec",))
    keys: KeyOptions = section(KeyOptions, "keys")
    dashboard: DashboardOptions = section(DashboardOptions, "the dashboard")
    metrics: str | None = metrics_option()
    otlp: str | None = otlp_option()
    log: LogOptions = section(LogOptions, "messages")


def run_gateway(options: GatewayCommandOptions) -> int:
    """Run until everything is served or a signal comes, or make keys; returns the exit code."""
    if options.keys.keygen is not None:
        if options.source is not None or options.stream:
            raise CommandError("--keygen writes keys and exits, so nothing is served: leave the source out")
        return _make_keys(options.keys.keygen)
    _check(options)
    try:
        return _run(options)
    except JournalError as error:
        # From opening or closing it. The gateway reports what happens in between.
        raise CommandError(str(error), 1) from None


def _check(options: GatewayCommandOptions) -> None:
    keys, curve_control = options.keys, options.gateway.curve_control
    if options.source is not None and options.stream:
        raise CommandError("--source is for one stream, and --stream for several: give one or the other")
    if options.source is None and not options.stream:
        raise CommandError(
            "which source? Give --source stdin, file:PATH, tcp://HOST:PORT or another; "
            "`penstock gateway --help` has examples"
        )
    refuse_useless_endpoint(options.gateway)
    refuse_without_page(options.dashboard)
    if keys.allow is not None and keys.curve is None:
        raise CommandError("--allow is a list of keys, and without --curve there are none")
    if (keys.curve is None) != (curve_control is None):
        raise CommandError("--curve and --curve-control go together: keys, and the endpoint that needs them")
    if keys.curve is not None and keys.allow is None:
        raise CommandError("--curve needs --allow: a directory with the .pub files of the clients, or a list")


def _make_keys(path: str) -> int:
    stem = path.removesuffix(".key").removesuffix(".pub")
    try:
        save_keys(generate_keys(), stem)
    except FileExistsError as error:
        raise CommandError(f"{error}; choose another name", 1) from None
    except OSError as error:
        raise CommandError(f"cannot write {stem}.key: {error.strerror}; check the directory", 1) from None
    print(
        f"{stem}.key  is secret: keep it on the machine that uses it, and nowhere else\n"
        f"{stem}.pub  is for the others\n"
        "\n"
        "For a gateway: give its .pub file to the subscribers, put theirs into a directory, and start\n"
        f"  penstock gateway --source … --curve {stem}.key --allow DIRECTORY "
        "--curve-control tcp://0.0.0.0:5560\n"
        "For a subscriber: put its .pub file into that directory, also while it runs, and read with\n"
        f"  penstock tail tcp://HOST:5560 --curve {stem}.key --server-key GATEWAY.pub"
    )
    return 0


def _run(options: GatewayCommandOptions) -> int:
    curve = _curve(options.keys)
    with Interruption(reloads=curve is not None) as interruption, ExitStack() as opened:
        # First whatever can be wrong with the command line, so that nothing is left half open.
        feed_options = replace(options.feed, allow_remote=options.gateway.allow_remote)
        for_all = OptionsOfStream(feed_options, options.journal, options.gateway)
        streams = open_streams(options.source, options.stream, for_all, options.stream_option, opened)
        heads = {one.name: one.journal.head for one in streams}
        view = _view(options)
        opened.enter_context(CommandLog(options.log, "gateway", view.note))
        gateway = _gateway(options, streams, curve)
        opened.callback(gateway.close)
        try:
            gateway.start()
        except OSError as error:
            raise CommandError(error.strerror or str(error), 1) from None
        _introduce(gateway, options, streams, view)
        where = gateway.endpoint if options.gateway.control is not None else gateway.curve_endpoint
        looks = gateway.looks(str(where))
        page, scraped = Observer(*looks, looks=looks), Observer(*looks, looks=looks)
        opened.enter_context(serving(page.look, options.dashboard, view.note, str(where)))
        opened.enter_context(serving_metrics(scraped.look, options.metrics, view.note))
        begins = {_endpoint(str(where), name): head for name, head in heads.items()}
        exported = Observer(*looks, looks=looks)
        export = otlp_export(exported.look, options.otlp, view.note, service="penstock-gateway", heads=begins)
        with export:  # Ends before the gateway does.
            audience = _watch(gateway, streams, options.stay, view, interruption)
        return _finish(gateway, streams, audience, view, interruption)


# ---------------------------------------------------------------- opening
def _endpoint(where: str, stream: str) -> str:
    return f"{where}/{stream}" if stream else where


def _curve(keys: KeyOptions) -> CurveServer | None:
    if keys.curve is None or keys.allow is None:
        return None
    try:
        return CurveServer.load(keys.curve, keys.allow)
    except FileNotFoundError as error:
        # Our own message is complete; that of the system only names the file.
        there_is_none = f"--allow: there is no {error.filename}; name a directory of .pub files, or a list"
        text = str(error) if error.errno is None else there_is_none
        raise CommandError(text) from None
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from None


def _gateway(
    options: GatewayCommandOptions, streams: Sequence[ServedStream], curve: CurveServer | None
) -> Gateway:
    only = streams[0]
    try:
        if not only.name:
            own = _stream_options(only)
            settings = replace(
                options.gateway, codec=own.codec, writable=own.writable, on_bad_record=own.on_bad_record
            )
            return Gateway(only.feed, journal=only.journal, curve=curve, options=settings)
        named = {one.name: _stream_options(one) for one in streams}
        return Gateway(curve=curve, streams=named, options=options.gateway)
    except ValueError as error:
        raise CommandError(str(error)) from None


def _stream_options(one: ServedStream) -> StreamOptions:
    feed = one.options.feed
    return StreamOptions(
        one.feed,
        journal=one.journal,
        codec=feed.stored_codec,
        # Dead letters can be replayed, and that is writing: nobody may do so unless they were asked for.
        writable=feed.on_bad_line == "dead-letter" or one.feed is None,
        on_bad_record=one.on_bad_record,
        compress=one.options.gateway.compress,
    )


def _view(options: GatewayCommandOptions) -> GatewayView:
    screen = Screen()
    if options.json:
        return JsonView(sys.stdout, screen, progress=not options.quiet)
    if options.quiet:
        return QuietView(screen)
    redraws = screen.is_terminal and options.log.format == "text"
    return LiveView(screen) if redraws else LineView(screen)


def _introduce(
    gateway: Gateway, options: GatewayCommandOptions, streams: Sequence[ServedStream], view: GatewayView
) -> None:
    plain = gateway.endpoint if options.gateway.control is not None else None
    encrypted = gateway.curve_endpoint if options.keys.curve is not None else None
    where = [plain] if plain is not None else []
    where += [f"{encrypted} (encrypted)"] if encrypted is not None else []
    view.begin(
        f"serving {', '.join(one.shown for one in streams)} at {' and '.join(where)}",
        control=plain,
        curve_control=encrypted,
        source=without_secrets(options.source) if options.source is not None else None,
        streams={one.name: without_secrets(one.source) for one in streams if one.name},
        journal=streams[0].where or "memory",
    )
    for one in streams:
        if one.feed is not None and one.feed.note is not None:
            view.note(one.feed.note)


# ---------------------------------------------------------------- running
def _watch(
    gateway: Gateway,
    streams: Sequence[ServedStream],
    stay: bool,
    view: GatewayView,
    interruption: Interruption,
) -> list[Audience]:
    """Show the progress until every required reader is done or a signal comes.

    Of several streams, the progress of the default one is shown.
    """
    meter, audiences = Meter(), [Audience() for _ in gateway.streams]
    # Nobody has to read dead letters.
    waited_for = [
        audience
        for name, audience in zip(gateway.streams, audiences, strict=True)
        if name not in gateway.dead_letters
    ]
    meter.figures(gateway.status(), time.monotonic())
    next_show = time.monotonic() + _SHOW
    ended = False
    pause = _LOOK
    while not interruption.wait(pause):
        if interruption.take_reload() and gateway.reload_keys():
            view.note("SIGHUP: reloaded the list of clients")
        statuses, now = _look(gateway, audiences)
        status = statuses[0]
        meter.look(status)
        if now >= next_show:
            next_show = max(next_show + _SHOW, now)
            view.show(meter.figures(status, now))
        if not ended and all(one.end is not None for one in statuses):
            ended = True
            view.note(_told_of_end(gateway, streams, stay))
        if ended and not stay and all(audience.is_served for audience in waited_for):
            view.show(meter.figures(status, now))
            break
        readers = sum(len(one.subscribers) for one in statuses)
        pause = max(_LOOK_AT_END if ended and not stay else _LOOK, readers * _LOOK_PER_READER)
    return audiences


def _look(gateway: Gateway, audiences: Sequence[Audience]) -> tuple[list[GatewayStatus], float]:
    """The status of each stream, at which its audience has looked."""
    statuses, now = [gateway.status(name) for name in gateway.streams], time.monotonic()
    for audience, status in zip(audiences, statuses, strict=True):
        audience.look(status, now)
    return statuses, now


def _told_of_end(gateway: Gateway, streams: Sequence[ServedStream], stay: bool) -> str:
    what = "the source has ended" if gateway.failure is None else f"the source failed: {gateway.failure}"
    if gateway.failure is not None and any(one.refuses_lines for one in streams):
        what += " (--on-bad-line skip leaves such a line out, and dead-letter keeps it)"
    until = "until it is interrupted" if stay else "until every required reader is done"
    return f"{what}; serving {until}"


def _told_of_bad_lines(gateway: Gateway, streams: Sequence[ServedStream]) -> str:
    count, policies = gateway.skipped, {one.on_bad_record for one in streams}
    if not count:
        return ""
    lines = counted(count, "bad line")
    if "dead-letter" not in policies:
        return f", {lines} skipped"
    if "skip" in policies:
        return f", {lines} skipped or kept as dead letters"
    return f", {lines} {'is a dead letter' if count == 1 else 'are dead letters'}"


def _finish(
    gateway: Gateway,
    streams: Sequence[ServedStream],
    audiences: Sequence[Audience],
    view: GatewayView,
    interruption: Interruption,
) -> int:
    """Close, and report what happened to the records."""
    _look(gateway, audiences)
    gateway.close()
    failure, journal = gateway.failure, streams[0].journal
    taken = sum(gateway.status(name).source.received for name in gateway.streams)
    served = sum(audience.records for audience in audiences)
    if journal.durable:
        whereabouts = ", ".join(one.whereabouts for one in streams)
    else:
        whereabouts = "they were only in memory, and are gone"
    reason = "source failed" if failure is not None else "everything is served"
    reason = "interrupted" if interruption.signal is not None else reason
    view.close(
        f"{reason}: {counted(taken, 'record')} taken{_told_of_bad_lines(gateway, streams)}, "
        f"{served:,} served; {whereabouts}",
        reason=reason,
        taken=taken,
        skipped=gateway.skipped,
        served=served,
        first=journal.first,
        head=journal.head,
        streams={one.name: [one.journal.first, one.journal.head] for one in streams if one.name},
        durable=journal.durable,
        failure=failure,
    )
    if interruption.signal is not None:
        return interruption.exit_code
    return 0 if failure is None else 1
