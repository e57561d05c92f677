"""Arrow record batches through a gateway: a batch goes over the wire as it is, and each row has an offset.

A reader that requests Arrow receives batches without a copy, and may start in the middle of one. A reader of
single records, or of the plain dialect, receives a JSON object for each row of the same log.
"""

import pyarrow

from penstock.aquifer import AquiferPublisher, Gateway
from penstock.streams import Flux


def batch(day: int) -> pyarrow.RecordBatch:
    """Make a thousand measurements."""
    rows = range(day * 1000, day * 1000 + 1000)
    return pyarrow.record_batch({"day": [day] * 1000, "reading": list(rows)})


def main() -> None:
    days = Flux.range(5).map(batch)
    with Gateway(days, "tcp://127.0.0.1:0", codec="arrow") as gateway:
        batches = list(AquiferPublisher(gateway.endpoint, codec="arrow").flux())
        table = pyarrow.Table.from_batches(batches)
        print(f"{table.num_rows} rows in {len(batches)} batches, {table.schema.names}")

        late = AquiferPublisher(gateway.endpoint, codec="arrow", start=1250, stop=3500).flux()
        print("rows from offset 1250 up to 3500:", [part.num_rows for part in late])

        rows = AquiferPublisher(gateway.endpoint, codec="json", start=4998).flux()
        print("the last rows one by one:", list(rows))


if __name__ == "__main__":
    main()
