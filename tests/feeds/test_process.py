"""Programs and Unix sockets as feeds."""

import signal
import socket
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from penstock import feeds
from penstock.aquifer import AquiferPublisher, Gateway
from penstock.feeds import BadFeed, FeedOptions, ProgramFailed
from tests.cli.running import PATIENCE
from tests.feeds.brokers import wait_until
from tests.feeds.reading import Reader


def test_the_lines_of_a_program_are_records_and_its_end_is_the_end() -> None:
    url = "exec:sh -c 'echo one; printf two'"
    with feeds.open(url) as feed, Gateway(feed, "tcp://127.0.0.1:0") as gateway:
        assert list(AquiferPublisher(gateway.endpoint).flux()) == [b"one", b"two"]
        assert gateway.failure is None


def test_a_command_of_several_lines_is_within_one_line_of_what_is_said() -> None:
    with feeds.open("exec:sh -c 'echo one\n  echo two'") as feed:
        assert feed.name == "sh -c 'echo one echo two'"
        assert feed.flux().collect_list().block(PATIENCE) == [b"one", b"two"]


def test_a_program_that_fails_is_an_error_with_its_status() -> None:
    with feeds.open("exec:sh -c 'echo one; exit 3'") as feed:
        taken: list[bytes] = []
        with pytest.raises(ProgramFailed, match="ended with status 3; --restart on-failure"):
            feed.flux().do_on_next(taken.append).collect_list().block()
        assert taken == [b"one"]


def test_a_program_is_started_again_as_the_policy_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counter = tmp_path / "count"
    counter.write_text("")
    script = f"echo x >> {counter}; wc -l < {counter}; test $(wc -l < {counter}) -ge 3"
    with feeds.open(f'exec:sh -c "{script}"', FeedOptions(codec="json", restart="on-failure")) as feed:
        assert list(feed.flux()) == [1, 2, 3]
    assert "the program ended with status 1; attempt 2 follows" in caplog.text
    with feeds.open("exec:echo again", FeedOptions(restart="always")) as feed:
        assert list(feed.flux().take(3)) == [b"again"] * 3


def test_a_program_waits_while_nobody_asks_and_ends_with_the_feed(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    code = f"import os; open({str(noted)!r}, 'w').write(str(os.getpid()))\nwhile True: print('x' * 999)"
    script = tmp_path / "endless.py"
    script.write_text(code)
    with feeds.open(f"exec:{sys.executable} {script}") as feed:
        reader = Reader()
        feed(0).subscribe(reader)
        reader.subscription.request(1)
        reader.take(1)
        pid = int(noted.read_text())
        while b"pipe" not in Path(f"/proc/{pid}/wchan").read_bytes() and "S" not in state_of(pid):
            time.sleep(0.01)
        reader.subscription.cancel()
        while state_of(pid) not in ("gone", "Z"):
            time.sleep(0.01)


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # The second one if it goes while it is read.
        return "gone"


def test_a_command_that_is_none_is_told() -> None:
    with pytest.raises(BadFeed, match="there is no program 'no-such-program'"):
        feeds.open("exec:no-such-program --flag")
    with pytest.raises(BadFeed, match="exec: does not name a program; write exec:COMMAND"):
        feeds.open("exec:")
    with pytest.raises(BadFeed, match="unix: does not name a socket; write unix:PATH"):
        feeds.open("unix:")
    with pytest.raises(BadFeed, match="No closing quotation"):
        feeds.open("exec:echo 'half")
    with pytest.raises(BadFeed, match=r"restart='always' \(--restart\) is for programs and responses"):
        feeds.open("stdin", FeedOptions(restart="always"))


def test_a_unix_socket_whose_queue_is_full_is_not_taken_for_a_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "feed.sock")
    with ExitStack() as opened:
        server = opened.enter_context(socket.socket(socket.AF_UNIX))
        server.bind(path)
        server.listen(1)
        with suppress(BlockingIOError):
            while True:
                caller = opened.enter_context(socket.socket(socket.AF_UNIX))
                caller.setblocking(False)
                caller.connect(path)
        feed, reader = opened.enter_context(feeds.open(f"unix:{path}")), Reader()
        feed(0).subscribe(reader)
        opened.callback(reader.subscription.cancel)
        reader.subscription.request(2)
        wait_until(lambda: feed.state.status == "down", "the feed does not notice")
        assert "as many waiting callers as it allows" in (feed.state.reason or "")

        server.settimeout(PATIENCE)
        while reader.lines.empty():
            caller, _ = server.accept()
            with caller, suppress(ConnectionError):
                caller.sendall(b"one\n")
        assert reader.take(1) == [b"one"]
    assert "Invalid argument" not in caplog.text


