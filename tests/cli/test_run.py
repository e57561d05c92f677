"""``penstock run`` as a user runs it."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli import main
from penstock.cli.errors import CommandError
from penstock.cli.run.loader import load_pipeline
from penstock.cli.run.runner import _query_errors_to, _silent_py4j, _stop_spark
from tests.cli import running
from tests.cli.running import Gateway, Program

pytest.importorskip("pyspark")
pq = pytest.importorskip("pyarrow.parquet")

LONG = 240.0
"""Seconds: Spark takes five to start, and half a minute on a busy machine."""

APP = """
import json
from penstock.spark import Pipeline
from penstock.streams import Flux
from beside import doubled   # the workers have to find it, too

OUT = {out!r}


def rows(df):
    return df.select(doubled("n").alias("n"))


class Sink:
    def on_subscribe(self, subscription):
        self.out = open(OUT, "a")
        subscription.request(2**63 - 1)

    def on_next(self, row):
        print(json.dumps(row), file=self.out, flush=True)

    def on_error(self, error):
        print(json.dumps(str(error)), file=self.out, flush=True)

    def on_complete(self):
        print('"complete"', file=self.out, flush=True)


def source(count):
    return lambda done: Flux.range(done, max(count - done, 0)).map(lambda n: {{"n": n}})


def pipeline_of(count):
    options = {{"partitions": "1", "maxRecordsPerTrigger": "500"}}
    return Pipeline(source(count), schema="n bigint", options=options).through(rows).into(Sink())


pipeline = pipeline_of(2000)


def endless():
    return pipeline_of(10**12)
"""

BESIDE = """
from pyspark.sql.functions import udf

@udf("bigint")
def doubled(n):
    if n < 0:
        raise ZeroDivisionError("below zero")
    return 2 * n
"""


class Run(Program):
    """A running ``penstock run``, in a process group of its own as in a terminal."""

    def __init__(self, *arguments: str) -> None:
        popen = subprocess.Popen
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(subprocess, "Popen", lambda *a, **k: popen(*a, start_new_session=True, **k))
            super().__init__("run", *arguments)

    def press_ctrl_c(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def __exit__(self, *details: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        super().__exit__(None, None, None)


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(running, "PATIENCE", LONG)
    (tmp_path / "beside.py").write_text(BESIDE)
    (tmp_path / "app.py").write_text(APP.format(out=str(tmp_path / "out")))
    return tmp_path / "app.py"


def printed(app: Path) -> list[object]:
    return [json.loads(line) for line in (app.parent / "out").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_pipeline_runs_to_its_end_and_shows_how_it_goes(app: Path) -> None:
    state = app.parent / "state"
    observed = ["--dashboard", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]
    with Run(str(app), "--checkpoint", str(state), "--master", "local[2]", *observed) as program:
        code = program.end(LONG)

    assert code == 0, program.said
    assert printed(app) == [{"n": 2 * n} for n in range(2000)] + ["complete"]
    said = [line for line in program.said if not line.startswith("still starting Spark, ")]
    starting, dashboard, metrics = said.pop(0), said.pop(0), said.pop(0)
    # Its function needs a session, so Spark starts before anything can be seen of the pipeline.
    assert re.fullmatch(r"starting Spark( \(last time \d+ s\))? …", starting)
    assert dashboard.startswith("dashboard at http://127.0.0.1:")
    assert metrics.startswith("metrics at http://127.0.0.1:")
    assert said[0] == f"running {app}; stop it with Ctrl-C"
    assert said[-1] == "done: 2,000 records"
    shown = [line for line in said if line.startswith("batch ")]
    assert shown[-1].split()[2:4] == ["2,000", "records"]
    assert len(said) == 2 + len(shown)  # Spark's own log is elsewhere.
    assert (state / "spark.log").is_file()


BESIDE_A_GATEWAY = """
from penstock.spark import Pipeline

