"""Feeds by scheme: those of this package, those that a program registers, and those of other packages."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import feeds
from penstock.aquifer import AquiferPublisher, Gateway
from penstock.feeds import BadFeed, Feed, FeedOptions, FeedUrl, Scheme, UnknownScheme, registry
from penstock.spec import Publisher
from penstock.streams import Flux
from tests.cli.running import PATIENCE


class WordsFeed(Feed):
    """The words of its URL."""

    def __init__(self, url: FeedUrl) -> None:
        self.name = url.text
        self.url = url

    def __call__(self, journalled: int) -> Publisher[Any]:
        return Flux.from_iterable(self.url.rest.split("-")[journalled:])


def open_words(url: FeedUrl, options: FeedOptions) -> Feed:
    return WordsFeed(url)


WORDS = Scheme(
    "words", "words:WORD-WORD", "the words of the URL", open_words, flags={"loud": "", "backwards": ""}
)


@pytest.fixture(autouse=True, scope="module")
def _words() -> Iterator[None]:
    feeds.register(WORDS)
    yield
    # For the tests of others; a program has its schemes until it ends.
    del registry._known[WORDS.name]


def test_a_scheme_that_is_registered_is_opened_by_its_url() -> None:
    with feeds.open("words:one-two-three") as feed:
        assert list(feed.flux(1)) == ["two", "three"]
    assert feeds.known_schemes()["words"] is WORDS


def test_a_gateway_takes_a_feed_as_its_source() -> None:
    with feeds.open("words:one-two") as feed, Gateway(feed, "tcp://127.0.0.1:0", codec="text") as gateway:
        assert list(AquiferPublisher(gateway.endpoint, codec="text").flux()) == ["one", "two"]


def test_the_flags_behind_the_question_mark_are_those_of_the_scheme() -> None:
    feed = feeds.open("words://one?loud&backwards")
    assert isinstance(feed, WordsFeed)
    assert feed.url == FeedUrl("words://one?loud&backwards", "words", "one", frozenset({"loud", "backwards"}))
    with pytest.raises(BadFeed, match=r"'softly' is not known; after the \? there can be loud, backwards"):
        feeds.open("words:one?softly")


@pytest.mark.parametrize("scheme", ["http", "sse+http", "ws"])
def test_a_feed_is_named_by_its_url_without_its_parameters_and_its_password(
    scheme: str, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("abc")
    with feeds.open(f"{scheme}://127.0.0.1:9/page?a=1#token-file={tmp_path / 'token'}") as feed:
        assert feed.name == f"{scheme}://127.0.0.1:9/page?a=1"
    with feeds.open(f"{scheme}://me:hidden@127.0.0.1:9/page") as feed:
        assert feed.name == f"{scheme}://me@127.0.0.1:9/page"


def test_a_scheme_can_be_registered_again_but_not_taken_over() -> None:
    feeds.register(WORDS)
    with pytest.raises(BadFeed, match="a feed with the scheme 'words' already"):
        feeds.register(Scheme("words", "words:X", "", open_words))


@pytest.mark.parametrize("url", ["nothing:else", "words", "stdin:", "", "://", "file", "FILE:x"])
def test_an_unknown_scheme_is_one_sentence_with_the_known_ones(url: str) -> None:
    with pytest.raises(UnknownScheme) as caught:
        feeds.open(url)

    said = str(caught.value)
    assert said.startswith(f"{url!r} is not a feed; write ")
    assert "\n" not in said
    for scheme in feeds.known_schemes().values():
        assert scheme.form in said


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"codec": "xml"}, "'xml' is not a codec; write bytes, text, json, msgpack, jsonschema:FILE"),
        ({"on_bad_line": "weep"}, "on_bad_line='weep' is not known; write fail, skip or dead-letter"),
        ({"max_line": 0}, "max_line needs a number of at least 1, not 0"),
    ],
)
def test_an_option_that_cannot_be_is_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        FeedOptions(**options)


@pytest.mark.parametrize("wrong", [None, 5, b"file:x", Path("x")])
def test_what_is_not_a_url_is_named(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"feeds.open\(\) needs a URL such as 'file:app.log', not "):
        feeds.open(wrong)


def test_options_and_schemes_of_another_type_are_named() -> None:
    options: Any = {"codec": "json"}
    with pytest.raises(TypeError, match=r"feeds.open\(\) needs FeedOptions\(…\), not {'codec': 'json'}"):
        feeds.open("words:one", options)
    scheme: Any = "words"
    with pytest.raises(TypeError, match=r"register\(\) needs a Scheme, not 'words'"):
        feeds.register(scheme)


# ---------------------------------------------------------------- other packages
MODULE = """
from penstock import feeds
from penstock.streams import Flux

class Once(feeds.Feed):
    name = "one record"
    def __call__(self, journalled):
        return Flux.just(b"from elsewhere")

ONCE = feeds.Scheme("once", "once:", "one record", lambda url, options: Once())
NOTHING = "not a scheme"
"""
REGISTERING = """
from elsewhere_feeds import feeds, Once

TWICE = feeds.Scheme("twice", "twice:", "one record", lambda url, options: Once())
feeds.register(TWICE)
"""
ENTRY_POINTS = """
[penstock.feeds]
once = elsewhere_feeds:ONCE
broken = no_such_module:THING
nothing = elsewhere_feeds:NOTHING
twice = registering_feeds:TWICE
"""


def with_another_package(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    (folder / "elsewhere_feeds.py").write_text(MODULE)
    (folder / "registering_feeds.py").write_text(REGISTERING)
    about = folder / "elsewhere-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    path = os.pathsep.join([str(folder), *(each for each in sys.path if each)])
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_a_feed_of_another_package_is_found_by_its_entry_point(tmp_path: Path) -> None:
    program = (
        "from penstock import feeds\nfrom penstock.streams import Flux\nimport sys\n"
        "feed = feeds.open('once:')\n"
        "print(list(feed.flux()), 'once' in feeds.known_schemes())"
    )
    done = with_another_package(tmp_path, program)

    assert done.stdout == "[b'from elsewhere'] True\n", done.stderr
    # Those that cannot be loaded are told, and are in nobody's way.
    assert "the feed 'broken' of elsewhere cannot be loaded: No module named 'no_such_module'" in done.stderr


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("broken:x", "the feed 'broken' of elsewhere cannot be loaded"),
        ("nothing:x", "has to be a Scheme('nothing', …), not 'not a scheme'"),
        ("other:x", "'other:x' is not a feed; write dir:PATH, file:PATH"),
    ],
)
def test_a_feed_of_another_package_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, url: str, says: str
) -> None:
    program = (
        f"from penstock import feeds\ntry:\n    feeds.open({url!r})\n"
        "except feeds.BadFeed as error:\n    print(error)"
    )
    done = with_another_package(tmp_path, program)

    assert says in done.stdout, done.stderr
    assert done.stdout.count("\n") == 1


def test_a_package_that_registers_its_scheme_while_it_is_loaded_is_not_waited_for(tmp_path: Path) -> None:
    program = "from penstock import feeds\nprint(feeds.open('twice:').name)"
    done = with_another_package(tmp_path, program)

    assert done.stdout == "one record\n", done.stderr