def test_a_unix_socket_is_read_and_connected_to_again(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            for number in range(3):
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(b"line %d\nhalf" % number)

        thread = threading.Thread(target=serve)
        thread.start()
        with feeds.open(f"unix:{path}") as feed:
            assert list(feed.flux().take(3)) == [b"line 0", b"line 1", b"line 2"]
        thread.join(PATIENCE)


def test_a_program_that_is_killed_is_told_with_its_signal() -> None:
    with (
        feeds.open("exec:sh -c 'kill -9 $$'") as feed,
        pytest.raises(ProgramFailed, match=f"was ended by signal {int(signal.SIGKILL)}"),
    ):
        list(feed.flux())


def test_a_program_that_cannot_be_started_is_an_error_unless_it_is_to_be_started_again(
    tmp_path: Path,
) -> None:
    script = tmp_path / "script"
    script.write_text("no program")
    script.chmod(0o755)
    with (
        feeds.open(f"exec:{script}") as feed,
        pytest.raises(ProgramFailed, match="cannot be started: Exec format error"),
    ):
        feed.flux().collect_list().block(PATIENCE)


def test_half_a_line_of_a_program_that_was_killed_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    taken: list[bytes] = []
    with (
        feeds.open("exec:sh -c 'printf \"whole\\nhal\"; kill -9 $$'") as feed,
        pytest.raises(ProgramFailed, match="signal 9"),
    ):
        feed.flux().do_on_next(taken.append).collect_list().block(PATIENCE)
    assert taken == [b"whole"]
    assert "ended in the middle of a line; its 3 bytes are left out" in caplog.text


@pytest.mark.parametrize("end", ["exit 255", "sh -c 'kill -9 $$'"], ids=["as ssh does", "within a shell"])
def test_half_a_line_of_a_program_that_fails_is_left_out(
    end: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = tmp_path / "script"
    script.write_text(f'printf "whole\\nhal"; {end}\nexit $?\n')
    taken: list[bytes] = []
    with feeds.open(f"exec:sh {script}") as feed, pytest.raises(ProgramFailed, match="ended with status"):
        feed.flux().do_on_next(taken.append).collect_list().block(PATIENCE)
    assert taken == [b"whole"]
    assert "ended in the middle of a line; its 3 bytes are left out" in caplog.text


def test_the_last_line_of_a_program_that_succeeds_needs_no_newline() -> None:
    with feeds.open("exec:printf 'one\\ntwo'") as feed:
        assert list(feed.flux()) == [b"one", b"two"]


@pytest.mark.parametrize("leader", ["exit 0", "wait"])
def test_the_children_of_a_program_end_with_the_feed(leader: str) -> None:
    """The program is gone already, or goes at SIGTERM; its child ignores that and holds the pipe."""
    child = 'trap "" TERM; echo $$; while :; do sleep 1; done'
    with feeds.open(f"exec:sh -c '(exec sh -c \"$0\") & {leader}' '{child}'") as feed:
        reader = Reader()
        feed(0).subscribe(reader)
        reader.subscription.request(1)
        pid = int(reader.take(1)[0])
        reader.subscription.cancel()
        deadline = time.monotonic() + PATIENCE
        while state_of(pid) not in ("gone", "Z"):
            assert time.monotonic() < deadline, "the child of the program is still there"
            time.sleep(0.01)


def test_a_path_that_no_socket_can_have_is_told() -> None:
    with pytest.raises(BadFeed, match="at most 107 bytes"):
        feeds.open("unix:/tmp/" + "x" * 200)
