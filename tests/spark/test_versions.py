"""A PySpark that is not supported is told in one sentence, and does not take other formats along."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.sessions import unsupported


def beside(version: str, folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program with a PySpark of another version before the real one on the path."""
    package = folder / "pyspark"
    package.mkdir()
    (package / "__init__.py").write_text("from pyspark.version import __version__\n")
    (package / "version.py").write_text(f'__version__: str = "{version}"\n')
    program = f"import sys; sys.path.insert(0, {str(folder)!r})\n{program}"
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )


def test_the_installed_pyspark_is_supported() -> None:
    assert unsupported() is None


@pytest.mark.parametrize("version", ["3.5.4", "4.0.1", "4.2.0", "4.4.0.dev1", "5.0.0"])
def test_another_pyspark_is_refused_in_one_sentence_that_names_both_versions(
    version: str, tmp_path: Path
) -> None:
    ran = beside(version, tmp_path, "import penstock.spark")
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == (
        f"ImportError: penstock.spark works with PySpark 4.3, and PySpark {version} is installed: "
        "pip install 'penstock-streams[spark]' installs 4.3"
    )


def test_spark_finds_the_formats_of_others_beside_an_unsupported_version(tmp_path: Path) -> None:
    ran = beside("4.0.1", tmp_path, "import pyspark_penstock as p; print(hasattr(p, 'DefaultSource'))")
    assert ran.stdout == "False\n"
    assert "works with PySpark 4.3" in ran.stderr


def test_a_patch_release_of_the_supported_version_is_welcome(tmp_path: Path) -> None:
    ran = beside("4.3.7", tmp_path, "import penstock.spark; print('imported')")
    assert ran.stdout == "imported\n", ran.stderr
