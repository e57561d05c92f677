"""Snapshots as metrics and spans of OpenTelemetry, for providers that the program has set up.

The metrics are those of :data:`penstock.observe.METRICS`: ``penstock_records_in`` is ``penstock.records_in``.
:mod:`penstock.observe.batch_spans` says what there is a span for. Nothing here is imported, and nothing runs,
before somebody makes a :class:`Telemetry`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self
from weakref import WeakKeyDictionary

from penstock import __version__
from penstock.arguments import seconds
from penstock.observe.batch_spans import BatchSpans
from penstock.observe.metric_families import METRICS, MetricFamily
from penstock.observe.model import Snapshot

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import TracerProvider

__all__ = ["Telemetry", "needs_opentelemetry"]

_log = logging.getLogger("penstock.observe")

_SCOPE: Final = "penstock"
_PERIOD: Final = 10.0
"""Seconds that a span of an intake or of a reader covers."""


class Telemetry:
    """Gives snapshots to OpenTelemetry, from ``start()`` to ``close()``; needs the extra ``otel``.

    ::

        with Telemetry(Observer("tcp://127.0.0.1:5556").look, meter_provider=provider):
            ...

    A thread takes a snapshot each ``interval`` seconds. The instruments show the newest one, whenever and
    however often a reader of the provider collects; while no snapshot can be taken they show nothing. With a
    ``tracer_provider`` there are spans for the intake of each log, for each reader and for each Spark batch;
    one of an intake or a reader covers ``period`` seconds. ``heads`` are the heads of logs before the first
    snapshot, by endpoint, where they are known.

    The providers are the program's own: they are neither made nor shut down here.
    """

    def __init__(
        self,
        look: Callable[[], Snapshot],
        *,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
        interval: float = 1.0,
        period: float = _PERIOD,
        heads: Mapping[str, int] | None = None,
    ) -> None:
        if meter_provider is None and tracer_provider is None:
            raise ValueError(
                "Telemetry() needs a meter_provider for metrics, a tracer_provider for spans, or both"
            )
        needs_opentelemetry("opentelemetry.metrics")
        self._take = look
        self._interval = seconds(interval, "Telemetry(interval=…)", positive=True)
        covered = seconds(period, "Telemetry(period=…)", positive=True)
        self._instruments = None if meter_provider is None else _instruments_of(meter_provider)
        self._spans: BatchSpans | None = None
        if tracer_provider is not None:
            tracer = tracer_provider.get_tracer(_SCOPE, __version__)
            self._spans = BatchSpans(tracer, covered, heads)
        self._snapshot: Snapshot | None = None
        self._trouble = False
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def snapshot(self) -> Snapshot | None:
        """What the instruments show: the newest snapshot, or None if it could not be taken."""
        return self._snapshot

    def look(self) -> None:
        """Take a snapshot now. The thread does this; without ``start()`` it is for the program to do.

        An error of the snapshot is logged, when it is the first one in a row.
        """
        if self._instruments is not None:
            self._instruments.add(self)
        try:
            snapshot = self._take()
        except Exception as error:
            if not self._trouble:
                _log.warning("no snapshot could be taken for OpenTelemetry: %s", error)
            self._snapshot, self._trouble = None, True
            return
        self._snapshot, self._trouble = snapshot, False
        try:
            if self._spans is not None:
                self._spans.note(snapshot)
        except Exception:
            _log.exception("the spans of a snapshot could not be made")  # A provider of the program's own.

    def start(self) -> Self:
        """Look again and again, on a thread."""
        if self._thread is not None or self._closing.is_set():
            raise RuntimeError("this Telemetry was started or closed before: make another one")
        self._thread = threading.Thread(target=self._run, name="penstock-telemetry", daemon=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        self.look()
        while not self._closing.wait(self._interval):
            self.look()

    def stop(self) -> None:
        """Look once more if it was started, and end the open spans; it can be called again.

        The instruments still show the last figures, so that the provider can be flushed before ``close()``.
        """
        if self._closing.is_set():
            return
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
            self.look()
        if self._spans is not None:
            self._spans.close()

    def close(self) -> None:
        """Stop, and show nothing any more; it can be called again."""
        self.stop()
        self._snapshot = None
        if self._instruments is not None:
            self._instruments.remove(self)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Instruments:
    """The instruments of one provider. OpenTelemetry has one of each name, however often it is asked for."""

    def __init__(self, provider: MeterProvider) -> None:
        self._mutex = threading.Lock()
        self._shown: list[Telemetry] = []
        meter = provider.get_meter(_SCOPE, __version__)
        for family in METRICS:
            create = (
                meter.create_observable_counter if family.kind == "counter" else meter.create_observable_gauge
            )
            create(
                family.otel_name,
                callbacks=[self._observed(family)],
                unit=family.otel_unit,
                description=family.help,
            )

    def add(self, telemetry: Telemetry) -> None:
        """Show its snapshots from now on."""
        with self._mutex:
            if telemetry not in self._shown:
                self._shown.append(telemetry)

    def remove(self, telemetry: Telemetry) -> None:
        """Show them no more."""
        with self._mutex:
            if telemetry in self._shown:
                self._shown.remove(telemetry)

    def _observed(self, family: MetricFamily) -> Callable[[CallbackOptions], Iterable[Observation]]:
        from opentelemetry.metrics import Observation

        def observe(options: CallbackOptions) -> Iterable[Observation]:
            with self._mutex:
                snapshots = [each.snapshot for each in self._shown]
            # Two observers may look at the same gateway: a sum must have it once.
            found = {
                labels: value
                for snapshot in snapshots
                if snapshot is not None
                for labels, value in family.samples(snapshot)
            }
            for labels, value in found.items():
                figure = value if family.unit == "seconds" else int(value)
                yield Observation(figure, dict(zip(family.labels, labels, strict=True)))

        return observe


_mutex = threading.Lock()
_known: WeakKeyDictionary[MeterProvider, _Instruments] = WeakKeyDictionary()


def _instruments_of(provider: MeterProvider) -> _Instruments:
    with _mutex:
        found = _known.get(provider)
        if found is None:
            found = _known[provider] = _Instruments(provider)
        return found


def needs_opentelemetry(module: str) -> None:
    """Raise an ImportError that names the extra, if a module of OpenTelemetry is missing."""
    from importlib import import_module

    try:
        import_module(module)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ImportError(
            "metrics and spans for OpenTelemetry need its packages: pip install 'penstock-streams[otel]'"
        ) from None
