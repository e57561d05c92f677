"""Starts the daemon whose processes run Spark's Python tasks, so that a stopped query leaves no traceback.

When a query is stopped, Spark closes the connections to its tasks. Since 4.1, a process of the daemon that
was about to write ends with a traceback on the screen. Nothing is wrong, and nobody can do anything about it.

It is run by its path, in place of ``python -m pyspark.daemon``, and must not import anything of this package.
"""

import os
import sys
import traceback
from typing import Any


class Tracebacks:
    """Stands in for the module ``traceback`` in PySpark's daemon."""

    def __getattr__(self, name: str) -> Any:
        """Take everything else from the module."""
        return getattr(traceback, name)

    def print_exc(self) -> None:
        """Print the exception, unless Spark has closed the connection.

        An error of a task never comes here: it goes to Spark.
        """
        if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError):
            traceback.print_exc()


if __name__ == "__main__":
    sys.argv = sys.argv[2:]  # Without: -m
    sys.path.insert(0, os.getcwd())  # As `python -m` does.
    from pyspark import daemon

    daemon.traceback = Tracebacks()  # type: ignore[assignment, attr-defined]
    daemon.manager()
