"""A notebook's kernel, in which an event loop is running already."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from tests.examples.pages import Snippet

__all__ = ["Cell", "Notebook", "open_notebook"]


@dataclass
class Cell:
    """What came of running a cell."""

    printed: str = ""
    stderr: str = ""
    errors: list[str] = field(default_factory=list)


class Notebook:
    """Runs programs as cells, one after the other in one namespace."""

    def __init__(self, client: BlockingKernelClient, patience: float) -> None:
        self._client = client
        self._patience = patience

    def run(self, snippet: Snippet) -> Cell:
        """Run a program of a page, changed only as the page says."""
        source = snippet.script
        for new, old in snippet.in_notebook:
            source = source.replace(old, new)
        cell = Cell()

        def hear(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["msg_type"] == "error":
                cell.errors.append(f"{content['ename']}: {content['evalue']}")
            elif message["msg_type"] == "stream" and content["name"] == "stdout":
                cell.printed += content["text"]
            elif message["msg_type"] == "stream":
                cell.stderr += content["text"]

        self._client.execute_interactive(source, output_hook=hear, timeout=self._patience)
        # A cell is a file of its own; the page calls it app.py.
        cell.printed = re.sub(r"\S*/ipykernel_\d+/\d+\.py", "app.py", cell.printed)
        return cell


@contextmanager
def open_notebook(folder: Path, patience: float = 170.0) -> Iterator[Notebook]:
    """Start a kernel in a folder; each of its cells may take as long as ``patience``."""
    manager = KernelManager(kernel_name="python3", transport="ipc", ip=str(folder / "kernel"))
    manager.start_kernel(cwd=str(folder))
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=patience)
        yield Notebook(client, patience)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
