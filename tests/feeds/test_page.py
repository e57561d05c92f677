"""The page about feeds: its feed of your own passes its test."""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "feeds.md"


def test_the_feed_of_your_own_passes_its_test(tmp_path: Path) -> None:
    page = PAGE.read_text("utf-8").partition("## A feed of your own")[2]
    for fence, name in (("python", "countdown.py"), ("py", "test_countdown.py")):
        found = re.search(rf"```{fence}\n(.*?)```", page, re.DOTALL)
        assert found is not None
        (tmp_path / name).write_text(found[1], "utf-8")
    path = os.pathsep.join([str(tmp_path), *(each for each in sys.path if each)])

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_countdown.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr
