"""``penstock tail`` as a user runs it."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.aquifer import Gateway, MemoryJournal, Record
from penstock.cli import main
from penstock.streams import Flux
from tests.cli.running import PATIENCE, Program, penstock
from tests.cli.running import Gateway as GatewayProgram
from tests.cli.terminals import Terminal
from tests.free_ports import free_port

LINES = [b"line %d" % number for number in range(1000)]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A gateway that has taken a thousand lines and goes on serving them."""
    with Gateway(Flux.from_iterable(LINES), control="tcp://127.0.0.1:0") as gateway:
        assert gateway.join(PATIENCE)
        yield gateway.endpoint


def test_everything_is_printed_unchanged(endpoint: str) -> None:
    done = penstock("tail", endpoint)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.encode() == b"\n".join(LINES) + b"\n"


def test_a_range_is_printed_with_offsets_and_times(endpoint: str) -> None:
    done = penstock("tail", endpoint, "--from", "10", "--to", "13", "--json")

    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert [record["offset"] for record in records] == [10, 11, 12]
    assert [record["value"] for record in records] == ["line 10", "line 11", "line 12"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", each["timestamp"]) for each in records)
    assert [record["key"] for record in records] == [None] * 3


@pytest.mark.parametrize("codec", [(), ("--codec", "text")])
def test_it_starts_at_a_time(codec: tuple[str, ...]) -> None:
    noon = 1_769_860_800_000_000
    records = [Record(b"minute %d" % minute, timestamp=noon + minute * 60_000_000) for minute in range(60)]
    with Gateway(Flux.from_iterable(records), control="tcp://127.0.0.1:0") as gateway:
        assert gateway.join(PATIENCE)
        in_utc = penstock("tail", gateway.endpoint, "--from", "2026-01-31T12:57", *codec)
        with_zone = penstock("tail", gateway.endpoint, "--from", "2026-01-31T13:58:30+01:00", *codec)

    assert in_utc.stdout.splitlines() == ["minute 57", "minute 58", "minute 59"]
    assert with_zone.stdout.splitlines() == ["minute 59"]


def test_what_is_no_text_is_told_in_base64() -> None:
    records = [Record(b"\xff\xfe", key=b"a", timestamp=0), Record(b"x", key=b"\xff", timestamp=10**18)]
    with Gateway(Flux.from_iterable(records), control="tcp://127.0.0.1:0") as gateway:
        done = penstock("tail", gateway.endpoint, "--json")

    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"offset": 0, "timestamp": "1970-01-01T00:00:00.000000Z", "key": "a", "value_base64": "//4="},
        {"offset": 1, "timestamp": None, "key_base64": "/w==", "value": "x"},
    ]


def test_values_of_a_codec_are_printed_as_json() -> None:
    elements = [{"a": [1, 2]}, "text"]
    with Gateway(Flux.from_iterable(elements), control="tcp://127.0.0.1:0", codec="msgpack") as gateway:
        done = penstock("tail", gateway.endpoint, "--codec", "msgpack")
        in_full = penstock("tail", gateway.endpoint, "--codec", "msgpack", "--json")
        wrong = penstock("tail", gateway.endpoint, "--codec", "json")

    assert done.stdout == '{"a":[1,2]}\n"text"\n'
    assert [json.loads(line)["value"] for line in in_full.stdout.splitlines()] == elements
    assert wrong.returncode == 1
    assert "does the gateway use another codec?" in wrong.stderr


def test_an_id_goes_on_behind_what_was_printed(endpoint: str) -> None:
    printed = [penstock("tail", endpoint, "--id", "steps", "--count", "10").stdout for _ in range(3)]

    assert "".join(printed).encode().splitlines() == LINES[:30]


def test_a_reader_of_the_plain_dialect_gets_the_same(endpoint: str) -> None:
    done = penstock("tail", endpoint, "--dialect", "plain", "--count", "500")

    assert (done.returncode, done.stdout.encode().splitlines()) == (0, LINES[:500])


