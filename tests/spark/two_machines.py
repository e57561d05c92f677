"""Two network namespaces with one line between them: as far as the network goes, two machines.

What listens on loopback in one of them cannot be reached from the other.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.required_tools import missing_part, require_tool


@dataclass(frozen=True)
class Machine:
    """One end of the line."""

    namespace: str
    address: str

    def command(self, *words: str) -> list[str]:
        """A command that runs there."""
        return ["ip", "netns", "exec", self.namespace, *words]


@contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Make both, and remove them; needs root, as `ip netns` does."""
    require_tool("ip", part="Spark on another machine", install="apt-get install iproute2")
    if os.geteuid() != 0:
        missing_part("Spark on another machine", "only root can make network namespaces")
    one = Machine(f"penstock-{os.getpid()}-a", "10.213.7.1")
    other = Machine(f"penstock-{os.getpid()}-b", "10.213.7.2")
    with ExitStack() as closing:
        if (refused := _run_ip("netns", "add", one.namespace)) is not None:
            missing_part("Spark on another machine", f"this machine has no network namespaces: {refused}")
        _ip("netns", "del", one.namespace)
        for machine in (one, other):
            _ip("netns", "add", machine.namespace)
            closing.callback(_ip, "netns", "del", machine.namespace)
            _ip("-n", machine.namespace, "link", "set", "lo", "up")
        _ip(
            "-n",
            one.namespace,
            "link",
            "add",
            "line",
            "type",
            "veth",
            "peer",
            "line",
            "netns",
            other.namespace,
        )
        for machine in (one, other):
            _ip("-n", machine.namespace, "address", "add", f"{machine.address}/24", "dev", "line")
            _ip("-n", machine.namespace, "link", "set", "line", "up")
        yield one, other


def _ip(*words: str) -> None:
    refused = _run_ip(*words)
    assert refused is None, refused


def _run_ip(*words: str) -> str | None:
    """Why it did not work, if so."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"ip {' '.join(words)}: {done.stderr}"
