"""Takes the pictures of docs/dashboard.md: ``python -m tests.observe.dashboard.screenshots [FOLDER]``.

A real pipeline runs, one of its readers holds it up, and Chromium shows the dashboard of it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, Literal

from playwright.sync_api import ViewportSize, expect

from penstock.observe import Dashboard, DashboardOptions
from tests.observe.dashboard.browsing import PATIENCE, Watched, chromium
from tests.observe.dashboard.pipelines import HeldPipeline

__all__ = ["main"]

FOLDER: Final = Path(__file__).parents[3] / "docs" / "images"
PICTURES: Final[dict[str, tuple[ViewportSize, Literal["dark", "light"]]]] = {
    "dashboard-light": ({"width": 1280, "height": 1180}, "light"),
    "dashboard-dark": ({"width": 1280, "height": 1180}, "dark"),
    "dashboard-phone": ({"width": 390, "height": 1250}, "light"),
}
FLOWING, HELD_UP = 20, 60
"""How many updates the charts show before and after the reader stops; one comes every 0.2 s."""


def main(folder: Path = FOLDER) -> None:
    """Take all pictures."""
    with HeldPipeline("tcp://127.0.0.1:5556") as pipeline, chromium() as browser:
        look = pipeline.observer.look
        options = DashboardOptions(listen="127.0.0.1:0")
        with Dashboard(look, options, title=pipeline.gateway.endpoint, interval=0.2) as dashboard:
            pages = {}
            for name, (viewport, scheme) in PICTURES.items():
                context = browser.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
                pages[name] = Watched(context.new_page())
                pages[name].page.goto(dashboard.url)
            first = next(iter(pages.values())).page
            expect(first.locator(".hop")).to_have_count(5, timeout=PATIENCE)
            first.wait_for_timeout(FLOWING * 200)
            pipeline.readers["archive"].is_held = True
            first.wait_for_timeout(HELD_UP * 200)
            for name, watched in pages.items():
                watched.limiting("archive")
                watched.page.screenshot(path=folder / f"{name}.png")
                assert watched.complaints == [], watched.complaints
                print(folder / f"{name}.png")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
