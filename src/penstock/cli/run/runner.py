"""A pipeline at the command line: loaded, started, watched, and stopped in order however it ends."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.aquifer import AquiferError, JournalError
from penstock.cli.dashboard.server import otlp_export, refuse_without_page, serving, serving_metrics
from penstock.cli.errors import CommandError
from penstock.cli.logs import CommandLog, is_json, tell
from penstock.cli.run.loader import load_pipeline
from penstock.cli.run.options import RunOptions
from penstock.cli.screen import Screen
from penstock.cli.signals import Interruption
from penstock.cli.spark_start import SparkStart
from penstock.cli.style import print_json
from penstock.cli.table import counted
from penstock.observe import Observer, OtlpExport
from penstock.spark import BadCheckpoint, Pipeline, Progress, QueryFailed, RunningPipeline, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.observe import Snapshot

__all__ = ["run_pipeline"]

_log = logging.getLogger("penstock.cli")

_LOOK: Final = 0.1
_LOOKS_PER_SHOW: Final = 10
_STOPPING: Final = 20.0
"""Seconds that stopping may take; after that the process exits, and Spark with it."""
_QUERY_ERRORS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""The loggers of PySpark for errors of a query."""
_SIGN_EVERY: Final = 10
"""Seconds between two signs of life, where nothing can be rewritten."""


def run_pipeline(options: RunOptions) -> int:
    """Run until every record is processed or a signal arrives; returns the exit code."""
    refuse_without_page(options.dashboard)
    view = RunView(Screen(), quiet=options.quiet, as_json=options.json)
    with CommandLog(options.log, "run", view.warn), contextlib.ExitStack() as opened:
        try:
            with _ended_by_sigterm():
                pipeline = load_pipeline(options.target, lambda: _session(options, view))
                # Before Spark: an address that cannot be used is reported at once.
                page, metrics, exported = _PipelineView(), _PipelineView(), _PipelineView()
                opened.enter_context(serving(page.look, options.dashboard, view.note, options.target))
                opened.enter_context(serving_metrics(metrics.look, options.metrics, view.note))
                export = otlp_export(exported.look, options.otlp, view.note, service="penstock-run")
                if isinstance(export, OtlpExport):
                    opened.callback(export.close)
                spark = _session(options, view)
            opened.enter_context(_query_errors_to(_log_file(options)))
        except _Interrupted as interrupted:
            return interrupted.code
        except KeyboardInterrupt:
            return 130
        # After Spark, which would handle Ctrl-C itself.
        with Interruption() as interruption, _silent_py4j(interruption):
            try:
                return _run(pipeline, spark, options, view, interruption, (page, metrics, exported), export)
            finally:
                with _unless_interrupted(interruption):
                    _bounded(partial(_stop_spark, spark, interruption), interruption, view)


class _PipelineView:
    """Looks at the gateways of a pipeline, and through them at its query, once it runs."""

    def __init__(self) -> None:
        self._observer: Observer | None = None

    def begin(self, running: RunningPipeline) -> None:
        """The pipeline runs."""
        looks = running.looks()
        self._observer = Observer(*looks, looks=looks)

    def look(self) -> Snapshot:
        """A snapshot of this moment; AquiferError before the pipeline runs."""
        if self._observer is None:
            raise AquiferError("the pipeline does not run yet: Spark starts")
        return self._observer.look()


def _run(
    pipeline: Pipeline,
    spark: SparkSession,
    options: RunOptions,
    view: RunView,
    interruption: Interruption,
    observed_by: Iterable[_PipelineView],
    export: contextlib.AbstractContextManager[object],
) -> int:
    again = f"--checkpoint {options.checkpoint}" if options.checkpoint else None
    progress = None
    try:
        with _unless_interrupted(interruption):
            running = pipeline.start(spark=spark, checkpoint=options.checkpoint, once=options.once)
            view.note(f"running {options.target}; stop it with Ctrl-C")
            try:
                for observing in observed_by:
                    observing.begin(running)
                with export:  # It looks at the gateways, and ends before they do.
                    _watch(running, view, interruption)
            finally:
                _bounded(running.stop, interruption, view)
            progress = running.progress()
    except QueryFailed as error:
        said = f"the query failed: {error}"
        if again:
            said = f"{said.removesuffix('.')}; fix it and run again with {again}: it continues there"
        raise CommandError(said, 1) from None
    except (AquiferError, BadCheckpoint, JournalError, OSError) as error:
        raise CommandError(str(error), 1) from None
    except ValueError as error:  # A wrong option.
        raise CommandError(str(error)) from None
    progress = progress or view.last  # If Spark is gone, nobody knows better.
    view.end(progress, interrupted=interruption.signal is not None)
    records = counted(progress.records, "record") if progress is not None else "no records"
    if interruption.signal is None:
        view.note(f"done: {records}")
        return 0
    view.note(
        f"stopped after {records}; " + (f"{again} continues there" if again else "a restart begins again")
    )
    return interruption.exit_code


