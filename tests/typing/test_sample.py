"""The sample program has no error under pyright, strict. `make lint` has mypy --strict read it as well."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.node_packages import installed, node
from tests.source.repository import ROOT

SAMPLE = Path(__file__).with_name("sample.py")
PACKAGES = Path(__file__).with_name("pyright")
PART = "The types under pyright"


def complaints(text: str, folder: Path) -> list[str]:
    """What pyright says of a program: its errors and warnings."""
    (folder / "program.py").write_text(text, "utf-8")
    settings = {
        "include": ["program.py"],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "extraPaths": [str(ROOT / "src")],
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    project = folder / "pyrightconfig.json"
    project.write_text(json.dumps(settings))
    program = installed(PACKAGES, PART) / "node_modules" / "pyright" / "index.js"
    command = [node(PART), str(program), "--outputjson", "--project", str(project)]
    result = subprocess.run(
        [*command, "--pythonpath", sys.executable], capture_output=True, text=True, check=False
    )
    found = json.loads(result.stdout)
    assert found["summary"]["filesAnalyzed"] == 1, result.stdout
    return [
        f"{each['range']['start']['line'] + 1}: {each['message']}" for each in found["generalDiagnostics"]
    ]


@pytest.mark.slow
def test_pyright_has_nothing_to_say(tmp_path: Path) -> None:
    assert "\n".join(complaints(SAMPLE.read_text("utf-8"), tmp_path)) == ""


@pytest.mark.slow
def test_pyright_notices_a_wrong_type(tmp_path: Path) -> None:
    right, wrong = "assert_type(await flux.count(), int)", "assert_type(await flux.count(), int | None)"
    text = SAMPLE.read_text("utf-8")
    assert right in text

    assert len(complaints(text.replace(right, wrong), tmp_path)) == 1
