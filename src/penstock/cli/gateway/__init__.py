"""``penstock gateway``: put a source behind a log, and serve it to any number of subscribers.

The parser is here, with the making of keys; :mod:`penstock.cli.gateway.server` runs a gateway, and
:mod:`penstock.cli.gateway.status` and :mod:`penstock.cli.gateway.admin` ask one that runs.
"""

from __future__ import annotations

import argparse

from penstock.cli.connection import CODECS
from penstock.cli.errors import CommandError, report_errors
from penstock.cli.gateway import admin, status
from penstock.cli.parser import Commands
from penstock.cli.quantities import a_count, a_duration, a_size

__all__ = ["add_parser", "run"]

_DESCRIPTION = """\
Read lines, keep them in a bounded log, and serve them to any number of subscribers, each at its own pace.
When the log is full of what somebody still needs, the source is held back: nothing is dropped.

With a journal in a file, records survive the process. A restart on the same journal goes on behind what is
there: of a file (--source file:PATH) it reads on behind the last line that the journal has, so that each line
becomes a record exactly once, even after a crash. Standard input and a TCP server cannot be read again: what
they send after the restart is put behind what was journalled before. Whoever connects to
tcp-listen://HOST:PORT?acknowledge is told how many lines are safe, and can go on there: `penstock send
--acknowledged` does.

When the source has ended, the gateway serves on until a subscriber has got everything and none that has to
be kept lacks anything, and then ends; with --stay it serves until it is interrupted.
"""

_EXAMPLES = """\
examples:
  journalctl -f | penstock gateway --source stdin
                                     serve a log at tcp://127.0.0.1:5556; read it with `penstock tail`
  penstock gateway --source file:readings.txt --journal readings.db
                                     kill it, start it again: every line is served exactly once
  penstock gateway --source file:app.log --follow --journal app.db
                                     a log file that is being written, also when it is rotated
  penstock gateway --source tcp://feed.example:9000 --max-bytes 256M --max-age 1h --journal feed.db
                                     lines from a server, which waits while the log is full
  penstock gateway --source udp://127.0.0.1:5140 --codec json --on-bad-line skip
                                     JSON in datagrams; what is not JSON is counted and left out
  penstock gateway --source 'tcp-listen://127.0.0.1:9000?acknowledge' --journal in.db
                                     with `penstock send --acknowledged FILE tcp://127.0.0.1:9000` elsewhere:
                                     kill either, start it again, and every line is there once
  penstock gateway --source writers --control tcp://127.0.0.1:5557 --journal out.db
                                     for the results of a Spark query: penstock run, .into("tcp://…:5557")
  penstock gateway --keygen gateway  make gateway.key and gateway.pub
  penstock gateway --source stdin --curve gateway.key --allow clients/ --curve-control tcp://0.0.0.0:5560
                                     beside the local endpoint, an encrypted one for the keys in clients/
  penstock gateway status tcp://127.0.0.1:5556 --watch
                                     how is a running one?
  penstock gateway ids tcp://127.0.0.1:5556
                                     who uses it; `evict`, `forget` and `give` end, delete and hand over

exit codes: 0 everything was served, SIGTERM or SIGHUP; 1 something failed; 2 wrong command line; 130 Ctrl-C
"""


