"""Hadoop's local file system, for a session on one machine: without checksums, and without processes.

For each batch, Spark writes at least two files to the checkpoint, and one more for each partition of a state.
Hadoop sets the permissions of each of them. Without its native library, which the packages of PySpark do not
have, it starts the program ``chmod`` for that: a process for each file. Java has been able to set permissions
by itself for a long time. So the session gets a file system whose only difference is that it does.

The class is written in Java. Spark brings a compiler with it, for the code that it generates.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["leave_out_checksums", "set_permissions_in_process"]

_log = logging.getLogger("penstock.spark")

_DEFAULT: Final = "org.apache.hadoop.fs.LocalFileSystem"
_NAME: Final = "PenstockLocalFiles"
_PLACE: Final = "file:///"
_SOURCE: Final = f"""
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class {_NAME} extends LocalFileSystem {{
    public {_NAME}() {{
        super(new Raw());
    }}

    public static class Raw extends RawLocalFileSystem {{
        public void setPermission(Path path, FsPermission wanted) throws IOException {{
            if (wanted.getStickyBit()) {{
                super.setPermission(path, wanted);
                return;
            }}
            String text = wanted.getUserAction().SYMBOL + wanted.getGroupAction().SYMBOL
                + wanted.getOtherAction().SYMBOL;
            Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(text));
        }}
    }}
}}
"""


def leave_out_checksums(spark: SparkSession) -> None:
    """Make Hadoop's local file system, one object for the whole Java process, write no checksums.

    Hadoop's raw file system has none, but RocksDB, which stateful functions need, does not work with it.
    """
    _local(spark).setWriteChecksum(False)


def set_permissions_in_process(spark: SparkSession) -> None:
    """Replace Hadoop's local file system with one that starts no processes; the old one stays if that fails.

    Hadoop keeps one object for all that use local files, and makes it when it is first asked for one. It is
    dropped here, and made again from the other class.
    """
    context = spark.sparkContext
    assert context._jvm is not None, "a session that was started here has a JVM"
    jvm: Any = context._jvm
    if _local(spark).getClass().getName() != _DEFAULT:
        return  # It is replaced already, or the user has chosen another one with `fs.file.impl`.
    try:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
        compiler.cook(_SOURCE)
        loader = compiler.getClassLoader()
        chosen = jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())
        chosen.setClassLoader(loader)
        chosen.set("fs.file.impl", _NAME)
        jvm.org.apache.hadoop.util.ReflectionUtils.newInstance(loader.loadClass(_NAME), chosen)  # A trial.
    except Exception as error:  # None of this is part of Spark's public interface.
        _log.info("Hadoop starts a process for each file of a checkpoint: %s", error)
        return
    _local(spark).close()
    jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI(_PLACE), chosen)


def _local(spark: SparkSession) -> Any:
    context = spark.sparkContext
    assert context._jvm is not None, "a session that was started here has a JVM"
    jvm: Any = context._jvm
    place = jvm.java.net.URI(_PLACE)
    return jvm.org.apache.hadoop.fs.FileSystem.get(place, context._jsc.hadoopConfiguration())