def test_a_rate_is_kept_by_asking_for_no_more() -> None:
    journal = MemoryJournal(max_records=100)
    with Gateway(Flux.from_iterable(LINES), control="tcp://127.0.0.1:0", journal=journal) as gateway:
        began = time.monotonic()
        with Program("tail", gateway.endpoint, "--rate", "40/s") as tail:
            for number in range(41):
                assert tail.stdout.readline() == b"line %d\n" % number
            (reader,) = gateway.status()["subscribers"]
            received = gateway.status()["source"]["received"]
        allowed = 40 * (time.monotonic() - began)

        # A window of a quarter of a second, of which the last piece may just have been acknowledged.
        assert 40 <= reader["next"] <= allowed + 30
        assert received <= allowed + 30 + 100


def test_a_reader_that_has_enough_ends_it(endpoint: str) -> None:
    with Program("tail", endpoint, "--rate", "100/s") as tail:
        assert tail.stdout.readline() == b"line 0\n"
        tail.stdout.close()
        assert tail.end() == 0

    assert tail.said == []


def test_a_reader_that_has_enough_ends_it_even_if_nothing_comes() -> None:
    with (
        Gateway(Flux.never(), control="tcp://127.0.0.1:0") as gateway,
        Program("tail", gateway.endpoint) as tail,
    ):
        tail.stdout.close()
        assert tail.end() == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_it_with_a_summary(endpoint: str, number: signal.Signals, code: int) -> None:
    with Program("tail", endpoint, "--from", "990", "--rate", "1/s", "--id", f"signal-{code}") as tail:
        assert tail.stdout.readline() == b"line 990\n"
        tail.process.send_signal(number)
        assert tail.end() == code

    assert tail.said == [
        f"penstock tail: interrupted: 1 record printed; signal-{code} can continue there within 1 min 0 s"
    ]


def test_a_signal_ends_it_though_nobody_reads_its_output() -> None:
    long = Flux.range(0, 100_000).map(lambda number: b"%1000d" % number)
    with (
        Gateway(long, control="tcp://127.0.0.1:0") as gateway,
        Program("tail", gateway.endpoint) as tail,
    ):
        # It has asked for so much, and printed what fits into the pipe: it waits for a reader.
        deadline = time.monotonic() + 20
        while not any(each["records"] > 1000 for each in gateway.status()["subscribers"]):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        tail.process.send_signal(signal.SIGTERM)
        assert tail.end() == 0


def test_a_best_effort_reader_says_what_it_missed() -> None:
    journal = MemoryJournal(max_records=100)
    stop = False

    def numbers() -> Iterator[bytes]:
        number = 0
        while not stop:
            yield b"%d" % number
            number += 1
            time.sleep(0.0005)

    with Gateway(Flux.from_iterable(numbers()), control="tcp://127.0.0.1:0", journal=journal) as gateway:
        with Program("tail", gateway.endpoint, "--best-effort", "--rate", "50/s") as tail:
            missed = tail.wait_for(r"the records (\d+) to (\d+) were missed; continuing at (\d+)")
        stop = True

    assert int(missed[1]) <= int(missed[2]) == int(missed[3]) - 1


def test_a_gateway_that_is_not_there_is_an_error_when_patience_ends(tmp_path: Path) -> None:
    done = penstock("tail", "tcp://127.0.0.1:1", "--patience", "0.3")

    assert done.returncode == 1
    assert done.stderr.startswith("penstock tail: no gateway answers at tcp://127.0.0.1:1 after 0.3 s; is it")
    assert done.stderr.count("\n") == 1


def test_another_server_is_told_from_a_gateway_that_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = penstock("tail", f"tcp://127.0.0.1:{port}", "--patience", "2")

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"penstock tail: something listens at tcp://127.0.0.1:{port}, but no gateway has answered for 2 s; "
        "check the port, and whether the gateway is healthy; an encrypted endpoint needs --curve and "
        "--server-key"
    )


