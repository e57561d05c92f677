"""A forked child that uses a gateway of its parent, or goes on with what its parent reads."""

from __future__ import annotations

import os

import pytest

from tests.streams.schedulers.child import IN_CHILD, run_script

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

GATEWAY = f"""{IN_CHILD}
import tempfile
from penstock.aquifer import AquiferPublisher, Gateway, LogReader, SqliteJournal, probe
from penstock.streams import Flux

# What belongs to the parent is not closed in a child.
os.register_at_fork(after_in_child=lambda: warnings.simplefilter("ignore", ResourceWarning))
directory = tempfile.TemporaryDirectory()
journal = SqliteJournal(directory.name + "/log.db")
gateway = Gateway(Flux.range(5000), "tcp://127.0.0.1:0", codec="json", journal=journal).start()
gateway.join()
"""


@pytest.mark.parametrize(
    "use",
    [
        "status()",
        "ids()",
        "join()",
        "drained()",
        "complete()",
        "lift_bounds()",
        "forget('me')",
        "reload_keys()",
        "start()",
    ],
)
def test_a_child_is_told_that_a_gateway_runs_in_its_parent(use: str) -> None:
    printed = run_script(f"""{GATEWAY}
in_child(lambda: gateway.{use})
print(gateway.status().head)
gateway.close()
directory.cleanup()
""")

    assert printed == "child True\n5000\n"


def test_a_child_that_leaves_the_block_of_a_gateway_closes_nothing() -> None:
    printed = run_script(f"""{GATEWAY}
in_child(gateway.close)
in_child(lambda: probe(gateway.endpoint, 20).head)
print(len(list(AquiferPublisher(gateway.endpoint, codec="json").flux())))
gateway.close()
directory.cleanup()
""")

    assert printed == "child None\nchild 5000\n5000\n"


def test_a_child_does_not_go_on_with_what_its_parent_reads() -> None:
    printed = run_script(f"""{GATEWAY}
log = LogReader(gateway.endpoint)
batches = log.read(0, 5000)
elements = iter(AquiferPublisher(gateway.endpoint, codec="json").flux())
count = next(batches).count
print(next(elements))
in_child(lambda: next(batches))
in_child(lambda: next(elements))
print(next(elements), count + sum(batch.count for batch in batches))
elements.close()
log.close()
gateway.close()
directory.cleanup()
""")

    assert printed == "0\nchild True\nchild True\n1 5000\n"
