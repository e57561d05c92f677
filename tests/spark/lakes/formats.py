"""Delta and Iceberg: their jars for the installed Spark, and the settings of a session that has them.

No release of either is for Spark 4.3 so far, and none of Iceberg for 4.2. ``make test-spark41`` uses both.
"""

from __future__ import annotations

from pathlib import Path

from penstock.spark.versions import installed
from tests.maven_jars import ROOT, JarsUnavailable, fetched, pinned_in
from tests.required_tools import missing_part, require_tool

__all__ = ["CATALOG", "COMMITS", "formats", "settings"]

_HERE = Path(__file__).parent
_PART = "Delta and Iceberg"
_FORMATS = {(4, 0): ("delta", "iceberg"), (4, 1): ("delta", "iceberg"), (4, 2): ("delta",)}
_EXTENSIONS = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}
CATALOG = "lake"
"""The catalog of the Iceberg tables."""
COMMITS = {"delta": "_delta_log/*.json", "iceberg": "metadata/v*.metadata.json"}
"""The files of a table of which there is one more after each commit."""


def formats() -> tuple[str, ...]:
    """Those that there are for the installed Spark."""
    return _FORMATS.get(installed(), ())


def settings(warehouse: Path) -> dict[str, str]:
    """What a session needs; Iceberg's tables are in a folder."""
    return {
        "spark.jars": ",".join(map(str, _jars())),
        "spark.sql.extensions": ",".join(_EXTENSIONS[name] for name in formats()),
        # 50 tasks by default after each commit, for a handful of files.
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.type": "hadoop",
        f"spark.sql.catalog.{CATALOG}.warehouse": str(warehouse),
    }


def _jars() -> list[Path]:
    version = ".".join(map(str, installed()))
    pinned = pinned_in(_HERE / f"spark-{version}.sha256")
    library = ROOT / "build" / f"lakes-{version}"
    if not all((library / name).exists() for name in pinned):
        require_tool("mvn", part=_PART, install="apt-get install maven")
    try:
        return fetched(_HERE / f"spark-{version}.xml", pinned, library, "-DexcludeTransitive=true")
    except JarsUnavailable as problem:
        missing_part(_PART, str(problem))
