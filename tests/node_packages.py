"""Programs for node that tests run: fetched once by npm into `build/node`, which `make clean` removes.

npm fetches from wherever this machine is told to, and what it brings has to match the hashes in the
`package-lock.json` beside the `package.json`. Its packages may not run scripts.
"""

import functools
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.required_tools import missing_part, require_tool

STORE = Path(__file__).parents[1] / "build" / "node"
FETCH_SECONDS = 150


def node(part: str) -> str:
    """The path of node; skips, or fails, where it cannot be had."""
    return require_tool("node", part=part, install="apt-get install nodejs")


@functools.cache
def installed(sources: Path, part: str) -> Path:
    """A folder with the packages that ``sources`` locks; skips, or fails, where they cannot be had."""
    lock = (sources / "package-lock.json").read_bytes()
    home = STORE / hashlib.sha256(lock).hexdigest()[:12]
    if not (home / "node_modules").exists():
        npm = require_tool("npm", part=part, install="apt-get install npm")
        STORE.mkdir(parents=True, exist_ok=True)
        # Complete, or not at all: filled elsewhere, then put in place.
        with tempfile.TemporaryDirectory(dir=STORE) as folder:
            filled = Path(folder, "filled")
            filled.mkdir()
            for name in ("package.json", "package-lock.json"):
                shutil.copy(sources / name, filled)
            _fetch([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], filled, part)
            shutil.rmtree(home, ignore_errors=True)
            filled.rename(home)
    return home


def _fetch(command: list[str], folder: Path, part: str) -> None:
    try:
        result = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        missing_part(part, f"npm: {error}")
    if result.returncode != 0:
        missing_part(part, f"npm failed: {result.stdout}{result.stderr}".strip())
