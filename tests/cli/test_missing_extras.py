"""What is said where an extra is not installed: one sentence, with the command that installs it.

Here a real environment without any of them runs the commands: the core, and nothing beside it.
"""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.cli.running import PATIENCE

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the core of this package and no other."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True, with_pip=False)
    scheme = {"base": str(folder), "platbase": str(folder)}
    Path(sysconfig.get_path("purelib", "venv", scheme), "core.pth").write_text(f"{SOURCE}\n")
    return folder / "bin" / "python"


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={"PATH": ""},
    )


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("gateway --source stdin", "aquifer"),
        ("gateway --source https://localhost/", "aquifer"),
        ("gateway --keygen x", "aquifer"),
        ("gateway status tcp://127.0.0.1:1", "aquifer"),
        ("tail tcp://127.0.0.1:1", "aquifer"),
        ("run app.py", "spark"),
        ("demo", "spark"),
        ("echo --secure --port 0", "net"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(bare: Path, command: str, extra: str) -> None:
    done = run(bare, "-m", "penstock.cli", *command.split())

    assert done.returncode == 1
    assert done.stderr.startswith("penstock ")
    assert f"pip install 'penstock-streams[{extra}]'" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("import penstock.spark", "spark"),
        ("import penstock.aquifer", "aquifer"),
        ("import penstock.interop.reactivex_bridge", "interop"),
        ("import penstock.interop.rsocket_bridge", "interop"),
        ("import penstock.interop.jvm", "jvm"),
        ("from penstock.net import http; http.get('https://localhost/').receive().block_last()", "http"),
    ],
)
def test_an_import_names_the_extra_that_it_needs(bare: Path, code: str, extra: str) -> None:
    done = run(bare, "-c", code)

    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert f"pip install 'penstock-streams[{extra}]'" in last


def test_a_page_of_a_gateway_names_the_extra_of_the_client(bare: Path, tmp_path: Path) -> None:
    """With gateways installed, and the HTTP client not."""
    hide = "import sys; sys.modules['httpx2'] = None; from penstock.cli import main; "
    page = "['gateway', '--source', 'https://localhost/', '--control', 'tcp://127.0.0.1:0']"
    done = run(Path(sys.executable), "-c", f"{hide} raise SystemExit(main({page}))")

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "penstock gateway: the HTTP client needs httpx2: pip install 'penstock-streams[http]'"
    )


def test_a_file_is_sent_over_tcp_without_any_extra(bare: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"some bytes")
    server = subprocess.Popen(
        [str(bare), "-m", "penstock.cli", "echo", "--port", "0"], stderr=subprocess.PIPE, text=True
    )
    with server:
        try:
            assert server.stderr is not None
            address = server.stderr.readline().split()[2].rstrip(";")
            sent = run(
                bare, "-m", "penstock.cli", "send", str(file), f"tcp://{address.removeprefix('tcp://')}"
            )
        finally:
            server.terminate()

    assert (sent.returncode, sent.stderr.startswith("10 bytes were sent")) == (0, True)


@pytest.mark.parametrize(
    "command", [["rules", "3.9"], ["--version"], ["demo", "--only-streams", "--duration", "1"]]
)
def test_the_core_alone_is_enough_for_the_rest(bare: Path, command: list[str]) -> None:
    done = run(bare, "-m", "penstock.cli", *command)

    assert (done.returncode, done.stderr) == (0, "")
