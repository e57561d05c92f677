"""One source, a gateway, and two readers, each at its own pace: the slow one holds the source back.

The gateway's journal has space for 200 records. Both readers are required, so when the slow one is a full
journal behind, the gateway requests nothing from the source until it has caught up. The readers can run
anywhere, here on two threads, elsewhere on two machines: all they need is the endpoint.
"""

import threading
import time
from collections.abc import Iterator

from penstock.aquifer import AquiferPublisher, Gateway, MemoryJournal
from penstock.streams import Flux

RECORDS = 2000
HELD = 200
AHEAD = 16

everybody_is_here = threading.Event()
taken: dict[str, list[int]] = {"fast": [], "slow": []}
lead = 0


def readings() -> Iterator[int]:
    """Make readings as fast as they are requested."""
    global lead
    everybody_is_here.wait()
    for number in range(RECORDS):
        lead = max(lead, number + 1 - len(taken["slow"]))
        yield number


def read(endpoint: str, name: str, pause: float) -> None:
    stream = AquiferPublisher(endpoint, codec="json").flux()
    for number in stream.to_iterable(prefetch=AHEAD):
        taken[name].append(number)
        time.sleep(pause)


def main() -> None:
    journal = MemoryJournal(max_records=HELD)
    source = Flux.from_iterable(readings())
    with Gateway(source, "tcp://127.0.0.1:0", journal=journal, codec="json") as gateway:
        readers = [
            threading.Thread(target=read, args=(gateway.endpoint, "fast", 0)),
            threading.Thread(target=read, args=(gateway.endpoint, "slow", 0.0005)),
        ]
        for reader in readers:
            reader.start()
        while len(gateway.status()["subscribers"]) < len(readers):
            time.sleep(0.01)
        everybody_is_here.set()
        for reader in readers:
            reader.join()

    for name, numbers in taken.items():
        print(f"{name}: {len(numbers)} records, all in order: {numbers == list(range(RECORDS))}")
    # The journal, what the slow reader has read ahead, and the record that it works on.
    print(f"never more than {HELD + AHEAD + 1} ahead of the slow one: {lead <= HELD + AHEAD + 1}")


if __name__ == "__main__":
    main()
