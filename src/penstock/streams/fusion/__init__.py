"""The compiled core: a run of synchronous operators is one Python function.

Read :mod:`.fragments` (what an operator contributes), :mod:`.codegen` (how the contributions become the text
of a loop), :mod:`.compiler` (how the text becomes a function) and :mod:`.drain` (who runs it), in this order.
"""

from penstock.streams.fusion.drain import Drain
from penstock.streams.fusion.link import (
    GONE,
    ElementInbox,
    ExpectsLarge,
    Link,
    Pausable,
    announce_large,
    is_starving,
)
from penstock.streams.fusion.op import Op, Outcome, Watch, operator
from penstock.streams.fusion.pull import PullDrain, knows_its_end, pull, pull_async
from penstock.streams.fusion.queue_drain import QueueDrain, Relay, relay_for

__all__ = [
    "GONE",
    "Drain",
    "ElementInbox",
    "ExpectsLarge",
    "Link",
    "Op",
    "Outcome",
    "Pausable",
    "PullDrain",
    "QueueDrain",
    "Relay",
    "Watch",
    "announce_large",
    "is_starving",
    "knows_its_end",
    "operator",
    "pull",
    "pull_async",
    "relay_for",
]
