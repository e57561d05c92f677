"""Completion, as bash does it: the script is sourced, and bash is asked what fits."""

import subprocess
from pathlib import Path

import pytest

from tests.cli.running import PATIENCE, penstock
from tests.required_tools import require_tool


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    done = penstock("completion", "bash")
    assert (done.returncode, done.stderr) == (0, "")
    path = tmp_path_factory.mktemp("completion") / "penstock.bash"
    path.write_text(done.stdout)
    return path


def completed(script: Path, words: list[str], folder: Path) -> set[str]:
    """What bash offers for the last of these words."""
    quoted = " ".join(f"'{word}'" for word in words)
    code = f"""
        source {script}
        COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}
        COMP_LINE="${{COMP_WORDS[*]}}"; COMP_POINT=${{#COMP_LINE}}
        function_name=$(complete -p penstock | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        "$function_name" penstock "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}"
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, cwd=folder, timeout=PATIENCE)
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["penstock", "ga"], {"gateway"}),
        (["penstock", "do"], {"doctor"}),
        (["penstock", "gateway", "ver"], {"verify"}),
        (["penstock", "gateway", "status", "--wa"], {"--watch"}),
        (["penstock", "tail", "--dialect", "ex"], {"extended"}),
        (["penstock", "rules", "--lang", ""], {"en", "zh", "ko"}),
        (["penstock", "gateway", "verify", "rea"], {"readings.db"}),
        (["penstock", "run", "--checkpoint", "st"], {"state"}),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_bash_completes(script: Path, tmp_path: Path, words: list[str], offered: set[str]) -> None:
    require_tool("bash", part="completion in bash", install="apt-get install bash")
    (tmp_path / "readings.db").touch()
    (tmp_path / "state").mkdir()

    assert completed(script, words, tmp_path) == offered


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_the_other_shells_get_a_script_with_every_command(shell: str) -> None:
    done = penstock("completion", shell)

    assert done.returncode == 0
    for command in ("gateway", "doctor", "export", "completion"):
        assert command in done.stdout
