"""Publishes to an MQTT broker, and knows what the broker has acknowledged.

As a program it publishes numbers until there is a file, and notes those in another file that the broker has
acknowledged, and then written to its own if that is named.
"""

from __future__ import annotations

import secrets
import socket
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Self

import mqtt5

_PATIENCE = 30.0


class MqttSender:
    """A connection that publishes; OSError if it is lost."""

    def __init__(self, port: int, *, user: str | None = None, password: str | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), _PATIENCE)
        self._buffer = b""
        self._next = 0
        hello = mqtt5.ConnectPacket(
            "", username=user, password=None if password is None else password.encode(), clean_start=True
        )
        self._socket.sendall(hello.write())
        answer = self._read()
        if not isinstance(answer, mqtt5.ConnAckPacket) or answer.reason_code.value:
            raise ConnectionError(str(answer))

    def publish(self, messages: Iterable[tuple[str, bytes]], qos: int = 1, *, retain: bool = False) -> None:
        """Return when the broker has acknowledged all of them."""
        waiting: set[int] = set()
        level = mqtt5.QoS(qos)
        for topic, payload in messages:
            self._next = self._next % 65_535 + 1
            number = self._next if qos else None
            packet = mqtt5.PublishPacket(topic, payload, qos=level, packet_id=number, retain=retain)
            self._socket.sendall(packet.write())
            if number is not None:
                waiting.add(number)
            while len(waiting) >= 20:
                self._settle(waiting)
        while waiting:
            self._settle(waiting)

    def _settle(self, waiting: set[int]) -> None:
        answer = self._read()
        if isinstance(answer, mqtt5.PubRecPacket):
            self._socket.sendall(mqtt5.PubRelPacket(answer.packet_id).write())
        elif isinstance(answer, mqtt5.PubAckPacket | mqtt5.PubCompPacket):
            waiting.remove(answer.packet_id)
        else:
            raise ConnectionError(str(answer))

    def _read(self) -> mqtt5.Packet:
        while True:
            try:
                packet, size = mqtt5.read(memoryview(self._buffer))
            except IndexError:
                chunk = self._socket.recv(65_536)
                if not chunk:
                    raise ConnectionError("the broker has hung up") from None
                self._buffer += chunk
                continue
            self._buffer = self._buffer[size:]
            return packet

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._socket.close()


def main(port: str, topic: str, qos: str, batch: str, noted: str, enough: str, database: str = "") -> None:
    path = Path(noted)
    lines = path.read_bytes().splitlines() if path.exists() else []
    done = int(lines[-1].split()[0]) + 1 if lines else 0
    sender: MqttSender | None = None
    with path.open("ab", buffering=0) as note:
        while not Path(enough).exists():
            token = secrets.token_hex(4)  # No two messages are the same, even if a number is sent again.
            texts = [f"{number} {token}" for number in range(done, done + int(batch))]
            try:
                sender = sender or MqttSender(int(port))
                sender.publish(((topic, text.encode()) for text in texts), int(qos))
                if database:
                    _wait_for_save(Path(database), sender)
                note.write("".join(f"{text}\n" for text in texts).encode())
                done += int(batch)
            except OSError:
                sender = None  # Not acknowledged: they are sent again.
                time.sleep(0.05)  # The pace of the attempts.


def _wait_for_save(database: Path, sender: MqttSender) -> None:
    """Mosquitto acknowledges a message before it writes it to its file."""
    acknowledged = time.time_ns()
    while not database.exists() or database.stat().st_mtime_ns <= acknowledged:
        sender.publish([("elsewhere", b"")])  # A lost broker is noticed here.
        time.sleep(0.01)  # The pace of looking.


if __name__ == "__main__":
    main(*sys.argv[1:])
