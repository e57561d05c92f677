"""Spark looks for modules named ``pyspark_*`` and takes the data source that they call ``DefaultSource``.

This is ours: where Penstock is installed, ``spark.readStream.format("aquifer")`` works without a line of
code. Spark imports every such module, and one that fails hides all the others. So a Penstock without the
extra ``spark``, or beside a PySpark that it does not support, offers nothing, rather than failing.
"""

import logging
from importlib.util import find_spec

if all(find_spec(needed) is not None for needed in ("zmq", "msgspec", "pyarrow")):
    try:
        from penstock.spark.data_source import AquiferDataSource as DefaultSource
    except ImportError as error:
        logging.getLogger("penstock.spark").warning('format("aquifer") is not available: %s', error)
    else:
        __all__ = ["DefaultSource"]
