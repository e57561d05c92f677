"""Makes ``format("aquifer")`` known to Spark wherever Penstock is installed.

Spark imports all modules named ``pyspark_*`` and registers their ``DefaultSource``. If one of them fails to
import, Spark loses the data sources of all others. So without the extra ``spark``, or with a PySpark that
Penstock does not support, this module exports nothing, rather than failing.
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
