"""Ctrl-C while the command is still being imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

INTERRUPTED = """
import sys

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
from penstock.cli import main
sys.exit(main(["rules"]))
"""


@pytest.mark.parametrize("name", ["penstock.spec", "penstock.cli.tail", "penstock.cli.parser", "argparse"])
def test_it_ends_with_130_and_without_a_traceback(name: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(name=name)], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
