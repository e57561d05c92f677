"""Writing: ``df.writeStream.format("aquifer")`` and ``df.write.format("aquifer")``."""
