"""A dashboard at the command line: of its own, or beside a gateway or a pipeline, as are metrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.errors import CommandError, ExitCode
from penstock.cli.logs import CommandLog, LogOptions, tell, without_secrets
from penstock.cli.parser import ObservedOptions, section
from penstock.cli.signals import Interruption
from penstock.observe import (
    Dashboard,
    DashboardOptions,
    MetricsServer,
    OtlpExport,
    grafana_dashboard,
    otlp_endpoint,
    parse_otlp_url,
)
from penstock.options import option

if TYPE_CHECKING:
    from penstock.observe import Snapshot

__all__ = [
    "DashboardCommandOptions",
    "metrics_option",
    "otlp_export",
    "otlp_option",
    "refuse_without_page",
    "run_dashboard",
    "serving",
    "serving_metrics",
]

_METRICS: Final = "127.0.0.1:9464"
"""Where metrics are served, unless the command line names another address."""


@dataclass(frozen=True, kw_only=True)
class DashboardCommandOptions(ObservedOptions):
    """The options of ``penstock dashboard``."""

    listen: str = option("127.0.0.1:5580", metavar="HOST:PORT", help="where to serve the page")
    grafana: bool = option(
        False, help="print a dashboard for Grafana, a file to import there, and exit; it needs no gateway"
    )
    web: DashboardOptions = section(DashboardOptions, "who may see it", without=("listen",))
    log: LogOptions = section(LogOptions, "messages")


def run_dashboard(options: DashboardCommandOptions) -> int:
    """Serve the page until a signal comes, or print the file for Grafana."""
    if options.grafana:
        print(json.dumps(grafana_dashboard(), indent=2))
        return ExitCode.OK
    observer = options.observer()
    try:
        web = replace(options.web, listen=options.listen)
    except ValueError as error:
        raise CommandError(f"--listen: {error}") from None
    title = ", ".join(options.endpoints)
    with (
        Interruption() as interruption,
        CommandLog(options.log, "dashboard"),
        serving(observer.look, web, lambda text: tell("dashboard", text), title, options.interval),
    ):
        while not interruption.wait(3600):
            pass
        return interruption.exit_code


def refuse_without_page(options: DashboardOptions) -> None:
    """CommandError if an option is for a dashboard that is not wanted."""
    flags = {"token_file": "--dashboard-token", "names": "--dashboard-name", "tls_cert": "--tls-cert"}
    for name, flag in flags.items():
        if getattr(options, name) and options.listen is None:
            raise CommandError(f"{flag} is for the dashboard, and there is none: add --dashboard HOST:PORT")


@contextmanager
def serving(
    look: Callable[[], Snapshot],
    options: DashboardOptions,
    note: Callable[[str], object],
    title: str,
    interval: float = 1.0,
) -> Iterator[None]:
    """Serve a dashboard for the length of a block, and tell its address; nothing if it is not wanted."""
    if options.listen is None:
        yield
        return
    try:
        dashboard = Dashboard(look, options, title=title, interval=interval)
    except ValueError as error:
        raise CommandError(str(error)) from None
    try:
        dashboard.start()
    except OSError as error:
        raise CommandError(error.strerror or str(error), ExitCode.FAILED) from None
    try:
        note(f"dashboard at {dashboard.url}")
        if dashboard.is_exposed:
            note("the page and the token are not encrypted; use --tls-cert and --tls-key")
        yield
    finally:
        dashboard.close()


def metrics_option() -> Any:
    """Declare the option ``--metrics``, the same for every command that has it."""
    return option(
        None,
        bare=_METRICS,
        metavar="HOST:PORT",
        help="serve /metrics for Prometheus, /healthz and /readyz at this address; without one, at "
        f"{_METRICS}",
    )


@contextmanager
def serving_metrics(
    look: Callable[[], Snapshot], address: str | None, note: Callable[[str], object]
) -> Iterator[None]:
    """Serve metrics for the length of a block, and tell their address; nothing if they are not wanted."""
    if address is None:
        yield
        return
    try:
        server = MetricsServer(look, address).start()
    except ValueError as error:
        remedy = f"write HOST:PORT, such as {_METRICS}, or put --metrics at the end of the command"
        raise CommandError(f"--metrics: {error}; {remedy}") from None
    except OSError as error:
        raise CommandError(f"--metrics {address}: {error.strerror or error}", ExitCode.FAILED) from None
    with closing(server):
        note(f"metrics at {server.url}")
        yield


def otlp_option() -> Any:
    """Declare the option ``--otlp``, the same for every command that has it."""
    return option(
        None,
        metavar="URL",
        parse=parse_otlp_url,
        help="send metrics and spans to the OpenTelemetry collector there, over HTTP; without it, to that of "
        "OTEL_EXPORTER_OTLP_ENDPOINT if the environment has it",
    )


def otlp_export(
    look: Callable[[], Snapshot],
    url: str | None,
    note: Callable[[str], object],
    *,
    service: str,
    heads: Mapping[str, int] | None = None,
) -> OtlpExport | nullcontext[None]:
    """What exports to OpenTelemetry for the length of a block; nothing if nobody wants it.

    CommandError if ``--otlp`` cannot be done. What the environment wants may be meant for other programs.
    """
    target = otlp_endpoint() if url is None else url
    if target is None:
        return nullcontext()
    try:
        export = OtlpExport(look, url, service=service, heads=heads)
    except (ImportError, ValueError) as error:
        if url is not None:
            raise CommandError(f"--otlp: {error}", 1 if isinstance(error, ImportError) else 2) from None
        note(f"nothing is sent to OpenTelemetry: {error}")
        return nullcontext()
    note(f"metrics and spans go to {without_secrets(target)}")
    return export
