"""Part two: a TCP server, a Flux of the lines that come in, and a gateway with a journal on the disk."""

from __future__ import annotations

import argparse

from penstock.aquifer import Gateway, SqliteJournal
from penstock.cli.gateway_sources import SourceOptions
from penstock.cli.network_sources import ListeningLines
from penstock.cli.showcase.sensors import BUFFER
from penstock.cli.showcase.telling import listen, tell

__all__ = ["main"]

_LOG = 60_000
"""Records that the journal holds: when Spark is so far behind, the sensors have to wait."""
_LONGEST = 4096


def main() -> None:
    """Serve until the director has heard enough."""
    parser = argparse.ArgumentParser()
    parser.add_argument("journal")
    arguments = parser.parse_args()
    over = listen(lambda word: None)
    source = ListeningLines("127.0.0.1", 0, SourceOptions(_LONGEST), buffer=BUFFER)
    journal = SqliteJournal(arguments.journal, max_records=_LOG)
    with Gateway(source, "tcp://127.0.0.1:0", journal=journal, prefetch=2048) as gateway:
        tell(endpoint=gateway.endpoint, port=source.port)
        while not over.wait(0.25):
            status = gateway.status()
            tell(
                asked=status["source"]["requested"] - status["source"]["received"],
                journalled=status["head"],
                held=status["head"] - status["floor"],
                capacity=_LOG,
            )
    source.close()


if __name__ == "__main__":
    main()
