"""The pages of the gateway tell the truth: names, numbers and samples are the code's."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import msgspec
import pytest

from penstock.aquifer import AquiferError, ErrorCode, Limits
from penstock.aquifer.protocol import extended_reader, messages, plain_reader, subscriber_side
from penstock.aquifer.protocol.frames import HEADER, Flag, parse
from penstock.aquifer.records.batch import unpack_metadata, unpack_values
from tests.examples.pages import ROOT

PROTOCOL = (ROOT / "docs" / "aquifer-protocol.md").read_text("utf-8")
GUIDE = (ROOT / "docs" / "aquifer.md").read_text("utf-8")
SAMPLES = [
    line for block in re.findall(r"```json\n(.*?)```", PROTOCOL, re.DOTALL) for line in block.splitlines()
]
DOCUMENT = [
    b'{"jsonClass":"Subscribe","cancel":false}',
    b'{"jsonClass":"OnSubscribe","size":9223372036854775807,"port":5557}',
    b'{"jsonClass":"Next","count":1000}',
    b'{"jsonClass":"OnNext","count":1000}',
    b'{"jsonClass":"OnError","message":"stuffed"}',
    b'{"jsonClass":"OnComplete","complete":true}',
]
SECTIONS = {
    "Subscribe.x": messages.SubscribeFields,
    "Subscribe.x.admin": messages.AdminRequest,
    "Subscribe.x.group": messages.GroupFields,
    "OnSubscribe.x": messages.OnSubscribeFields,
    "OnSubscribe.x.shelf": messages.SegmentFields,
    "Next.x": messages.NextFields,
    "OnNext.x": messages.OnNextFields,
    "OnError.x": messages.OnErrorFields,
    "OnComplete.x": messages.CompleteFields,
    "Next.x.put": messages.Put,
    "Complete.x.commit": messages.Commit,
    "Complete.x.commit.replay": messages.Replay,
}
SPOKEN_BY_BOTH = {"Complete": "OnComplete"}
"""A request whose ``x`` is that of an answer."""
USUAL = {"fmt"}
"""Fields of a piece that are left out of a message when they are what they usually are."""


def section(title: str) -> str:
    """What stands below a heading, up to the next."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ )", PROTOCOL, re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found[1]


def first_column(text: str) -> list[str]:
    """The names in the first cells of a table."""
    return re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)


def kinds_of(error: type[AquiferError]) -> Iterator[type[AquiferError]]:
    yield error
    for kind in error.__subclasses__():
        yield from kinds_of(kind)


def codes() -> set[str]:
    """Every error code in the code; and no exception has another one."""
    known = {str(code) for code in ErrorCode}
    assert {str(kind.code) for kind in kinds_of(AquiferError) if kind.code} <= known
    return known


# ---------------------------------------------------------------- the page of the protocol
@pytest.mark.parametrize("title", SECTIONS)
def test_a_table_has_the_fields_of_its_x_and_no_others(title: str) -> None:
    expected = [field.encode_name for field in msgspec.structs.fields(SECTIONS[title])]

    assert first_column(section(title)) == expected


def test_every_kind_of_x_is_on_the_page() -> None:
    assert set(SECTIONS.values()) == set(messages._Extension.__subclasses__())


@pytest.mark.parametrize("title", SECTIONS)
def test_every_field_is_shown_in_a_sample(title: str) -> None:
    shown: set[str] = set()
    for sample in SAMPLES:
        message: Any = msgspec.json.decode(sample)
        kind, _, *inner = title.split(".")
        if kind in (message["jsonClass"], SPOKEN_BY_BOTH.get(message["jsonClass"])):
            x = message.get("x", {})
            for name in inner:
                x = x.get(name, {})
            shown |= set(x)

    fields_of_x = {field.encode_name for field in msgspec.structs.fields(SECTIONS[title])}
    assert shown == fields_of_x - (USUAL if title == "Next.x.put" else set())


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_sample_is_read_and_written_as_it_stands(sample: str) -> None:
    assert messages.encode(messages.decode(sample.encode())) == sample.encode()


def test_the_samples_of_the_document_are_there() -> None:
    assert [line.encode() for line in SAMPLES[: len(DOCUMENT)]] == DOCUMENT


def test_every_error_code_is_on_the_page_and_no_other() -> None:
    assert set(first_column(section("Error codes"))) == codes()