def test_an_offset_that_is_not_there_is_an_error(endpoint: str) -> None:
    done = penstock("tail", endpoint, "--from", "5000")

    assert done.returncode == 1
    assert "offset 5000 is not available: there are 0 to 999" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("here",), "has to start with tcp://"),
        (("tcp://*:5556",), "name the host and port of one gateway"),
        (("tcp://127.0.0.1:1", "--from", "yesterday"), "write earliest, latest, an offset, or a time"),
        (("tcp://127.0.0.1:1", "--to", "-1"), "--to"),
        (("tcp://127.0.0.1:1", "--rate", "fast"), "write 100/s or 0.5/s"),
        (("tcp://127.0.0.1:1", "--count", "0"), "is not a whole number of at least 1"),
        (("tcp://127.0.0.1:1", "--server-key", "x"), "--curve and --server-key go together"),
        (("tcp://127.0.0.1:1", "--curve", "nobody", "--server-key", "x"), "there is no key file nobody"),
    ],
)
def test_a_wrong_command_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    assert main(["tail", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_output_into_a_file_is_complete(endpoint: str, tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("wb") as file, Program("tail", endpoint, stdout=file, stdin=subprocess.DEVNULL) as tail:
        assert tail.end() == 0

    assert path.read_bytes().splitlines() == LINES


@pytest.mark.parametrize("codec", ["bytes", "text", "json", "msgpack"])
def test_the_codec_is_the_one_that_the_gateway_names(codec: str) -> None:
    elements: list[Any] = [{"a": 1}, "text"]
    if codec == "bytes":
        elements = [b'{"a":1}', b'"text"']
    elif codec == "text":
        elements = ['{"a":1}', '"text"']
    with Gateway(Flux.from_iterable(elements), control="tcp://127.0.0.1:0", codec=codec) as gateway:
        raw = penstock("tail", gateway.endpoint)
        in_full = penstock("tail", gateway.endpoint, "--json")

    assert raw.stdout == '{"a":1}\n"text"\n'
    values = [json.loads(line)["value"] for line in in_full.stdout.splitlines()]
    assert values == (elements if codec in ("json", "msgpack") else ['{"a":1}', '"text"'])


def test_only_the_records_of_some_keys_are_printed() -> None:
    records = [Record(b"%d" % number, key=b"k%d" % (number % 4)) for number in range(20)]
    with Gateway(Flux.from_iterable(records), control="tcp://127.0.0.1:0") as gateway:
        done = penstock("tail", gateway.endpoint, "--key", "k1", "--key", "k3")

    assert done.stdout.split() == [str(number) for number in range(20) if number % 2]


def test_it_says_that_it_looks_for_a_gateway_and_finds_it_when_it_comes() -> None:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    with Program("tail", endpoint) as tail:
        tail.wait_for("no gateway answers at .* yet; looking for it for 30 s")
        with Gateway(Flux.just(b"one"), control=endpoint):
            assert tail.stdout.read() == b"one\n"
            assert tail.end() == 0


@pytest.mark.slow
def test_on_a_terminal_it_says_that_it_waits_for_records() -> None:
    with (
        Gateway(Flux.never(), control="tcp://127.0.0.1:0") as gateway,
        Terminal() as terminal,
        terminal.run("tail", gateway.endpoint) as tail,
    ):
        terminal.read_until(b"waiting for records from tcp://")
        tail.send_signal(signal.SIGINT)
        assert tail.wait(PATIENCE) == 130


def test_a_log_with_room_for_one_record_is_read_to_its_end() -> None:
    journal = MemoryJournal(max_records=1)
    with Gateway(Flux.from_iterable(LINES[:5]), control="tcp://127.0.0.1:0", journal=journal) as gateway:
        done = penstock("tail", gateway.endpoint)

    assert done.stdout.encode().splitlines() == LINES[:5]


@pytest.mark.slow
@pytest.mark.parametrize("peek", [("--count", "20"), ("--count", "5"), "head"])
def test_somebody_who_only_looks_does_not_make_a_gateway_leave(
    tmp_path: Path, peek: tuple[str, ...] | str
) -> None:
    source = tmp_path / "lines"
    source.write_bytes(b"".join(line + b"\n" for line in LINES[:20]))
    with GatewayProgram("--source", f"file:{source}") as gateway:
        if peek == "head":
            # Slowly: what fits into a pipe is written before anybody can have enough of it.
            command = f"'{sys.executable}' -m penstock.cli tail {gateway.endpoint} --rate 10/s | head -n 5"
            done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=PATIENCE)
            assert done.stdout.splitlines() == LINES[:5]
        else:
            assert penstock("tail", gateway.endpoint, *peek).returncode == 0
        # It is still there for somebody who wants everything, and leaves after that.
        assert penstock("tail", gateway.endpoint).stdout.encode().splitlines() == LINES[:20]
        assert gateway.end() == 0
