"""The page in a real browser, with a real pipeline behind it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ViewportSize, expect

from penstock.observe import Dashboard, DashboardOptions, Observer
from tests.node_packages import installed
from tests.observe.dashboard.browsing import PART, PATIENCE, Watched
from tests.observe.dashboard.pipelines import HeldPipeline, held_streams

PHONE: ViewportSize = {"width": 390, "height": 844}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def pipeline() -> Iterator[HeldPipeline]:
    with HeldPipeline() as running:
        yield running


def dashboard_of(pipeline: HeldPipeline, listen: str = "127.0.0.1:0") -> Dashboard:
    options = DashboardOptions(listen=listen)
    return Dashboard(pipeline.observer.look, options, title=pipeline.gateway.endpoint, interval=0.2)


def test_it_shows_the_hops_and_the_mark_moves_with_the_slow_reader(
    pipeline: HeldPipeline, watched: Watched
) -> None:
    page = watched.page
    with dashboard_of(pipeline) as dashboard:
        page.goto(dashboard.url)
        expect(page.locator(".hop .name")).to_have_text(
            ["from_iterable(<generator>)", "intake", pipeline.gateway.endpoint, "archive", "billing"],
            timeout=PATIENCE,
        )
        cursor = page.locator("#subscribers tbody tr").first.locator("td").nth(1)
        before = cursor.inner_text()
        expect(cursor).not_to_have_text(before)

        pipeline.readers["archive"].is_held = True
        watched.limiting("archive")
        expect(page.locator("#sentence")).to_contain_text("The reader `archive`")
        expect(page.locator("#announcements")).to_contain_text("archive")
        expect(page).to_have_title(re.compile("archive limits the flow"))

        pipeline.readers["billing"].is_held = True
        pipeline.readers["archive"].let_go()
        watched.limiting("billing")
        expect(page.locator("#sentence")).to_contain_text("The reader `billing`")

    assert watched.complaints == []
    assert {re.sub(r"[^/]*$", "", url) for url in watched.requested} <= {
        dashboard.url,
        f"{dashboard.url}uplot/",
    }


def test_every_stream_of_a_gateway_has_its_own_picture_and_dead_letters_have_reasons(
    watched: Watched,
) -> None:
    page = watched.page
    with held_streams() as gateway, closing(Observer(gateway.endpoint)) as observer:
        options = DashboardOptions(listen="127.0.0.1:0")
        with Dashboard(observer.look, options, title=gateway.endpoint, interval=0.2) as dashboard:
            page.goto(dashboard.url)
            expect(page.locator(".band")).to_have_text(
                [f"{gateway.endpoint}/{name}" for name in gateway.streams], timeout=PATIENCE
            )
            expect(page.locator(".hop.limits .name")).to_have_text(["reader of a", "reader of b"])
            expect(page.locator("#sentence")).to_contain_text(f"`reader of a` at {gateway.endpoint}/a limits")
            expect(page.locator("#other-verdicts li")).to_contain_text([f"at {gateway.endpoint}/b limits"])
            expect(page.locator("#errors .error-text")).to_contain_text(["a dead letter: "])
            expect(page.locator("#errors .error-hop")).to_have_text(["source of letters"])
            boxes = [card.bounding_box() for card in page.locator(".hop").all()]
    placed = [(box["x"], box["y"], box["width"], box["height"]) for box in boxes if box is not None]
    assert len(placed) == len(boxes) > 6
    for x, y, width, height in placed:
        over = [p for p in placed if abs(p[0] - x) < width and abs(p[1] - y) < height]
        assert over == [(x, y, width, height)], "no card covers another"
    assert watched.complaints == []


def test_it_comes_back_after_a_restart_and_says_so_while_it_is_away(
    pipeline: HeldPipeline, watched: Watched
) -> None:
    page = watched.page
    with dashboard_of(pipeline) as first:
        url = first.url
        page.goto(url)
        expect(page.locator("#connection-text")).to_have_text("Live")
        expect(page.locator(".hop").first).to_be_visible()

    expect(page.locator("#away")).to_contain_text("does not answer")
    expect(page.locator("#connection-text")).to_have_text("Away")
    shown = page.locator("body").get_attribute("data-updates")

    with dashboard_of(pipeline, re.sub(r"^http://|/$", "", url)):
        expect(page.locator("#connection-text")).to_have_text("Live")
        expect(page.locator("#away")).to_be_hidden()
        expect(page.locator("body")).not_to_have_attribute("data-updates", str(shown))


def test_it_does_not_mind_a_clock_that_jumps(pipeline: HeldPipeline, watched: Watched) -> None:
    page = watched.page
    with dashboard_of(pipeline) as dashboard:
        page.clock.install()
        page.goto(dashboard.url)
        expect(page.locator("#connection-text")).to_have_text("Live")
        for jump in ("2001-02-03", "2050-01-01"):
            page.clock.set_system_time(jump)
            shown = page.locator("body").get_attribute("data-updates")
            page.clock.run_for(1000)
            expect(page.locator("body")).not_to_have_attribute("data-updates", str(shown))
            expect(page.locator("#connection-text")).to_have_text("Live")

    assert watched.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(pipeline: HeldPipeline, browser: Browser, scheme: str) -> None:
    axe = installed(Path(__file__).parent / "browser", PART) / "node_modules/axe-core/axe.min.js"
    pipeline.readers["archive"].is_held = True
    # axe itself is a script that the page's policy would refuse.
    context = browser.new_context(bypass_csp=True)
    page = Watched(context.new_page())
    page.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
    with dashboard_of(pipeline) as dashboard:
        page.page.goto(dashboard.url)
        page.limiting("archive")
        page.page.locator("button.hop").first.click()
        for summary in page.page.locator("details:visible summary").all():
            summary.click()
        page.page.add_script_tag(path=axe)
        found = page.page.evaluate("() => axe.run()")
    context.close()

    serious = [
        f"{each['id']}: {each['help']}: {[node['html'][:120] for node in each['nodes'][:3]]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]
    assert "\n".join(serious) == ""
    assert found["passes"]


def test_a_phone_shows_it_without_scrolling_sideways(pipeline: HeldPipeline, browser: Browser) -> None:
    context = browser.new_context(viewport=PHONE, has_touch=True)
    page = Watched(context.new_page())
    pipeline.readers["archive"].is_held = True
    with dashboard_of(pipeline) as dashboard:
        page.page.goto(dashboard.url)
        page.limiting("archive")
        width = page.page.evaluate("() => document.documentElement.scrollWidth")
        cards = page.page.locator("#hops li").all()
        tops = [box["y"] for card in cards if (box := card.bounding_box()) is not None]
    context.close()

    assert width <= 390
    assert tops == sorted(set(tops)), "the hops stand one below the other, and data goes down"


def test_the_keyboard_opens_and_closes_a_hop(pipeline: HeldPipeline, watched: Watched) -> None:
    page = watched.page
    with dashboard_of(pipeline) as dashboard:
        page.goto(dashboard.url)
        card = page.locator("button.hop", has_text="intake")
        card.focus()
        page.keyboard.press("Enter")
        expect(page.locator("#detail-title")).to_have_text("intake intake")
        expect(card).to_have_attribute("aria-pressed", "true")
        page.locator("#detail-close").press("Enter")
        expect(page.locator("#detail")).to_be_hidden()
        expect(card).to_be_focused()


def test_a_name_that_looks_like_html_is_only_a_name(browser: Browser, watched: Watched) -> None:
    from penstock.observe import Hop, RecentError, Snapshot

    evil = "<img src=x onerror=alert(1)>"
    clock = iter(range(1, 1000))

    def look() -> Snapshot:
        hop = Hop(id=evil, kind="reader", name=evil)
        now = float(next(clock))
        return Snapshot(at=now, clock=now, hops=(hop,), errors=(RecentError(at=1.0, hop=evil, message=evil),))

    with Dashboard(look, DashboardOptions(listen="127.0.0.1:0"), interval=0.2) as dashboard:
        watched.page.goto(dashboard.url)
        expect(watched.page.locator(".hop .name")).to_have_text(evil)
        expect(watched.page.locator(".error-text")).to_have_text(evil)

    assert watched.page.locator("main img").count() == 0
    assert watched.complaints == []


def test_a_browser_gets_in_with_the_token_and_stays_in_after_a_restart(
    pipeline: HeldPipeline, watched: Watched, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("correct-horse-battery\n")
    token.chmod(0o600)
    page = watched.page

    def guarded(listen: str) -> Dashboard:
        options = DashboardOptions(listen=listen, token_file=str(token))
        return Dashboard(pipeline.observer.look, options, interval=0.2)

    with guarded("127.0.0.1:0") as dashboard:
        url = dashboard.url
        page.goto(url)
        page.get_by_label("Token").fill("wrong-horse-battery")
        page.get_by_role("button", name="Show the pipeline").click()
        expect(page.get_by_role("alert")).to_contain_text("not the token")
        page.get_by_label("Token").fill("correct-horse-battery")
        page.get_by_role("button", name="Show the pipeline").click()
        expect(page.locator(".hop").first).to_be_visible(timeout=PATIENCE)
        assert page.url == url
        (cookie,) = page.context.cookies()
        assert (cookie.get("httpOnly"), cookie.get("sameSite")) == (True, "Strict")
        assert "horse" not in str(cookie)
    with guarded(re.sub(r"^http://|/$", "", url)):
        expect(page.locator("#connection-text")).to_have_text("Live")

    assert not any("horse" in url for url in watched.requested)
