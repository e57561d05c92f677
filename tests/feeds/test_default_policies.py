"""What happens to a bad line if nobody has chosen: its sender is told, or a gateway keeps it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock import feeds
from penstock.feeds import FeedOptions
from penstock.streams import Flux

HERE = "127.0.0.1:0"


@pytest.fixture
def schema(tmp_path: Path) -> str:
    (tmp_path / "order.json").write_text(
        json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})
    )
    return f"jsonschema:{tmp_path / 'order.json'}"


def policies(url: str, options: FeedOptions) -> tuple[str, str]:
    """What the feed does, and what its gateway should do."""
    with feeds.open(url, options) as feed:
        assert feed.bad is not None
        assert feed.opened_with is options
        return feed.bad.policy, feed.on_bad_record


@pytest.mark.parametrize(
    ("url", "policy"),
    [
        ("file:in", "dead-letter"),
        ("dir:.", "dead-letter"),
        ("exec:true", "dead-letter"),
        ("mqtt://127.0.0.1/orders", "dead-letter"),
        (f"tcp-listen://{HERE}", "fail"),
        (f"tcp-listen://{HERE}?acknowledge", "fail"),
        (f"webhook+http://{HERE}/in", "fail"),
        (f"ws-listen://{HERE}/in", "fail"),
        (f"udp://{HERE}", "skip"),
    ],
)
def test_a_gateway_keeps_a_bad_line_where_nobody_can_be_told(
    url: str, policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").touch()
    for_gateway = FeedOptions(codec="json").with_dead_letters()

    assert policies(url, for_gateway) == (policy, policy)
    alone = "fail" if policy == "dead-letter" else policy
    assert policies(url, FeedOptions(codec="json")) == (alone, alone)
    chosen = FeedOptions(codec="json", on_bad_line="fail").with_dead_letters()
    assert policies(url, chosen) == ("fail", "fail")


def test_lines_of_bytes_are_not_kept_and_rows_of_csv_are(tmp_path: Path) -> None:
    (tmp_path / "in").touch()
    url = f"file:{tmp_path / 'in'}"

    assert policies(url, FeedOptions().with_dead_letters()) == ("fail", "fail")
    assert policies(url, FeedOptions(format="csv").with_dead_letters()) == ("dead-letter", "dead-letter")


@pytest.mark.parametrize(
    ("url", "gateway"),
    [(f"webhook+http://{HERE}/in", "dead-letter"), (f"tcp-listen://{HERE}?acknowledge", "fail")],
)
def test_what_no_column_can_hold_is_kept_by_the_gateway_unless_the_sender_counts_lines(
    url: str, gateway: str, schema: str
) -> None:
    options = FeedOptions(codec=schema, columns=True).with_dead_letters()

    assert policies(url, options) == ("fail", gateway)


class OwnFeed(feeds.Feed):
    name = "a feed of one's own"

    def __call__(self, journalled: int) -> Any:
        return Flux.empty()


def test_a_feed_of_ones_own_that_counts_no_bad_lines_has_the_default() -> None:
    feed, with_letters = OwnFeed(), OwnFeed()
    with_letters.opened_with = FeedOptions(codec="json").with_dead_letters()
    assert (feed.on_bad_record, with_letters.on_bad_record) == ("fail", "dead-letter")


def test_a_policy_that_is_not_known_is_refused() -> None:
    with pytest.raises(feeds.BadFeed, match="default_policy='drop' is not known; write fail, skip or"):
        FeedOptions(default_policy="drop")  # type: ignore[arg-type]