def _watch(running: RunningPipeline, view: RunView, interruption: Interruption) -> None:
    """Show the progress until the pipeline ends; raise its failure."""
    looks = 0
    while not interruption.wait(_LOOK):
        looks += 1
        ended = running.wait(0)
        if ended or looks % _LOOKS_PER_SHOW == 0:
            view.show(running.progress())
        if ended:
            return


@contextlib.contextmanager
def _unless_interrupted(interruption: Interruption) -> Iterator[None]:
    """Log an error instead of raising it if a signal has arrived, because Java may have got it as well.

    A service manager sends SIGTERM to all processes of a service. Then Spark is gone before it is stopped.
    """
    try:
        yield
    except Exception as error:
        if interruption.signal is None:
            raise
        _log.info("after the signal: %s", error)


@contextlib.contextmanager
def _silent_py4j(interruption: Interruption) -> Iterator[None]:
    """Leave out the tracebacks of py4j from a signal on: Java may have got it as well, and be gone.

    py4j logs them to the root logger, and raises the error all the same.
    """

    def is_wanted(record: logging.LogRecord) -> bool:
        return interruption.signal is None or "py4j" not in Path(record.pathname).parts

    root = logging.getLogger()
    root.addFilter(is_wanted)
    try:
        yield
    finally:
        root.removeFilter(is_wanted)


def _stop_spark(spark: SparkSession, interruption: Interruption) -> None:
    with warnings.catch_warnings():
        if interruption.signal is not None:
            # PySpark warns if Java is gone: it may have got the signal as well.
            warnings.simplefilter("ignore", RuntimeWarning)
        spark.stop()


def _bounded(stop: Callable[[], object], interruption: Interruption, view: RunView) -> None:
    """Stop something that may hang, but wait no longer than a user would; exiting without it is safe."""
    failures: list[BaseException] = []

    def stop_and_note() -> None:
        try:
            stop()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=stop_and_note, name="penstock-run-stop", daemon=True)
    thread.start()
    thread.join(_STOPPING)
    if thread.is_alive():
        view.warn(f"stopping takes longer than {_STOPPING:g} s: exiting without it; nothing is lost")
        os._exit(interruption.exit_code if interruption.signal is not None else 1)
    for error in failures:
        if sys.exception() is None:
            raise error
        _log.info("stopping failed as well: %s", error)


# ---------------------------------------------------------------- Spark
def _session(options: RunOptions, view: RunView) -> SparkSession:
    from pyspark.sql import SparkSession

    start = SparkStart("run")
    begins = SparkSession.getActiveSession() is None
    if begins:
        view.note(f"starting Spark{start.estimate} …")
    config: dict[str, object] = dict(options.conf)
    if importlib.util.find_spec("pandas") is None:
        # Spark would try Arrow for every Python function, and warn each time that this needs pandas.
        config.setdefault("spark.sql.execution.pythonUDF.arrow.enabled", "false")
    try:
        with view.starting(start), _stderr_to(_log_file(options)), _not_interrupted():
            name = f"penstock run {options.target}"
            began = time.monotonic()
            started = session(name, options.master, config, ship=options.ship)
            if begins:
                start.took(time.monotonic() - began)
            return started
    except (CommandError, _Interrupted):
        raise
    except Exception as error:
        from penstock.spark import reason_of

        where = "" if options.spark_log == "-" else "; --spark-log - shows Spark's own log"
        raise CommandError(f"Spark did not start: {reason_of(error)}{where}", 1) from None


class _Interrupted(BaseException):
    """A signal arrived while Spark started. It is not an error of the code that may have started Spark."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the command as it does later, while there is nothing to stop yet."""

    def end(number: int, frame: object) -> None:
        raise _Interrupted(0)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _not_interrupted() -> Iterator[None]:
    """Let Spark finish its start, and stop it then: a half-started Spark would stay behind."""
    code = None
    with Interruption() as interruption:
        try:
            with _unless_interrupted(interruption):
                yield
            if interruption.signal is not None:
                code = interruption.exit_code
        except KeyboardInterrupt:  # Towards the end of its start, Spark installs a handler of its own.
            code = 130
        if code is not None:
            from pyspark import SparkContext

            with _unless_interrupted(interruption):
                if SparkContext._active_spark_context is not None:
                    SparkContext._active_spark_context.stop()
            raise _Interrupted(code)


