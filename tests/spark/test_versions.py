"""A PySpark that is not supported is told in one sentence, and does not take other formats along."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.versions import unsupported


def beside(version: str, folder: Path, program: str, quote: str = "'") -> subprocess.CompletedProcess[str]:
    """Run a program with a PySpark of another version before the real one on the path."""
    package = folder / "pyspark"
    package.mkdir()
    (package / "__init__.py").write_text("from pyspark.version import __version__\n")
    (package / "version.py").write_text(f"__version__: str = {quote}{version}{quote}\n")
    program = f"import sys; sys.path.insert(0, {str(folder)!r})\n{program}"
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )


def test_the_installed_pyspark_is_supported() -> None:
    assert unsupported() is None


@pytest.mark.parametrize("version", ["3.5.4", "4.4.0.dev1", "5.0.0"])
def test_another_pyspark_is_refused_in_one_sentence_that_names_both_versions(
    version: str, tmp_path: Path
) -> None:
    ran = beside(version, tmp_path, "import penstock.spark")
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith(
        f"ImportError: penstock.spark works with PySpark 4.0 to 4.3, and PySpark {version} is installed, "
    )


def test_the_sentence_says_why_an_old_version_is_too_old_and_what_to_install(tmp_path: Path) -> None:
    said = beside("3.5.4", tmp_path, "import penstock.spark").stderr.splitlines()[-1]
    assert said.endswith(
        "which has no streaming data sources in Python: pip install 'penstock-streams[spark]' installs a "
        "newer one"
    )


def test_the_sentence_says_what_to_do_about_a_version_that_came_later(tmp_path: Path) -> None:
    said = beside("4.4.0", tmp_path, "import penstock.spark").stderr.splitlines()[-1]
    assert said.endswith(
        "for which it has not been tested: pip install 'pyspark<4.4', or a newer penstock-streams"
    )


@pytest.mark.parametrize("command", ["run app.py", "demo --duration 1"])
def test_a_command_tells_it_in_one_sentence(command: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("from penstock.spark import Pipeline\n")
    arguments = [str(tmp_path / word) if word == "app.py" else word for word in command.split()]
    ran = beside("3.5.4", tmp_path, f"from penstock.cli import main; sys.exit(main({arguments!r}))")

    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.count("\n") == 1, ran.stderr
    assert "works with PySpark 4.0 to 4.3, and PySpark 3.5.4 is installed" in ran.stderr


def test_spark_finds_the_formats_of_others_beside_an_unsupported_version(tmp_path: Path) -> None:
    ran = beside("3.5.4", tmp_path, "import pyspark_penstock as p; print(hasattr(p, 'DefaultSource'))")
    assert ran.stdout == "False\n"
    assert "works with PySpark 4.0 to 4.3" in ran.stderr


@pytest.mark.parametrize("version", ["4.0.0", "4.1.9", "4.2.0", "4.3.7"])
@pytest.mark.parametrize("quote", ["'", '"'])
def test_every_release_of_a_supported_version_is_welcome(version: str, quote: str, tmp_path: Path) -> None:
    ran = beside(version, tmp_path, "import penstock.spark; print('imported')", quote)
    assert ran.stdout == "imported\n", ran.stderr
