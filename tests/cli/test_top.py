"""``penstock top`` and ``penstock dashboard`` as a user runs them."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.cli import main
from penstock.cli.table import columns
from penstock.cli.top import screen_lines
from penstock.observe import Hop, HopRates, LiveFigures, LiveUpdate, Snapshot, Verdict
from tests.cli.running import Gateway, Program, penstock

UPDATE = LiveUpdate(
    snapshot=Snapshot(
        at=1.0,
        clock=1.0,
        hops=(
            Hop(id="intake", kind="intake", name="source", demand=0),
            Hop(
                id="log",
                kind="log",
                name="log",
                where="tcp://127.0.0.1:5556",
                waiting=98_000,
                capacity=100_000,
            ),
            Hop(id="cursor", kind="cursor", name="a-reader-with-a-long-\x1b[31mname", lag_records=98_000),
        ),
        verdict=Verdict(
            sentence="The reader `a` limits the flow: 1 of 12 k records/s.", limiting="cursor", advice="wait"
        ),
    ),
    rates=(HopRates(hop="log", seconds=5.0, records_in=12_345.6, records_out=1.0),),
)


@pytest.mark.parametrize("width", [50, 80, 120])
def test_the_screen_fits_and_marks_the_limiting_hop(width: int) -> None:
    lines = list(screen_lines(UPDATE, width))

    assert max(columns(line) for line in lines) <= width
    assert len(lines) < 24
    (marked,) = (line for line in lines if "▶" in line)
    assert "cursor" in marked
    assert "98,000" in marked
    assert any("12,346" in line for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_top_prints_tables_without_a_terminal_and_json_for_programs() -> None:
    with Gateway("--source", "stdin", "--stay", stdin=subprocess.PIPE) as gateway:
        gateway.send_lines("one", "two")
        plain = penstock("top", gateway.endpoint, "--count", "2", "--interval", "0.2")
        read = penstock("top", gateway.endpoint, "--count", "2", "--interval", "0.2", "--json")

    assert (plain.returncode, plain.stderr) == (0, "")
    assert plain.stdout.count("HOP") == 2
    assert f"log {gateway.endpoint}" in plain.stdout
    first, second = (json.loads(line) for line in read.stdout.splitlines())
    assert first["event"] == "look"
    assert [hop["kind"] for hop in second["snapshot"]["hops"]] == ["stage", "intake", "log"]
    assert second["snapshot"]["verdict"]["sentence"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_while_a_silent_gateway_is_asked_ends_top_without_an_error(
    number: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted_look(_: LiveFigures) -> LiveUpdate:
        signal.raise_signal(number)
        return LiveUpdate(snapshot=UPDATE.snapshot, trouble="no gateway answers")

    monkeypatch.setattr(LiveFigures, "update", interrupted_look)

    assert main(["top", "tcp://127.0.0.1:1"]) == code
    assert capsys.readouterr() == ("", "")


def test_top_says_what_is_wrong() -> None:
    nobody = penstock("top", "tcp://127.0.0.1:1", "--count", "1")
    nothing = penstock("top")
    wrong = penstock("top", "127.0.0.1:5556")

    assert (nobody.returncode, nothing.returncode, wrong.returncode) == (1, 2, 2)
    assert nobody.stderr.count("no gateway answers at tcp://127.0.0.1:1") == 1
    assert "which gateways?" in nothing.stderr
    assert "tcp://127.0.0.1:5556" in wrong.stderr
    assert "Traceback" not in nobody.stderr + nothing.stderr + wrong.stderr


def figures_at(url: str) -> dict[str, object]:
    place = urlsplit(url)
    assert place.hostname is not None
    while True:
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=30)
        connection.request("GET", "/snapshot.json")
        response = connection.getresponse()
        body = response.read()
        connection.close()
        if response.status == 200:
            read: dict[str, object] = json.loads(body)
            return read
        assert response.status == 503, body  # there is no snapshot yet


def test_a_gateway_shows_itself_and_a_dashboard_shows_a_gateway() -> None:
    with Gateway(
        "--source", "stdin", "--stay", "--dashboard", "127.0.0.1:0", stdin=subprocess.PIPE
    ) as gateway:
        own = gateway.wait_for(r"dashboard at (\S+)")[1]
        with Program("dashboard", gateway.endpoint, "--listen", "127.0.0.1:0") as program:
            other = program.wait_for(r"dashboard at (\S+)")[1]
            for url in (own, other):
                shown = figures_at(url)
                snapshot = shown["snapshot"]
                assert isinstance(snapshot, dict)
                assert [hop["kind"] for hop in snapshot["hops"]] == ["stage", "intake", "log"]
                assert shown["title"] == gateway.endpoint
            program.process.send_signal(signal.SIGTERM)
            assert program.end() == 0


def test_a_dashboard_for_other_machines_needs_a_token(tmp_path: Path) -> None:
    open_to_all = penstock("dashboard", "tcp://127.0.0.1:5556", "--listen", "0.0.0.0:0")
    half = penstock("dashboard", "tcp://127.0.0.1:5556", "--tls-cert", str(tmp_path / "none.pem"))
    wrong = penstock("gateway", "--source", "stdin", "--dashboard", "nowhere")

    assert (open_to_all.returncode, half.returncode, wrong.returncode) == (2, 2, 2)
    assert "--dashboard-token" in open_to_all.stderr
    assert "--tls-key go together" in half.stderr
    assert "HOST:PORT" in wrong.stderr