def _log_file(options: RunOptions) -> str | None:
    """Return where Spark's log goes; None is standard error."""
    if options.spark_log is not None:
        return None if options.spark_log == "-" else str(options.spark_log)
    if options.checkpoint is None:
        return os.devnull
    try:
        Path(options.checkpoint).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"--checkpoint {options.checkpoint}: {error.strerror}; choose another directory"
        ) from None
    return str(Path(options.checkpoint) / "spark.log")


@contextlib.contextmanager
def _stderr_to(file: str | None) -> Iterator[None]:
    """Let the processes that are started meanwhile write their standard error to a file.

    Spark's log does not belong between the lines of progress: a failing batch takes a hundred lines.
    """
    if file is None:
        yield
        return
    try:
        log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise CommandError(f"cannot write {file}: {error.strerror}; name another with --spark-log") from None
    sys.stderr.flush()
    screen = os.dup(2)
    os.dup2(log, 2)
    os.close(log)
    try:
        yield
    finally:
        os.dup2(screen, 2)
        os.close(screen)


@contextlib.contextmanager
def _query_errors_to(file: str | None) -> Iterator[None]:
    """Let PySpark log the errors of a query to a file; None leaves them on standard error.

    Of a misspelt column it logs Java's whole stack, beside the error that it raises, which we tell.
    """
    if file is None:
        yield
        return
    from pyspark.logger import PySparkLogger

    with contextlib.ExitStack() as opened:
        log = opened.enter_context(open(file, "a", encoding="utf-8"))
        for name in _QUERY_ERRORS:
            for handler in PySparkLogger.getLogger(name).handlers:
                if isinstance(handler, logging.StreamHandler):
                    opened.callback(handler.setStream, handler.stream)
                    handler.setStream(log)
        yield


# ---------------------------------------------------------------- the screen
class RunView:
    """Writes notes and progress, or with ``quiet`` only warnings."""

    def __init__(self, out: Screen, *, quiet: bool, as_json: bool = False) -> None:
        self._out = out
        self._live = out.is_terminal
        self._quiet = quiet or as_json
        self._progress = not quiet
        self._as_json = as_json
        self._drawn = False
        self.last: Progress | None = None
        """The progress that was shown last."""

    def note(self, text: str) -> None:
        """Write something that happened."""
        if is_json():
            if self._progress:
                tell("run", text)
        elif not self._quiet:
            self._write(f"{text}\n")

    @contextlib.contextmanager
    def starting(self, start: SparkStart) -> Iterator[None]:
        """Show signs of life while Spark starts, which takes seconds, or minutes on a busy machine."""
        if self._quiet or is_json():
            yield
            return
        over = threading.Event()
        # A copy, because standard error belongs to Spark meanwhile.
        with open(os.dup(2), "w") as copy:
            signs = threading.Thread(target=self._give_signs, args=(Screen(copy), over, start))
            signs.start()
            try:
                yield
            finally:
                over.set()
                signs.join()

    def _give_signs(self, out: Screen, over: threading.Event, start: SparkStart) -> None:
        seconds, pause = 0, 1 if self._live else _SIGN_EVERY
        while not over.wait(pause):
            seconds += pause
            far = start.progress(seconds)
            out.write(f"\r\x1b[2K{far}" if self._live else f"still starting Spark, {far}\n")
        if self._live:
            out.write("\r\x1b[2K")

    def warn(self, text: str) -> None:
        """Write something that the user has to know, even if it is quiet."""
        if is_json():
            tell("run", text)
        else:
            self._write(f"penstock run: {text}\n")

    def show(self, progress: Progress | None) -> None:
        """Show the progress, if it has changed."""
        if progress is None or progress == self.last:
            return
        self.last = progress
        if self._as_json and self._progress:
            print_json({"event": "progress", **asdict(progress)})
        if self._quiet:
            return
        if is_json():
            tell("run", "progress", **asdict(progress))
        elif self._live:
            # A line that is too long would take two rows, and only one of them would be rewritten.
            self._write(_line(progress)[: self._out.width - 1])
            self._drawn = True
        else:
            self._write(f"{_line(progress)}\n")

    def end(self, progress: Progress | None, *, interrupted: bool) -> None:
        """Tell a program how far it has come; people read it in the last note."""
        if self._as_json:
            records = progress.records if progress is not None else 0
            print_json({"event": "end", "records": records, "interrupted": interrupted})

    def _write(self, text: str) -> None:
        # The line of progress is rewritten by whatever comes next.
        self._out.write(f"\r\x1b[2K{text}" if self._drawn else text)
        self._drawn = False


def _line(progress: Progress) -> str:
    return (
        f"batch {progress.batch:>5}  {progress.records:>11,} records  "
        f"{progress.records_per_second:>9,.0f}/s  {progress.batch_seconds:7.2f} s  "
        f"{progress.lag:>9,} behind"
    )
