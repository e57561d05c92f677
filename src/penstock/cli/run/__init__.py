"""``penstock run``: run a pipeline that a file or a module defines, and show how it goes."""

from __future__ import annotations

import argparse

from penstock.cli.errors import report_errors
from penstock.cli.parser import Commands

__all__ = ["add_parser", "run"]

_DESCRIPTION = """\
Run a pipeline on Spark: a source, a query, a sink. TARGET is a file or a module, and the name of a Pipeline
in it, or of a function that returns one; without a name it is `pipeline`.

    # app.py
    from penstock.spark import Pipeline

    pipeline = (
        Pipeline("tcp://127.0.0.1:5556", schema="sensor string, celsius double")
        .through(lambda df: df.where("celsius > 30"))
        .into("parquet", path="hot")
    )

It ends when the source has ended and everything is dealt with. With a checkpoint, a pipeline that was stopped
or killed goes on where it was: every record has its effect exactly once. No Java is needed on this machine.
"""

_EXAMPLES = """\
examples:
  penstock run app.py --checkpoint state   run `pipeline` of app.py; run it again, and it goes on
  penstock run app.py:hot --master 'local[4]'
                                           another one, with four cores
  penstock run readings.jobs:nightly --checkpoint state --once
                                           what the gateway has now, then end: for cron
  penstock run app.py --master spark://host:7077 --ship --conf spark.executor.memory=4g
                                           on a cluster

What Spark itself logs goes to DIR/spark.log, or nowhere without a checkpoint; --spark-log says otherwise.

exit codes: 0 everything is dealt with, or SIGTERM; 1 something failed; 2 wrong command line; 130 Ctrl-C
"""


def add_parser(commands: Commands) -> None:
    """Add ``penstock run`` to the command line."""
    parser = commands.add_parser(
        "run",
        help="run a pipeline on Spark, and go on where it stopped",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", metavar="TARGET", help="app.py:pipeline, or package.module:pipeline")
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="where to keep how far it has come (default: nowhere)"
    )
    parser.add_argument(
        "--master", default="local[*]", metavar="URL", help="Spark's master (default local[*])"
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_setting,
        metavar="KEY=VALUE",
        help="a setting of Spark; may be given again",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="deal with what a gateway has now, and end (other sources: to their end)",
    )
    parser.add_argument(
        "--ship", action="store_true", help="hand this package to the executors of a cluster that lack it"
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument("--spark-log", metavar="FILE", help="where Spark's own log goes; - is standard error")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run a pipeline to its end."""

    def run_to_its_end() -> int:
        # First: what is missing is told for all that pipelines need at once.
        import penstock.spark  # noqa: F401
        from penstock.cli.run.runner import run_pipeline

        return run_pipeline(arguments)

    return report_errors("run", run_to_its_end)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: write KEY=VALUE, such as spark.sql.shuffle.partitions=8")
    return key, value
