"""The compiled core: a run of synchronous operators is one Python function.

Read :mod:`.fragments` (what an operator says), :mod:`.writing` (how the sayings become the text of a loop),
:mod:`.compiling` (how the text becomes a function) and :mod:`.drain` (who runs it), in this order.
"""

from penstock.streams.segment.drain import GONE, Drain
from penstock.streams.segment.operators import Op, Outcome, Watch, operator
from penstock.streams.segment.pulling import PullDrain, knows_its_end, pull, pull_async
from penstock.streams.segment.queueing import QueueDrain, Relay

__all__ = [
    "GONE",
    "Drain",
    "Op",
    "Outcome",
    "PullDrain",
    "QueueDrain",
    "Relay",
    "Watch",
    "knows_its_end",
    "operator",
    "pull",
    "pull_async",
]
