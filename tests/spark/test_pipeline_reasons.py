"""Of the hundred lines that Spark says about a failure, the one that matters."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

import pytest

from penstock.spark import QueryFailed, reason_of
from penstock.spark.pipeline import Pipeline, RunningPipeline
from penstock.spark.pipeline_ends import PipelineSink, PipelineSource
from penstock.streams import Flux

UDF = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted:
Task 0 in stage 0.0 failed: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "app.py", line 3, in broken
    raise Boom("no 7 today")
app.errors.Boom: no 7 today

\tat org.apache.spark.api.python.BasePythonRunner.compute(PythonRunner.scala:1)
Driver stacktrace:
"""

CHAINED = """Failed when Python streaming data source perform latestOffset: Traceback (most recent call last):
  File "reading.py", line 1, in read
penstock.aquifer.errors.OffsetGone: offset 0 is gone

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "reading.py", line 9, in read
    raise DataLoss(text) from error
              ^^^^^
penstock.spark.errors.DataLoss: records 0 to 9 are gone
 SQLSTATE: 38000
"""

JAVA = """An error occurred while calling o73.start.
: org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to find it. SQLSTATE: 42K02
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.dataSourceNotFoundError(Q.scala:770)
"""


PLACE = """[UNRESOLVED_COLUMN] A column m. Did you mean [`n`]? SQLSTATE: 42703; line 1 pos 0;
'Filter ('m > 30)
"""


BUSY = """[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect back.
\tat org.apache.spark.api.python.PythonWorkerFactory.createSimpleWorker(PythonWorkerFactory.scala:266)
Caused by: java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back
"""


def test_a_machine_that_is_too_busy_is_told_with_what_to_do() -> None:
    reason = reason_of(BUSY)
    assert "did not connect back within 10 seconds" in reason
    assert "Start the query again when the machine is less busy" in reason
    assert "\n" not in reason


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (UDF, "Boom: no 7 today"),
        (CHAINED, "DataLoss: records 0 to 9 are gone"),
        (JAVA, "[DATA_SOURCE_NOT_FOUND] Failed to find it."),
        ("[UNRESOLVED_COLUMN] A column m.\n'Project ['m]", "[UNRESOLVED_COLUMN] A column m."),
        (PLACE, "[UNRESOLVED_COLUMN] A column m. Did you mean [`n`]?"),
        ("Traceback (most recent call last):\n  File x\nKeyboardInterrupt\n", "KeyboardInterrupt"),
        (KeyError("sensor"), "KeyError: 'sensor'"),
        (ValueError("one\ntwo"), "ValueError: one"),
        (AssertionError(), "AssertionError"),
        (QueryFailed("as it is"), "as it is"),
    ],
    ids=["udf", "chained", "java", "spark", "place", "bare", "python", "lines", "empty", "ours"],
)
def test_the_reason_is_one_line(error: BaseException | str, reason: str) -> None:
    assert reason_of(error) == reason


@pytest.mark.parametrize(
    "error", [SystemExit("gone"), asyncio.CancelledError("gone"), GeneratorExit("gone"), OSError("gone")]
)
def test_whoever_waits_is_told_whatever_the_query_raises_when_it_is_asked(error: BaseException) -> None:
    class Gone:
        """Stands in for a query of a session that has ended."""

        @property
        def isActive(self) -> bool:
            raise error

        def stop(self) -> None: ...

    query: Any = Gone()
    source = PipelineSource(Flux.just(b"a"), schema=None, codec=None, options={})
    with (
        RunningPipeline(query, ExitStack(), source, PipelineSink("noop", {})) as running,
        pytest.raises(QueryFailed, match=f"{type(error).__name__}: gone") as failed,
    ):
        assert running.wait(60)
    assert failed.value.__cause__ is error


def test_options_of_a_pipeline_may_be_true_false_and_numbers() -> None:
    options = {"failOnDataLoss": False, "includeMetadata": True, "maxRecordsPerTrigger": 10}
    pipeline = Pipeline("tcp://127.0.0.1:5556", options=options)

    assert list(pipeline._source_end().looks()) == ["tcp://127.0.0.1:5556"]
