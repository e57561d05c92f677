"""The client in another language: fetched once by npm, then run as a process of its own.

Everything lands in `build/node`, which `make clean` removes. npm fetches from wherever this machine is told
to, and what it brings has to match the hashes in `node/package-lock.json`. Its packages may not run scripts.
"""

import functools
import hashlib
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.required_tools import missing_part, require_tool

PART = "The plain client in another language"
SOURCES = Path(__file__).with_name("node")
STORE = Path(__file__).parents[3] / "build" / "node"
FETCH_SECONDS = 50
RUN_SECONDS = 40


def run_client(control: str, *options: str) -> dict[str, Any]:
    """Run the client against a gateway until it ends, and return what it saw."""
    command = [_node(), str(_installed() / "client.mjs"), "--control", control, *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    seen: dict[str, Any] = json.loads(result.stdout)
    return seen


def digest(records: list[bytes]) -> str:
    """What the client makes of these records: SHA-256 over each length and its record."""
    sha = hashlib.sha256()
    for record in records:
        sha.update(len(record).to_bytes(4, "big") + record)
    return sha.hexdigest()


def _node() -> str:
    return require_tool("node", part=PART, install="apt-get install nodejs")


@functools.cache
def _installed() -> Path:
    """The folder with the client and what it needs; skips, or fails, where that cannot be had."""
    lock = (SOURCES / "package-lock.json").read_bytes()
    home = STORE / hashlib.sha256(lock).hexdigest()[:12]
    if not (home / "node_modules").exists():
        npm = require_tool("npm", part=PART, install="apt-get install npm")
        STORE.mkdir(parents=True, exist_ok=True)
        # Complete, or not at all: filled elsewhere, then put in place.
        with tempfile.TemporaryDirectory(dir=STORE) as folder:
            filled = Path(folder, "filled")
            filled.mkdir()
            for name in ("package.json", "package-lock.json"):
                shutil.copy(SOURCES / name, filled)
            _fetch([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], filled)
            shutil.rmtree(home, ignore_errors=True)
            filled.rename(home)
    # Node looks for packages beside the file that imports them.
    shutil.copy(SOURCES / "client.mjs", home)
    return home


def _fetch(command: list[str], folder: Path) -> None:
    try:
        result = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        missing_part(PART, f"npm: {error}")
    if result.returncode != 0:
        missing_part(PART, f"npm failed: {result.stdout}{result.stderr}".strip())
