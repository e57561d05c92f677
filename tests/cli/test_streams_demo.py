"""``penstock demo --only-streams`` as a user runs it."""

import re
import signal
import subprocess
import sys

from tests.cli.running import PATIENCE
from tests.cli.terminals import Terminal


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "penstock.cli", "demo", "--only-streams", *arguments]


def test_the_demo_shows_the_queue_at_its_bound_and_loses_nothing() -> None:
    done = subprocess.run(
        _command("--duration", "3", "--headless"), capture_output=True, text=True, timeout=PATIENCE
    )

    assert done.returncode == 0, done.stderr
    assert "R2: subscriber" in done.stdout
    assert "all in order" in done.stdout
    worst = re.search(r"never more than (\d+) of 256 waiting", done.stdout)
    assert worst is not None
    assert int(worst.group(1)) <= 256
    assert done.stderr == ""


def test_the_source_is_held_to_the_pace_of_the_slow_subscriber() -> None:
    done = subprocess.run(
        _command("--duration", "6", "--headless"), capture_output=True, text=True, timeout=PATIENCE
    )

    lines = re.findall(r"subscriber (slow|fast)  source +([\d,]+)/s", done.stdout)
    slow = [int(rate.replace(",", "")) for pace, rate in lines if pace == "slow"]
    fast = [int(rate.replace(",", "")) for pace, rate in lines if pace == "fast"]
    assert slow, done.stdout
    assert fast, done.stdout
    assert min(slow) < max(fast) / 10


def test_on_a_terminal_it_draws_over_its_own_picture() -> None:
    with Terminal() as terminal, terminal.run("demo", "--only-streams", "--duration", "2") as program:
        shown = terminal.read_all()

    assert program.returncode == 0, shown
    assert b"\x1b[4A" in shown


def test_ctrl_c_ends_it_cleanly() -> None:
    with subprocess.Popen(
        _command("--duration", "60", "--headless"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        first = program.stdout.readline()
        program.send_signal(signal.SIGINT)
        rest, complaints = program.communicate(timeout=PATIENCE)

    assert first
    assert program.returncode == 130
    assert "stopped early" in rest
    assert complaints == ""


def test_a_run_of_no_time_is_refused_with_a_reason() -> None:
    done = subprocess.run(_command("--duration", "0"), capture_output=True, text=True, timeout=PATIENCE)

    assert done.returncode == 2
    assert "at least 1 second" in done.stderr
