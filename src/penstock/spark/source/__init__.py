"""Reading: ``spark.readStream.format("aquifer")`` and ``spark.read.format("aquifer")``."""
