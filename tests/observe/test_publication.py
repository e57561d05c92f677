"""The folder with the sockets of processes that show their streams: it may be missing, or somebody else's."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.aquifer import Gateway
from penstock.cli import main
from penstock.observe import NotPublished, Observer, publication, publish
from penstock.observe.publication import look_at_process, published_processes
from penstock.streams import Flux


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the folder is looked for: not in pytest's own directory, for the path of a socket is bounded."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as made:
        monkeypatch.setenv("XDG_RUNTIME_DIR", made)
        monkeypatch.setattr(publication, "_told", False)
        yield Path(made)


def folder_in(base: Path) -> Path:
    return base / f"penstock-{os.getuid()}-observe"


def plant_link(base: Path) -> None:
    (base / "elsewhere").mkdir()
    folder_in(base).symlink_to(base / "elsewhere")


def plant_open(base: Path) -> None:
    folder_in(base).mkdir()
    folder_in(base).chmod(0o777)


def plant_file(base: Path) -> None:
    folder_in(base).write_text("")


PLANTS = pytest.mark.parametrize("plant", [plant_link, plant_open, plant_file])


@PLANTS
def test_a_gateway_is_observed_although_the_folder_is_not_ours(
    base: Path, plant: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    plant(base)
    with Gateway(Flux.range(3), "tcp://127.0.0.1:0", codec="json") as gateway:
        observer = Observer(gateway.endpoint)
        assert observer.look().hops
        assert observer.look().hops
    told = [each.message for each in caplog.records if "XDG_RUNTIME_DIR" in each.message]
    assert len(told) == 1


@PLANTS
def test_why_says_that_the_folder_is_not_ours(
    base: Path, plant: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    plant(base)
    assert main(["why", str(os.getppid())]) == 1
    assert f"{folder_in(base)} belongs to another user" in capsys.readouterr().err


@PLANTS
def test_a_program_runs_although_it_cannot_be_looked_at(base: Path, plant: Callable[[Path], None]) -> None:
    plant(base)
    ran = subprocess.run(
        [sys.executable, "-c", "import penstock; print(list(penstock.Flux.range(3)))"],
        env={**os.environ, "PENSTOCK_OBSERVE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "[0, 1, 2]\n"
    assert "RuntimeWarning: the streams of this process are not shown" in ran.stderr


def test_looking_makes_no_folder(base: Path) -> None:
    assert published_processes(16) == []
    with pytest.raises(NotPublished, match="does not show its streams"):
        look_at_process(os.getppid())
    assert list(base.iterdir()) == []


def test_sockets_of_killed_processes_are_removed(base: Path) -> None:
    folder_in(base).mkdir(mode=0o700)
    with subprocess.Popen(["true"]) as ended:
        pass
    for pid in (ended.pid, os.getppid()):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(folder_in(base) / f"{pid}.sock"))
    assert published_processes(16) == [os.getppid()]
    assert [each.name for each in folder_in(base).iterdir()] == [f"{os.getppid()}.sock"]


def test_a_process_that_is_not_there_is_named(base: Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    with pytest.raises(NotPublished, match=f"there is no process {ended.pid}; check the number"):
        look_at_process(ended.pid)
    with pytest.raises(NotPublished, match=r"there is no process 9{30}"):
        look_at_process(int("9" * 30))


def test_an_answer_that_is_cut_short_is_not_a_wrong_command_line(base: Path) -> None:
    folder_in(base).mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as half_dead:
        half_dead.bind(str(folder_in(base) / f"{os.getppid()}.sock"))
        half_dead.listen()
        command = [sys.executable, "-m", "penstock.cli", "why", str(os.getppid())]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as asking:
            asker, _ = half_dead.accept()
            with asker:
                asker.sendall(b'{"at":')
            _, told = asking.communicate()
    assert asking.returncode == 1
    assert "has ended while it answered" in told


def test_a_publication_is_closed_after_use(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "_publication", None)
    published = publish()
    try:
        assert published.path.parent == folder_in(base)
        assert look_at_process(os.getpid()).hops == ()
    finally:
        published.close()
    assert list(folder_in(base).iterdir()) == []
