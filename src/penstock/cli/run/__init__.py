"""``penstock run``: run a pipeline that a file or a module defines, and show its progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.cli.parser import Commands, add_command

if TYPE_CHECKING:
    from penstock.cli.run.options import RunOptions

__all__ = ["add_parser"]

_DESCRIPTION = """\
Run a pipeline on Spark: a source, a query, a sink. TARGET is a file or a module, and the name of a Pipeline
in it, or of a function that returns one. Without a name it is `pipeline`.

    # app.py
    from penstock.spark import Pipeline

    pipeline = (
        Pipeline("tcp://127.0.0.1:5556", schema="sensor string, celsius double")
        .through(lambda df: df.where("celsius > 30"))
        .into("parquet", path="hot")
    )

The command exits when the source has ended and every record is processed. With a checkpoint, a pipeline that
was stopped or killed continues where it was: every record takes effect exactly once. No Java has to be
installed.
"""

_EXAMPLES = """\
examples:
  penstock run app.py --checkpoint state   run `pipeline` of app.py; run it again, and it continues
  penstock run app.py:hot --master 'local[4]'
                                           another pipeline, on four cores
  penstock run readings.jobs:nightly --checkpoint state --once
                                           process what the gateway has now, then exit: for cron
  penstock run app.py --checkpoint state --dashboard --metrics 127.0.0.1:9464
                                           the query and its gateways on a page, and for Prometheus
  penstock run app.py --master spark://host:7077 --ship --conf spark.executor.memory=4g
                                           on a cluster

Spark's own log goes to DIR/spark.log, or nowhere without a checkpoint; --spark-log chooses another file.

exit codes: 0 every record is processed, or SIGTERM; 1 something failed; 2 wrong command line; 130 Ctrl-C
"""


def _load() -> tuple[type[RunOptions], Callable[[RunOptions], int]]:
    from penstock.cli.run.options import RunOptions

    def run(options: RunOptions) -> int:
        # First, so that one message names everything that a pipeline needs and that is missing.
        import penstock.spark  # noqa: F401
        from penstock.cli.run.runner import run_pipeline

        return run_pipeline(options)

    return RunOptions, run


def add_parser(commands: Commands) -> None:
    """Add ``penstock run`` to the command line."""
    add_command(
        commands,
        "run",
        _load,
        help="run a pipeline on Spark, and continue where it stopped",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
