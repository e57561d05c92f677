"""Every program of the documentation also runs in a notebook, where an event loop is running already.

Each page is a notebook of its own: a kernel runs its programs from top to bottom, changed only as the page
says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from tests.examples.pages import Snippet, pages, snippets_of

PAGES = [page for page in pages() if page != "docs/spark.md"]
PATIENCE = 50.0


class Notebook:
    """A kernel and what it has printed."""

    def __init__(self, client: BlockingKernelClient) -> None:
        self._client = client

    def run(self, cell: str) -> tuple[str, list[str]]:
        """Return what a cell prints, and what else it says: errors, and text on stderr."""
        printed: list[str] = []
        complaints: list[str] = []

        def hear(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["msg_type"] == "stream":
                (printed if content["name"] == "stdout" else complaints).append(content["text"])
            elif message["msg_type"] == "error":
                complaints.append(f"{content['ename']}: {content['evalue']}")

        self._client.execute_interactive(cell, output_hook=hear, timeout=PATIENCE)
        # A cell is a file of its own; the page calls it app.py.
        return re.sub(r"\S*/ipykernel_\d+/\d+\.py", "app.py", "".join(printed)), complaints


@pytest.fixture(scope="module")
def notebook(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """A kernel for the page that the test names."""
    manager = KernelManager(
        kernel_name="python3", transport="ipc", ip=str(tmp_path_factory.mktemp("k") / "k")
    )
    manager.start_kernel(cwd=str(tmp_path_factory.mktemp(Path(request.param).stem)))
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE)
        yield Notebook(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("notebook", "snippets"),
    [pytest.param(page, list(snippets_of(page)), id=page) for page in PAGES],
    indirect=["notebook"],
    scope="module",
)
def test_the_programs_of_a_page_run_in_a_notebook(notebook: Notebook, snippets: list[Snippet]) -> None:
    for snippet in snippets:
        cell = snippet.script
        for new, old in snippet.in_notebook:
            cell = cell.replace(old, new)

        printed, complaints = notebook.run(cell)

        assert complaints == [], f"{snippet}: does the page say what to write in a notebook?"
        if snippet.output is not None:
            assert printed == snippet.output, str(snippet)
