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
    """One end of the line, or this machine."""

    namespace: str | None
    address: str

    def command(self, *words: str) -> list[str]:
        """A command that runs there."""
        if self.namespace is None:
            return list(words)
        return ["ip", "netns", "exec", self.namespace, *words]


LOOPBACK = Machine(None, "127.0.0.1")
"""This machine, alone."""


@contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Make both, and remove them; needs root, as `ip netns` does."""
    require_tool("ip", part="Spark on another machine", install="apt-get install iproute2")
    if os.geteuid() != 0:
        missing_part("Spark on another machine", "only root can make network namespaces")
    names = [f"penstock-{os.getpid()}-{end}" for end in ("a", "b")]
    one, other = Machine(names[0], "10.213.7.1"), Machine(names[1], "10.213.7.2")
    with ExitStack() as closing:
        if (refused := _run_ip("netns", "add", names[0])) is not None:
            missing_part("Spark on another machine", f"this machine has no network namespaces: {refused}")
        _ip("netns", "del", names[0])
        for name in names:
            _ip("netns", "add", name)
            closing.callback(_ip, "netns", "del", name)
            _ip("-n", name, "link", "set", "lo", "up")
        line = ("link", "add", "line", "type", "veth", "peer", "line", "netns", names[1])
        _ip("-n", names[0], *line)
        for name, machine in zip(names, (one, other), strict=True):
            _ip("-n", name, "address", "add", f"{machine.address}/24", "dev", "line")
            _ip("-n", name, "link", "set", "line", "up")
        yield one, other


def _ip(*words: str) -> None:
    refused = _run_ip(*words)
    assert refused is None, refused


def _run_ip(*words: str) -> str | None:
    """Why it did not work, if so."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"ip {' '.join(words)}: {done.stderr}"
