"""Garbage collection in the Python processes of Spark.

The processes that run tasks, and those that make the readers and writers of a query, collect garbage after
each request. The writer of a streaming query is made again for each batch. What Spark, Arrow and this package
have imported never becomes garbage, but there is a lot of it: to look at it takes 20 to 30 ms of processor
time, and the next step of a small batch takes less.

Arrow imports pandas, if it is installed, with the first array that it makes of Python objects. So the first
request has to be done before everything is there.
"""

from __future__ import annotations

import gc
from functools import cache

__all__ = ["exclude_imports_from_collection"]


@cache
def exclude_imports_from_collection() -> None:
    """Leave what there is now out of every later collection; once in a process, after its first work."""
    gc.collect()
    gc.freeze()
