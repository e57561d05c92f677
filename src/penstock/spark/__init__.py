"""The data pipeline on Spark: gateways as a source and a sink of Structured Streaming."""

from penstock.spark.registration import register
from penstock.spark.sessions import session

__all__ = ["register", "session"]