def add_parser(commands: Commands) -> None:
    """Add ``penstock gateway`` and ``penstock gateway status`` to the command line."""
    parser = commands.add_parser(
        "gateway",
        help="serve a source to any number of subscribers, each at its own pace",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source = parser.add_argument_group("the source")
    source.add_argument(
        "--source",
        metavar="SOURCE",
        help="where lines come from: stdin; file:PATH; tcp://HOST:PORT, a server, to which the connection is "
        "made again when it is lost (with ?once, its end is the end); tcp-listen://HOST:PORT, whoever "
        "connects (with ?acknowledge, one who is told what is safe); udp://HOST:PORT, a line in each "
        "datagram; http://… or https://…, the lines of a page; or writers: what a Spark query writes",
    )
    source.add_argument(
        "--codec",
        choices=CODECS,
        default="bytes",
        help="what a line is: bytes as they come (default), text (UTF-8), or JSON, kept as json or msgpack",
    )
    source.add_argument(
        "--on-bad-line",
        choices=("fail", "skip"),
        help="what to do with a line that is too long, or that the codec cannot take. fail (default): the "
        "stream ends with an error; with tcp-listen only that sender is cut off. skip (default of udp): it "
        "is left out, counted and told",
    )
    source.add_argument(
        "--follow",
        action="store_true",
        help="file: go on at its end, as tail -F does, also when it is renamed and made anew, or cut off",
    )
    source.add_argument(
        "--take-last-line",
        action="store_true",
        help="file: its last line is a record even without a newline (default: it is left out, and told)",
    )
    source.add_argument(
        "--max-line", type=a_size, default=1 << 20, metavar="SIZE", help="the longest line (default 1M)"
    )
    log = parser.add_argument_group("the log")
    log.add_argument(
        "--journal",
        default="memory",
        metavar="WHERE",
        help="memory (default), or a file such as readings.db that survives the process",
    )
    log.add_argument(
        "--max-records", type=a_count, metavar="N", help="the most records (default 1M, file 10M)"
    )
    log.add_argument("--max-bytes", type=a_size, metavar="SIZE", help="the most bytes (default 64M, file 1G)")
    log.add_argument(
        "--max-age", type=a_duration, metavar="TIME", help="forget older records: 1h (file only)"
    )
    log.add_argument(
        "--accept-loss",
        action="store_true",
        help="open a journal whose newest records were lost with its -wal file; it gets a new epoch",
    )
    ends = parser.add_argument_group("where to listen")
    ends.add_argument(
        "--control",
        default="tcp://127.0.0.1:5556",
        metavar="ENDPOINT",
        help="where subscribers connect (default tcp://127.0.0.1:5556; port 0: any free one; none: only "
        "--curve-control)",
    )
    ends.add_argument("--data", metavar="ENDPOINT", help="where records come from (default: any free port)")
    ends.add_argument(
        "--insecure",
        action="store_true",
        help="let other machines in without keys: those who read, and those who send to a listening source",
    )
    ends.add_argument("--curve", metavar="KEYFILE", help="the gateway's keys: the .key file from --keygen")
    ends.add_argument(
        "--allow", metavar="WHERE", help="who is let in, and what for: a directory of .pub files, or a list"
    )
    ends.add_argument("--curve-control", metavar="ENDPOINT", help="where subscribers with keys connect")
    ends.add_argument("--keygen", metavar="PATH", help="write new keys to PATH.key and PATH.pub, and end")
    shown = parser.add_argument_group("what to do and to show")
    shown.add_argument("--stay", action="store_true", help="serve on after the end of the source")
    shown.add_argument("--quiet", action="store_true", help="show no progress")
    shown.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="progress as text on standard error (default), or as lines of JSON on standard output",
    )
    parser.set_defaults(run=run)
    running = parser.add_subparsers(title="about a running gateway", metavar="COMMAND", dest="about")
    status.add_parser(running)
    admin.add_parsers(running)


def run(arguments: argparse.Namespace) -> int:
    """Run a gateway until it has served everything; or make keys."""
    return report_errors("gateway", lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    if arguments.keygen is not None:
        return _make_keys(arguments.keygen)
    if arguments.source is None:
        raise CommandError(
            "which source? Give --source stdin, file:PATH, tcp://HOST:PORT or another; "
            "`penstock gateway --help` has examples"
        )
    if arguments.allow is not None and arguments.curve is None:
        raise CommandError("--allow is a list of keys, and without --curve nobody is asked for one")
    if (arguments.curve is None) != (arguments.curve_control is None):
        raise CommandError(
            "--curve and --curve-control go together: keys, and the endpoint where they are asked"
        )
    if arguments.curve is not None and arguments.allow is None:
        raise CommandError(
            "--curve needs --allow: a directory of the .pub files of those who are let in, or a list"
        )
    if arguments.max_age is not None and arguments.journal == "memory":
        raise CommandError("--max-age needs a journal in a file: --journal PATH.db")
    from penstock.cli.gateway.server import run_gateway

    return run_gateway(arguments)


def _make_keys(path: str) -> int:
    from penstock.aquifer.security import generate_keys, save_keys

    stem = path.removesuffix(".key").removesuffix(".pub")
    try:
        save_keys(generate_keys(), stem)
    except FileExistsError as error:
        raise CommandError(f"{error}; choose another name", 1) from None
    except OSError as error:
        raise CommandError(f"cannot write {stem}.key: {error.strerror}; check the directory", 1) from None
    print(
        f"{stem}.key  is secret: keep it where the program runs that uses it, and nowhere else\n"
        f"{stem}.pub  is for the others\n"
        "\n"
        "For a gateway: give its .pub file to the subscribers, put theirs into a directory, and start\n"
        f"  penstock gateway --source … --curve {stem}.key --allow DIRECTORY --curve-control tcp://0.0.0.0:5560\n"
        "For a subscriber: put its .pub file into that directory, also while it runs, and read with\n"
        f"  penstock tail tcp://HOST:5560 --curve {stem}.key --server-key GATEWAY.pub"
    )
    return 0
