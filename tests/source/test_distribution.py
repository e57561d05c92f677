"""What is published: the name to install, the metadata, and a source archive that can test itself."""

from __future__ import annotations

import email
import email.message
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.source.repository import ROOT, texts

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
INSTALLED = re.compile(r"pip install[^\n`]*?\bpenstock\b(?!-streams)(?!_)|(?<![\w.-])penstock\\?\[\w")
EXTRAS = re.compile(r"penstock-streams\\?\[([\w, ]+)\\?\]")
LINK = re.compile(r"\]\((?![a-z]+:|#)")


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source archive and the wheel, built with the pinned backend."""
    folder = tmp_path_factory.mktemp("dist")
    build = (
        "import sys; from hatchling import build; folder = sys.argv[1]; "
        "print(build.build_sdist(folder), build.build_wheel(folder))"
    )
    command = [sys.executable, "-c", build, str(folder)]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return folder / names[-2], folder / names[-1]


@pytest.fixture(scope="module")
def metadata(archives: tuple[Path, Path]) -> email.message.Message:
    with zipfile.ZipFile(archives[1]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(wheel.read(name))


def test_every_install_line_names_our_distribution() -> None:
    wrong = [
        f"{path}:{text.count(chr(10), 0, found.start()) + 1}: {found[0]}"
        for path, text in texts()
        if path != Path(__file__).relative_to(ROOT)
        for found in INSTALLED.finditer(text)
    ]

    assert "\n".join(wrong) == "", "the name `penstock` on the package index is another project's"


def test_every_extra_in_a_page_or_a_message_exists() -> None:
    named = {
        extra.strip()
        for _, text in texts()
        for found in EXTRAS.finditer(text)
        for extra in found[1].split(",")
        if not extra.isupper()
    }

    assert named <= set(PROJECT["optional-dependencies"])


def test_the_metadata_is_complete_and_has_no_invented_address(metadata: email.message.Message) -> None:
    classifiers = metadata.get_all("Classifier") or []

    assert metadata["Name"] == "penstock-streams"
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13, 14)} <= set(classifiers)
    assert any(classifier.startswith("Operating System :: POSIX") for classifier in classifiers)
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_all("Project-URL") is None
    assert metadata["Author-email"] is None


def test_the_published_description_has_no_link_into_the_repository(metadata: email.message.Message) -> None:
    description = metadata.get_payload()

    assert isinstance(description, str)
    assert "# Penstock" in description
    assert LINK.search(description) is None
    assert "(`docs/aquifer.md`)" in description


def test_the_source_archive_has_what_the_readme_points_to(archives: tuple[Path, Path]) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    named = {found.rstrip("/") for found in re.findall(r"\]\((?![a-z]+:|#)([^)#]+)", readme)}
    with tarfile.open(archives[0]) as archive:
        inside = [name.partition("/")[2] for name in archive.getnames()]

    missing = [path for path in named if not any(f"{name}/".startswith(f"{path}/") for name in inside)]

    assert missing == []


def test_the_wheel_has_every_file_of_the_dashboard(archives: tuple[Path, Path]) -> None:
    folder = ROOT / "src/penstock/observe/dashboard/page"
    needed = {str(path.relative_to(ROOT / "src")) for path in folder.rglob("*") if path.is_file()}
    with zipfile.ZipFile(archives[1]) as wheel:
        inside = set(wheel.namelist())

    assert "penstock/observe/dashboard/page/uplot/LICENSE" in needed
    assert needed - inside == set()


@pytest.mark.rare(50)
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tests_of_the_source_archive_can_be_collected(
    archives: tuple[Path, Path], tmp_path: Path
) -> None:
    with tarfile.open(archives[0]) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()

    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider"]
    result = subprocess.run(command, cwd=unpacked, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
