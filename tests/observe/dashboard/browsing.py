"""A page of the dashboard in a real browser, and what its console said."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.required_tools import require_tool

PATIENCE = 40_000
"""Milliseconds that anything may take on a busy machine."""


PART = "the dashboard in a browser"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser for the length of a block."""
    found = require_tool("chromium", part=PART, install="apt-get install chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=found, headless=True, args=FLAGS, timeout=3 * PATIENCE
        )
        yield launched
        launched.close()


class Watched:
    """A page, and what its console said."""

    def __init__(self, page: Page) -> None:
        page.set_default_timeout(PATIENCE)
        expect.set_options(timeout=PATIENCE)
        self.page = page
        self.complaints: list[str] = []
        self.requested: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requested.append(request.url))

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def limiting(self, name: str) -> None:
        """Wait until the mark is at this hop, and nowhere else."""
        expect(self.page.locator(".hop.limits .name")).to_have_text([name])