pipeline = Pipeline({endpoint!r}, schema="n bigint").into("parquet", path={out!r})
"""


@pytest.mark.rare(20)
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_beside_a_gateway_that_leaves_at_the_end_it_ends_well(app: Path) -> None:
    lines, out = app.parent / "lines", app.parent / "parquet"
    lines.write_text("".join(f'{{"n": {n}}}\n' for n in range(1000)))
    with Gateway("--source", f"file:{lines}", "--codec", "json") as gateway:
        app.write_text(BESIDE_A_GATEWAY.format(endpoint=gateway.endpoint, out=str(out)))
        with Run(str(app), "--checkpoint", str(app.parent / "state"), "--master", "local[2]") as program:
            code = program.end(LONG)
        # It has committed everything, so nobody is waited for any longer.
        assert gateway.end(LONG) == 0

    assert code == 0, program.said
    assert program.said[-1] == "done: 1,000 records"
    assert sorted(pq.read_table(out).column("n").to_pylist()) == list(range(1000))


@pytest.mark.rare(20)
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_gateway_whose_source_failed_is_a_failure(app: Path) -> None:
    lines, out = app.parent / "lines", app.parent / "parquet"
    lines.write_text('{"n": 1}\nnot json\n')
    with Gateway("--source", f"file:{lines}", "--codec", "json", "--on-bad-line", "fail") as gateway:
        app.write_text(BESIDE_A_GATEWAY.format(endpoint=gateway.endpoint, out=str(out)))
        with Run(str(app), "--checkpoint", str(app.parent / "state"), "--master", "local[2]") as program:
            assert program.end(LONG) == 1
        assert gateway.end(LONG) == 1

    assert "line 2: JSON is malformed" in program.said[-1]


@pytest.mark.rare(40)
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_stopped_by_ctrl_c_or_sigterm_it_goes_on_where_it_was(app: Path) -> None:
    again = ("--checkpoint", str(app.parent / "state"), "--master", "local[2]")
    with Run(f"{app}:endless", *again) as program:
        program.wait_for(r"batch .*[1-9]00 records")
        program.press_ctrl_c()
        assert program.end(LONG) == 130, program.said
    assert program.said[-1].startswith("stopped after ")
    before = len(printed(app))

    with Run(f"{app}:endless", *again) as program:
        program.wait_for(r"batch .*[1-9]00 records")
        program.process.send_signal(signal.SIGTERM)
        assert program.end(LONG) == 0, program.said

    assert len(printed(app)) > before > 0
    assert printed(app) == [{"n": 2 * n} for n in range(len(printed(app)))]


@pytest.mark.rare(20)
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_failing_query_is_told_in_one_line(app: Path) -> None:
    with app.open("a") as file:
        file.write(
            "\nfailing = Pipeline(Flux.just({'n': -1}), schema='n bigint').through(rows).into('noop')\n"
        )
    with Run(f"{app}:failing", "--quiet", "--checkpoint", str(app.parent / "state")) as program:
        assert program.end(LONG) == 1

    (line,) = program.said
    assert line.startswith("penstock run: the query failed: ZeroDivisionError: below zero; fix it and run")


@pytest.mark.parametrize("name", ["SQLQueryContextLogger", "DataFrameQueryContextLogger"])
def test_the_stack_of_a_wrong_query_is_in_the_log_of_spark_and_not_on_the_screen(
    name: str, tmp_path: Path
) -> None:
    from pyspark.logger import PySparkLogger

    logger, screen, log = PySparkLogger.getLogger(name), io.StringIO(), tmp_path / "spark.log"
    (handler,) = logger.handlers
    assert isinstance(handler, logging.StreamHandler)
    before = handler.setStream(screen)
    try:
        with _query_errors_to(str(log)):
            logger.error("a column cannot be resolved", errorClass="UNRESOLVED_COLUMN")
        assert (screen.getvalue(), "cannot be resolved" in log.read_text()) == ("", True)
        with _query_errors_to(None):  # --spark-log -
            logger.error("as it is", errorClass="UNRESOLVED_COLUMN")
        assert "as it is" in screen.getvalue()
    finally:
        handler.setStream(before)


# -------------------------------------------------------------------- what can be wrong with the command line
@pytest.mark.parametrize(
    ("target", "said", "code"),
    [
        ("nowhere.py", "there is no file nowhere.py: check the path", 2),
        ("nowhere:pipeline", "there is no module nowhere: check the name", 2),
        ("lines.txt", "there is no module lines.txt: to run the file of this name, write ./lines.txt", 2),
        ("jobs:number", "jobs:number is neither a Pipeline nor a function that returns one, but int", 2),
        (
            "unnamed.py",
            "unnamed.py:pipeline is neither a Pipeline nor a function that returns one, but int",
            2,
        ),
        ("jobs.py:other", "jobs.py has no other; did you mean jobs.py:pipeline?", 2),
        (
            "jobs.py:number",
            "jobs.py:number is neither a Pipeline nor a function that returns one, but int",
            2,
        ),
        ("jobs.py:sinkless", "the pipeline jobs.py:sinkless has no sink: add .into(…)", 2),
        ("jobs.py:fails", "jobs.py:fails() failed: KeyError: 'x' (jobs.py, line 9)", 1),
        ("broken.py", "broken.py cannot be run: ValueError: no (broken.py, line 1)", 1),
        ("./lines.txt", "./lines.txt has no pipeline: write pipeline = Pipeline(…).into(…)", 2),
        ("forgot.py", "forgot.py has no pipeline: write pipeline = Pipeline(…).into(…)", 2),
        (":jobs", "'' is neither a file nor a module: write app.py:pipeline", 2),
        ("..jobs", "'..jobs' is neither a file nor a module: write app.py:pipeline", 2),
    ],
)
def test_a_target_that_is_none_is_told_in_one_line(
    target: str,
    said: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    names = ("jobs", "broken", "lines", "forgot")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    Path("lines.txt").write_text("number = 1\n")
    Path("forgot.py").write_text("from penstock.spark import Pipeline\nPipeline('tcp://127.0.0.1:5556')\n")
    Path("broken.py").write_text("raise ValueError('no')\n")
    Path("unnamed.py").write_text("pipeline = 1\n")
    Path("jobs.py").write_text(
        textwrap.dedent("""\
        from penstock.spark import Pipeline

        sinkless = Pipeline("tcp://127.0.0.1:5556")
        pipeline = sinkless.into("noop")
        number = 42


        def fails():
            return {}["x"]
        """)
    )

    assert main(["run", target]) == code
    assert capsys.readouterr().err == f"penstock run: {said}\n"
    for name in names:
        sys.modules.pop(name, None)


def test_a_setting_without_a_value_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "app.py", "--conf", "spark.ui.enabled"]) == 2
    assert "write KEY=VALUE" in capsys.readouterr().err


def test_a_checkpoint_without_a_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "app.py", "--checkpoint", ""]) == 2
    assert "--checkpoint: it is empty: name a directory" in capsys.readouterr().err


def test_the_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help"]) == 0
    assert "penstock run app.py --checkpoint state" in capsys.readouterr().out


def test_a_spark_that_does_not_start_is_not_the_fault_of_the_file_that_needs_it(tmp_path: Path) -> None:
    app = tmp_path / "needs_spark.py"
    app.write_text('raise RuntimeError("[SESSION_OR_CONTEXT_NOT_EXISTS] none")')

    def start_spark() -> None:
        raise CommandError("Spark did not start: no Java", 1)

    with pytest.raises(CommandError, match=r"^Spark did not start: no Java$"):
        load_pipeline(str(app), start_spark)


def test_after_a_signal_py4j_and_pyspark_say_nothing_about_a_java_that_is_gone(
    caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    class Gone:
        """Stands in for a session whose Java has got the signal as well."""

        def stop(self) -> None:
            place = "/site-packages/py4j/java_gateway.py"
            text = "Exception while sending command."
            record = logging.LogRecord("root", logging.ERROR, place, 1038, text, (), None)
            logging.getLogger().handle(record)
            warnings.warn("Unable to cleanly shutdown Spark JVM process.", RuntimeWarning, stacklevel=1)

    gone: Any = Gone()
    for number, signs in ((None, 1), (signal.SIGTERM, 0)):
        interruption: Any = SimpleNamespace(signal=number)
        caplog.clear()
        recwarn.clear()
        with _silent_py4j(interruption):
            _stop_spark(gone, interruption)
        assert (len(caplog.records), len(recwarn)) == (signs, signs)
