"""A pipeline at the command line: loaded, started, watched, and stopped in order however it ends."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.aquifer import AquiferError, JournalError
from penstock.cli.errors import CommandError, ScreenLog
from penstock.cli.run import RunOptions
from penstock.cli.run.loader import load_pipeline
from penstock.cli.run.view import RunView
from penstock.cli.screen import Screen
from penstock.cli.signals import Interruption
from penstock.spark import Pipeline, QueryFailed, RunningPipeline, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_pipeline"]

_LOOK: Final = 0.1
_LOOKS_PER_SHOW: Final = 10
_STOPPING: Final = 20.0
"""Seconds that stopping may take; after that the process exits, and Spark with it."""


def run_pipeline(options: RunOptions) -> int:
    """Run until every record is processed or a signal arrives; returns the exit code."""
    view = RunView(Screen(), quiet=options.quiet)
    with _Notes(view.warn):
        try:
            pipeline = load_pipeline(options.target, lambda: _session(options, view))
            spark = _session(options, view)
        except _Interrupted as interrupted:
            return interrupted.code
        except KeyboardInterrupt:
            return 130
        with Interruption() as interruption:  # After Spark, which would handle Ctrl-C itself.
            try:
                return _run(pipeline, spark, options, view, interruption)
            finally:
                _bounded(spark.stop, interruption, view)


def _run(
    pipeline: Pipeline,
    spark: SparkSession,
    options: RunOptions,
    view: RunView,
    interruption: Interruption,
) -> int:
    again = f"--checkpoint {options.checkpoint}" if options.checkpoint else None
    try:
        running = pipeline.start(spark=spark, checkpoint=options.checkpoint, once=options.once)
        view.note(f"running {options.target}; stop it with Ctrl-C")
        try:
            _watch(running, view, interruption)
        finally:
            _bounded(running.stop, interruption, view)
    except QueryFailed as error:
        remedy = f"; fix it and run again with {again}: it continues there" if again else ""
        raise CommandError(f"the query failed: {error}{remedy}", 1) from None
    except (AquiferError, JournalError, OSError) as error:
        raise CommandError(str(error), 1) from None
    except ValueError as error:  # A wrong option.
        raise CommandError(str(error)) from None
    progress = running.progress()
    records = f"{progress.records:,} records" if progress is not None else "no records"
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


def _bounded(stop: object, interruption: Interruption, view: RunView) -> None:
    """Stop something that may hang, but wait no longer than a user would; exiting without it is safe."""
    assert callable(stop)
    thread = threading.Thread(target=stop, name="penstock-run-stop", daemon=True)
    thread.start()
    thread.join(_STOPPING)
    if thread.is_alive():
        view.warn(f"stopping takes longer than {_STOPPING:g} s: exiting without it; nothing is lost")
        os._exit(interruption.exit_code if interruption.signal is not None else 1)


# ---------------------------------------------------------------- Spark
def _session(options: RunOptions, view: RunView) -> SparkSession:
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None:
        view.note("starting Spark …")
    config: dict[str, object] = dict(options.conf)
    if importlib.util.find_spec("pandas") is None:
        # Spark would try Arrow for every Python function, and warn each time that this needs pandas.
        config.setdefault("spark.sql.execution.pythonUDF.arrow.enabled", "false")
    try:
        with view.starting(), _stderr_to(_log_file(options)), _not_interrupted():
            name = f"penstock run {options.target}"
            return session(name, options.master, config, ship=options.ship)
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
def _not_interrupted() -> Iterator[None]:
    """Let Spark finish its start, and stop it then: a half-started Spark would stay behind."""
    with Interruption() as interruption:
        try:
            yield
            code = None if interruption.signal is None else interruption.exit_code
        except KeyboardInterrupt:  # Towards the end of its start, Spark installs a handler of its own.
            code = 130
    if code is not None:
        from pyspark import SparkContext

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


class _Notes(ScreenLog):
    """Shows the warnings of every layer, not only of the gateway."""

    def __init__(self, show: object) -> None:
        assert callable(show)
        super().__init__(show, logging.WARNING)
        self._logger = logging.getLogger("penstock")
        self._before = self._logger.level
