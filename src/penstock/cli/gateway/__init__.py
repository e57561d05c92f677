"""``penstock gateway``: put a source behind a log, and serve it to any number of subscribers.

:mod:`penstock.cli.gateway.server` runs a gateway; :mod:`penstock.cli.gateway.status`,
:mod:`penstock.cli.gateway.admin` and :mod:`penstock.cli.gateway.records` ask one that runs,
:mod:`penstock.cli.gateway.replays` puts dead letters back, and :mod:`penstock.cli.gateway.journals` looks
after the file of one that does not run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.cli.gateway import admin, journals, records, replays, status
from penstock.cli.parser import Commands, add_command

if TYPE_CHECKING:
    from penstock.cli.gateway.server import GatewayCommandOptions

__all__ = ["add_parser"]

_DESCRIPTION = """\
Read lines, store them in a bounded log, and serve them to any number of subscribers, each at its own pace.
When the log is full of records that a required reader still needs, the source pauses: nothing is dropped.

With a journal in a file, records survive the process. A restart with the same journal appends to it. A file
(--source file:PATH) is read on after the last line that the journal has, so that each line becomes a record
exactly once, even after a crash. Standard input and a TCP server cannot be read again: what they send after
the restart is appended. A sender that connects to tcp-listen://HOST:PORT?acknowledge is told how many lines
are in the journal, and can continue there: `penstock send --acknowledged` does.

After the end of its source, the gateway exits once every required reader is done; --stay keeps it serving.
"""

_EXAMPLES = """\
examples:
  journalctl -f | penstock gateway --source stdin
                                     serve a log at tcp://127.0.0.1:5556; read it with `penstock tail`
  penstock gateway --source file:readings.txt --journal readings.db
                                     kill it, start it again: every line is served exactly once
  penstock gateway --source file:app.log --follow --journal app.db
                                     a log file that is still being written, also across rotation
  penstock gateway --source kafka://127.0.0.1:9092/readings --journal readings.db
                                     a Kafka topic, each record exactly once
  penstock gateway --source file:app.log --journal kafka://127.0.0.1:9092/app-log
                                     the log is a Kafka topic: start the gateway on another machine, and it
                                     continues there
  penstock gateway --source file:app.log --journal app.db --compress zstd
                                     JSON and other text take a fraction of the space and of the network
  penstock gateway --source tcp://feed.example:9000 --max-bytes 256M --max-age 1h --journal feed.db
                                     lines from a server, which waits while the log is full
  penstock gateway --source udp://127.0.0.1:5140 --codec json
                                     JSON in datagrams; what is not JSON is counted and left out
  penstock gateway --source file:app.jsonl --follow --codec json --on-bad-line dead-letter --journal app.db
                                     what is not JSON is in the stream dead-letters: penstock tail
                                     tcp://127.0.0.1:5556/dead-letters. It is there without the option, too;
                                     with it, `replay` can put it back
  penstock gateway --source 'tcp-listen://127.0.0.1:9000?acknowledge' --journal in.db
                                     with `penstock send --acknowledged FILE tcp://127.0.0.1:9000` elsewhere:
                                     kill either, start it again, and every line is there once
  penstock gateway --source writers --control tcp://127.0.0.1:5557 --journal out.db
                                     for the results of a Spark query: penstock run, .into("tcp://…:5557")
  penstock gateway --stream orders=tcp-listen://127.0.0.1:9000 --stream clicks=stdin --journal logs/
                                     two streams, each with a log of its own: penstock tail
                                     tcp://127.0.0.1:5556/clicks reads the second
  penstock gateway --stream orders=stdin --stream app=file:app.jsonl --codec json \
--stream-option orders.codec=avro:orders.avsc --stream-option app.follow
                                     options for one of them: the orders are Avro, the others JSON
  penstock gateway --source stdin --metrics 127.0.0.1:9100 --otlp http://localhost:4318 --log-format json
                                     figures for Prometheus and OpenTelemetry, and messages as JSON
  penstock gateway --keygen gateway  make gateway.key and gateway.pub
  penstock gateway --source stdin --curve gateway.key --allow clients/ --curve-control tcp://0.0.0.0:5560
                                     beside the local endpoint, an encrypted one for the keys in clients/
  penstock gateway status tcp://127.0.0.1:5556 --watch
                                     the status of a running gateway
  penstock gateway ls tcp://127.0.0.1:5556
                                     who uses it; `evict`, `forget`, `move` and `give` change that
  penstock gateway peek tcp://127.0.0.1:5556 1000
                                     one record; `export` writes many to a file
  penstock gateway verify readings.db
                                     is a journal sound? `compact` gives disk space back

exit codes: 0 everything was served, SIGTERM or SIGHUP; 1 something failed; 2 wrong command line; 130 Ctrl-C
"""


def _load() -> tuple[type[GatewayCommandOptions], Callable[[GatewayCommandOptions], int]]:
    from penstock.cli.gateway.server import GatewayCommandOptions, run_gateway

    return GatewayCommandOptions, run_gateway


def _add_subcommands(parser: argparse.ArgumentParser) -> None:
    from penstock.cli.gateway.server import sources

    parser.epilog = f"{sources()}\n{parser.epilog}"
    running = parser.add_subparsers(title="about a gateway, or its journal", metavar="COMMAND", dest="about")
    status.add_parser(running)
    admin.add_parsers(running)
    records.add_parsers(running)
    replays.add_parsers(running)
    journals.add_parsers(running)


def add_parser(commands: Commands) -> None:
    """Add ``penstock gateway`` and its commands to the command line."""
    add_command(
        commands,
        "gateway",
        _load,
        help="serve a source to any number of subscribers, each at its own pace",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
        more=_add_subcommands,
    )
