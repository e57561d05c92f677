"""The format ``aquifer``, as Spark sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from penstock.spark.errors import BadOption, BadSchema
from penstock.spark.options import SinkOptions, SourceOptions
from penstock.spark.source.columns import default_schema
from penstock.spark.versions import has_admission_control

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["AquiferDataSource"]


class AquiferDataSource(DataSource):
    """Makes the readers and writers of the format; Spark creates it with the options of a query."""

    @classmethod
    def name(cls) -> str:
        """The name to use in ``format("…")``."""
        return "aquifer"

    def schema(self) -> StructType | str:
        """The columns if the user does not give a schema."""
        options = SourceOptions.of(self.options)
        if options.value in ("avro", "protobuf"):
            from penstock.spark.source.schema_records import schema_of

            return schema_of(options.value, options.value_schema, include_metadata=options.include_metadata)
        if options.infer_schema and options.value not in ("binary", "string"):
            from penstock.spark.source.inference import inferred_schema

            return inferred_schema(options)
        return default_schema(options.value)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        from penstock.spark.source.batch_reader import AquiferBatchReader, FilteringBatchReader
        from penstock.spark.spark_interface import accept_all_times, pushes_filters

        if not pushes_filters():
            return AquiferBatchReader(schema, self._source(schema))
        accept_all_times()
        return FilteringBatchReader(schema, self._source(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For ``spark.readStream``."""
        from penstock.spark.source.readers import AquiferStreamReader, RefusedStreamReader
        from penstock.spark.source.self_paced import RefusedSelfPacedReader, SelfPacedStreamReader

        told = has_admission_control()
        try:
            options = self._source(schema)
            if options.ending != "latest":
                raise BadOption("endingOffsets", options.ending, "a stream does not end; use spark.read")
            if options.infer_schema:
                remedy = (
                    "a stream needs columns that stay the same: infer them with spark.read, and give them"
                )
                raise BadOption("inferSchema", "true", f"{remedy} to spark.readStream with .schema(…)")
            if options.ending_at is not None:
                given = self.options.get("endingTimestamp")
                raise BadOption("endingTimestamp", given, "a stream does not end; use spark.read")
        except (BadOption, BadSchema) as error:
            return RefusedStreamReader(error) if told else RefusedSelfPacedReader(error)
        return AquiferStreamReader(schema, options) if told else SelfPacedStreamReader(schema, options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For ``df.write``."""
        from penstock.spark.sink.writers import AquiferBatchWriter

        self._refuse_overwriting(overwrite)
        return AquiferBatchWriter(schema, SinkOptions.of(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For ``writeStream``."""
        from penstock.spark.sink.writers import AquiferStreamWriter

        self._refuse_overwriting(overwrite)
        return AquiferStreamWriter(schema, SinkOptions.of(self.options))

    @staticmethod
    def _refuse_overwriting(overwrite: bool) -> None:
        if overwrite:
            raise ValueError(
                "a gateway cannot overwrite records: use mode append. For a stream with outputMode complete "
                "or update, use foreachBatch, and in it df.write with the options writerId and batchId"
            )

    def _source(self, schema: StructType) -> SourceOptions:
        from penstock.spark.source.columns import columns_of

        options = SourceOptions.of(self.options)
        columns_of(schema, options)  # Raises here, rather than in a task, if the schema does not fit.
        return options
