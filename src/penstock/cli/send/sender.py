"""Sending at the command line, with its progress on the screen."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import Any, Final

from penstock.cli.errors import CommandError
from penstock.cli.logs import CommandLog, is_json, tell
from penstock.cli.progress import ProgressBar
from penstock.cli.screen import say
from penstock.cli.send import SendOptions
from penstock.cli.style import print_json
from penstock.endpoint import Endpoint
from penstock.feeds import LineSender
from penstock.net import BadCertificate, Connection, NetError, TcpClient, run
from penstock.streams import Flux, schedulers

__all__ = ["run_send"]

_CHUNK: Final = 128 * 1024
_SHOW: Final = 0.5
_FAREWELL: Final = 3.0
"""Seconds after a signal in which what was sent may still leave. The server may not read at all."""


def run_send(options: SendOptions) -> int:
    """Send until the server has everything; returns the exit code."""
    if options.file != "-" and not os.path.isfile(options.file):
        if os.path.exists(options.file) and not os.path.isdir(options.file):
            raise CommandError(
                f"{options.file} is a pipe or a device; put - in its place, and < {options.file} at the end"
            )
        kind = "is a directory" if os.path.isdir(options.file) else "does not exist"
        raise CommandError(f"{options.file} {kind}; name a file, or - for standard input")
    if options.acknowledged and options.file == "-":
        raise CommandError(
            "--acknowledged may have to send lines again, which standard input does not allow: name a file"
        )
    try:
        with CommandLog(options.log, "send"):
            client = _client(options)
            return run(_until_interrupted(_send(options, client)))
    except (NetError, BadCertificate) as error:
        raise CommandError(str(error), 1) from None


def _client(options: SendOptions) -> TcpClient:
    client = TcpClient.create().metrics()
    if options.address.startswith("unix:"):
        path = options.address.removeprefix("unix:")
        if not path:
            raise CommandError("'unix:' has no path; write unix:PATH, as in unix:/tmp/echo.sock")
        client = client.unix(path)
    else:
        host, port = _host_and_port(options.address)
        client = client.host(host).port(port)
    if options.tls or options.trust is not None:
        client = client.secure(trust=options.trust)
    return client


def _host_and_port(address: str) -> tuple[str, int]:
    if not address.startswith("tcp://"):
        raise CommandError(
            f"{address!r} is not an address: it has to start with tcp:// or unix:, as in tcp://127.0.0.1:9000"
        )
    try:
        endpoint = Endpoint.parse_address(address)
    except ValueError as error:
        raise CommandError(f"{error}, or write unix:PATH") from None
    if not endpoint.is_one_place:
        raise CommandError(f"{address}: name the host and the port of one server")
    return endpoint.host, endpoint.port


async def _until_interrupted(work: Coroutine[Any, Any, int]) -> int:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    came: list[int] = []

    def stop(number: int) -> None:
        came.append(number)
        task.cancel()
        loop.call_later(_FAREWELL, task.cancel)  # The close of the connection, by then.

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # With nohup, the end of the terminal does not end the command.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not came:
            raise
        _tell("interrupted; the server may not have everything")
        return 130 if came[0] == signal.SIGINT else 1


async def _send(options: SendOptions, client: TcpClient) -> int:
    began = time.monotonic()
    hidden = options.quiet or options.json or is_json()
    if options.acknowledged:
        sender = LineSender(client, options.file, options.patience)
        showing = asyncio.ensure_future(_show_lines(sender, hidden))
        try:
            await sender.run()
        finally:
            await _end(showing)
        if options.json:
            print_json({"lines": sender.safe, "sent": sender.sent, "seconds": _seconds(began)})
        elif not options.quiet:
            told = f"{sender.safe:,} lines are in the journal, {sender.sent:,} of them sent now{_pace(began)}"
            _tell(told, lines=sender.safe, sent=sender.sent)
        return 0
    connection = await client.connect()
    async with connection:
        total = None if options.file == "-" else os.path.getsize(options.file)
        showing = asyncio.ensure_future(_show_bytes(connection, total, hidden))
        listening = asyncio.ensure_future(_leave_answers(connection))
        try:
            if options.file == "-":
                # Reading may wait for somebody to type, so it does not happen on the loop.
                read = Flux.from_iterable(_standard_input()).subscribe_on(schedulers.shared_pool())
                await connection.outbound.send(read)
            else:
                await connection.outbound.send_file(options.file)
        finally:
            await _end(listening)
            await _end(showing)
        if options.json and connection.traffic is not None:
            print_json({"bytes": connection.traffic.sent, "seconds": _seconds(began)})
        elif not options.quiet and connection.traffic is not None:
            sent = connection.traffic.sent
            _tell(f"{sent:,} bytes were sent{_pace(began)}", bytes=sent)
    return 0


def _tell(text: str, **fields: object) -> None:
    """Tell how it went; a person who types the command knows which one it was."""
    if is_json():
        tell("send", text, **fields)
    else:
        say(text)


def _standard_input() -> Iterator[bytes]:
    while chunk := os.read(sys.stdin.fileno(), _CHUNK):
        yield chunk


async def _show_bytes(connection: Connection, total: int | None, quiet: bool) -> None:
    traffic = connection.traffic
    with ProgressBar("send", total=total, unit="bytes", hidden=quiet) as progress:
        while traffic is not None:
            before = traffic.sent
            await asyncio.sleep(_SHOW)
            progress.update(traffic.sent, "the server is not reading" if traffic.sent == before else "")


async def _leave_answers(connection: Connection) -> None:
    """Read what the server answers: most servers stop reading when nobody takes their answers."""
    with suppress(NetError):  # Whoever sends is told, too.
        async for _ in connection.inbound.receive():
            pass


async def _show_lines(sender: LineSender, quiet: bool) -> None:
    with ProgressBar("in the journal", hidden=quiet) as progress:
        while True:
            await asyncio.sleep(_SHOW)
            progress.update(sender.safe, sender.state)


async def _end(showing: asyncio.Future[None]) -> None:
    showing.cancel()
    with suppress(asyncio.CancelledError):
        await showing


def _seconds(began: float) -> float:
    return round(time.monotonic() - began, 3)


def _pace(began: float) -> str:
    return f", in {time.monotonic() - began:.1f} s"
