"""A stream joined with a static table: each reading gets the name of the place where its sensor is."""

import tempfile

from penstock.spark import Pipeline, session
from penstock.streams import Flux


def main() -> None:
    spark = session(master="local[2]")
    places = spark.createDataFrame([(0, "roof"), (1, "cellar"), (2, "yard")], "sensor int, place string")
    folder = tempfile.mkdtemp()
    readings = Flux.range(3000).map(lambda n: {"sensor": n % 4, "celsius": 15.0 + n % 4})
    pipeline = (
        Pipeline(readings, schema="sensor int, celsius double")
        .through(lambda df: df.join(places, "sensor", "left"))
        .through(lambda df: df.selectExpr("coalesce(place, 'nowhere') AS place", "celsius"))
        .into("parquet", path=f"{folder}/tables")
    )
    with pipeline.start(spark=spark, checkpoint=f"{folder}/checkpoint") as running:
        running.wait()
    found = spark.read.parquet(f"{folder}/tables").groupBy("place").count().orderBy("place").collect()
    print({row["place"]: row["count"] for row in found})
    spark.stop()


if __name__ == "__main__":
    main()