def test_an_error_of_the_table_is_the_one_that_python_has() -> None:
    named = dict(re.findall(r"^\| `([A-Z]+)` \|.*\| `(\w+)` \|$", section("Error codes"), re.MULTILINE))

    assert named == {kind.code: kind.__name__ for kind in kinds_of(AquiferError) if kind.code in named}
    assert {kind.code for kind in kinds_of(AquiferError) if kind.code} - set(named) <= {"LEASE"}
    for code, name in named.items():
        answer = messages.OnError("", x=messages.OnErrorFields(code=code))
        assert type(subscriber_side.error_from(answer)).__name__ == name


def test_every_flag_is_on_the_page_with_its_bit() -> None:
    rows = re.findall(r"^\| `([A-Z]+)` \| (\d+) \|", section("Frames"), re.MULTILINE)

    assert {name: int(bit) for name, bit in rows} == {flag.name: flag.value for flag in Flag}


def test_every_limit_is_on_the_page_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", section("Limits"), re.MULTILINE)

    assert {name: float(value) for name, value in rows} == {
        limit.name: limit.default for limit in fields(Limits)
    }


def test_the_header_is_laid_out_as_the_page_says() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| unsigned \|", section("Frames"), re.MULTILINE)

    assert f"`{HEADER.format}`" in PROTOCOL
    ends = [int(offset) + int(size) for offset, size in rows]
    assert [int(offset) for offset, _ in rows] == [0, *ends[:-1]]
    assert ends[-1] == HEADER.size


def test_the_frame_of_the_page_is_one() -> None:
    parts = re.findall(r"^(?:topic|header|payload|metadata) +((?:[0-9a-f]{2} ?)+)$", PROTOCOL, re.MULTILINE)
    frame = parse([bytes.fromhex(part) for part in parts])

    assert (frame.flags, frame.first, frame.count) == (0, 0, 2)
    assert unpack_values(frame.payload) == [b"0", b"1"]
    assert unpack_metadata(frame.metadata).keys == [b"k", b"k"]


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("no answer to `Subscribe`", subscriber_side._KNOWN),
        ("no byte at all", subscriber_side._SILENCE),
        ("no `Next` was sent", extended_reader._REPEAT),
        ("an acknowledgement that waits", extended_reader._LINGER),
    ],
)
def test_a_time_of_the_page_is_that_of_the_code(words: str, seconds: float) -> None:
    found = re.search(rf"^\| {re.escape(words)}[^|]*\| ([\d.]+)", PROTOCOL, re.MULTILINE)

    assert found is not None
    assert float(found[1]) == seconds


def test_the_times_of_the_plain_dialect_are_those_of_the_code() -> None:
    rows = section("Deficits")

    assert f"and {plain_reader._SETTLE * 1000:g} ms more" in rows
    assert f"after {plain_reader._JOIN:g} s without it" in rows
    assert f"a record counts as {plain_reader._UNKNOWN // 1024} KiB" in rows
    assert f"up to {plain_reader._LONGEST * 1000:g} ms" in rows


# ---------------------------------------------------------------- both pages
def options(*command: str) -> set[str]:
    """What a command says that it understands."""
    call = [sys.executable, "-m", "penstock.cli", *command, "--help"]
    shown = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"--[\w-]+", shown))


def test_the_guide_names_every_error_that_a_reader_can_get() -> None:
    raised = {kind.__name__ for kind in kinds_of(AquiferError)}

    assert raised - set(re.findall(r"`(\w+)`", GUIDE)) == set()


@pytest.mark.parametrize(
    "command",
    [
        ["gateway"],
        ["tail"],
        ["gateway", "status"],
        ["gateway", "evict"],
        ["gateway", "forget"],
        ["gateway", "give"],
    ],
)
def test_a_command_of_the_guide_has_the_options_that_are_used(command: list[str]) -> None:
    shown = options(*command)
    lines = [
        line for block in re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL) for line in block.splitlines()
    ]
    called = re.compile(rf"penstock {' '.join(command)} (?!(?:status|ls|evict|forget|move|give) )")
    used = {option for line in lines if called.search(line) for option in re.findall(r"--[\w-]+", line)}

    assert used
    assert used - shown == set()


def test_the_guide_names_every_option_of_the_gateway() -> None:
    assert options("gateway") - {"--help", "--debug"} - set(re.findall(r"--[\w-]+", GUIDE)) == set()
