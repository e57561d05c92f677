"""A standalone master with two workers whose Python does not have the package: it is shipped to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.spark import Pipeline, package_zip
from tests.spark.cluster import Cluster, bare_python, cluster
from tests.spark.sinking import log_of

if TYPE_CHECKING:
    from tests.spark.conftest import Serve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

RECORDS = 4000
DRIVER = Path(__file__).with_name("cluster_driver.py")
ROOT = Path(__file__).parents[2]
NEEDED = "import pyarrow, zmq, msgspec, pyspark; "


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster"), workers=2) as started:
        yield started


def test_the_archive_has_all_of_the_package(tmp_path: Path) -> None:
    python = bare_python(tmp_path / "image")
    archive, same = package_zip(tmp_path / "archives"), package_zip(tmp_path / "again")
    modules = "import penstock.spark.sink.writers, penstock.spark.source.readers, pyspark_penstock as p; "

    without = ran(python, NEEDED + "import penstock")
    found = ran(python, NEEDED + modules + "print(p.DefaultSource.name(), p.__file__)", str(archive))

    assert "No module named 'penstock'" in without.stderr, "this Python would not show anything"
    assert found.stdout.split() == ["aquifer", f"{archive}/pyspark_penstock/__init__.pyc"], found.stderr
    assert archive.name.startswith("penstock-")
    assert (same.name, same.read_bytes()) == (archive.name, archive.read_bytes())


def test_another_version_of_python_compiles_what_is_in_the_archive(tmp_path: Path) -> None:
    archive, for_another = package_zip(tmp_path), tmp_path / "other.zip"
    with zipfile.ZipFile(archive) as ours, zipfile.ZipFile(for_another, "w") as theirs:
        for name in ours.namelist():
            data = ours.read(name)
            theirs.writestr(name, b"\0" * 4 + data[4:] if name.endswith(".pyc") else data)
    where = "import penstock.options as o; print(o.__file__, o.option.__code__.co_filename)"

    ours_is, theirs_is = (ran(Path(sys.executable), where, str(path)) for path in (archive, for_another))

    assert ours_is.stdout.split() == [f"{archive}/penstock/options.pyc", "penstock/options.py"]
    assert theirs_is.stdout.split() == [f"{for_another}/penstock/options.py"] * 2


def ran(python: Path, code: str, places: str = "") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": places}
    return subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=False, env=environment, timeout=120
    )


@pytest.mark.parametrize("host", ["*", "0.0.0.0", "::", "", "no name"])
def test_a_host_that_executors_cannot_connect_to_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match=r"host|no endpoint"):
        Pipeline("tcp://127.0.0.1:5556", host=host)


@pytest.mark.rare(50)
def test_executors_run_the_package_that_was_shipped_to_them(
    two_workers: Cluster, serve: Serve, tmp_path: Path
) -> None:
    source = serve([{"n": number} for number in range(RECORDS)], codec="json")
    sink = serve(None, writable=True)
    driver = subprocess.run(
        [sys.executable, DRIVER, two_workers.master, source.endpoint, sink.endpoint, tmp_path],
        # What Spark starts beside the driver is the Python of the cluster, too.
        env=os.environ | {"PYSPARK_PYTHON": str(two_workers.python), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert driver.returncode == 0, driver.stderr[-5000:]
    found = json.loads(driver.stdout.splitlines()[-1])

    read = Counter[Path]()
    for file, records in found["placed"]:
        read[Path(file)] += records
    assert sum(read.values()) == RECORDS
    for worker in two_workers.workers:
        files = [file for file in read if file.is_relative_to(worker.place)]
        assert len(files) == 1, f"{worker.place.name} took no part: {read}"
        assert files[0].parts[-3].endswith(".zip")
    written = sorted((row["n"], row["doubled"]) for row in log_of(sink))
    assert written == [(number, 2 * number) for number in range(RECORDS)]
    assert "host=" in found["refused"]
    assert found["through"] == list(range(200))
