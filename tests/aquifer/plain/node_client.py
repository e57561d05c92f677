"""The client in another language: fetched once by npm, then run as a process of its own."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.node_packages import installed, node

PART = "The plain client in another language"
SOURCES = Path(__file__).with_name("node")
RUN_SECONDS = 120


def run_client(control: str, *options: str) -> dict[str, Any]:
    """Run the client against a gateway until it ends, and return what it saw."""
    home = installed(SOURCES, PART)
    # Node looks for packages beside the file that imports them.
    shutil.copy(SOURCES / "client.mjs", home)
    command = [node(PART), str(home / "client.mjs"), "--control", control, *options]
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
