"""Messages that are almost right: what a faulty or hostile peer may send.

Random bytes are turned away at the door. What gets further in is a valid message with one thing wrong, so
most of what is made here starts from a valid one.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.aquifer.protocol.frames import Flag

__all__ = ["Fuzzer"]

_HUGE = "HUGE-NUMBER"
"""Stands for a number that json cannot write but a peer can."""

REQUESTS: list[dict[str, Any]] = [
    {"jsonClass": "Subscribe", "cancel": False},
    {"jsonClass": "Subscribe", "cancel": True},
    {"jsonClass": "Subscribe", "cancel": False, "x": {"v": 1}},
    {"jsonClass": "Subscribe", "cancel": False, "x": {"v": 1, "id": "a", "keep": True, "lease": 200}},
    {
        "jsonClass": "Subscribe",
        "cancel": False,
        "x": {"v": 1, "id": "b", "from": 0, "to": 100, "epoch": "x", "keep": False, "fmt": ["msgpack"]},
    },
    {"jsonClass": "Subscribe", "cancel": False, "x": {"v": 1, "from": "latest", "fmt": ["arrow", "msgpack"]}},
    {"jsonClass": "Subscribe", "cancel": False, "x": {"v": 1, "me": "abc", "nth": 3, "from": "earliest"}},
    {"jsonClass": "Subscribe", "cancel": False, "x": {"v": 1, "probe": True}},
    {"jsonClass": "Subscribe", "cancel": True, "x": {"v": 1, "keep": False}},
    {"jsonClass": "Next", "count": 10},
    {"jsonClass": "Next", "count": 2**63 - 1},
    {"jsonClass": "Next", "count": 1, "x": {"limit": 1000, "limitb": 100_000, "ack": 10, "got": 20}},
    {"jsonClass": "Next", "count": 1, "x": {"limit": 2**63 - 1}},
    {
        "jsonClass": "Next",
        "count": 1,
        "x": {"put": {"query": "q", "batch": 1, "part": 0, "attempt": 1, "seq": 0}},
    },
    {"jsonClass": "Complete", "x": {"commit": {"query": "q", "batch": 1, "parts": [[0, 1, 1]]}}},
    {"jsonClass": "Complete", "complete": True},
    {"jsonClass": "Error", "message": "deficit"},
    {"jsonClass": "OnNext", "count": 5},
]

_VALUES: list[Any] = [
    0,
    -1,
    1,
    2**31,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63) - 1,
    10**30,
    _HUGE,
    1.5,
    1e308,
    True,
    False,
    None,
    "",
    "earliest",
    "a" * 300,
    "\ud83d\ude00",
    "\x00",
    [],
    ["msgpack", 7],
    [[[]]],
    {},
    {"v": 1},
    {"jsonClass": "Next", "count": 1},
]


class Fuzzer(random.Random):
    """Makes bad messages; the same ones for the same seed."""

    # ---------------------------------------------------------------- control messages
    def request(self) -> list[bytes]:
        """The parts of a message to a gateway's control port."""
        body = self.text(self.choice(REQUESTS))
        shape = self.random()
        if b'"put"' in body and shape < 0.8:
            number = self.randrange(5)
            values = msgspec.msgpack.encode([b"%d" % value for value in range(number)])
            parts = [b"", body, values, msgspec.msgpack.encode([1, None, None])]
            if shape < 0.3:
                place = self.randrange(2, 4)
                parts[place] = self.damaged(parts[place])
            return parts
        if shape < 0.7:
            return [b"", body]
        if shape < 0.8:
            return [body]
        if shape < 0.85:
            return [self.randbytes(4), b"", body]  # As a REQ with REQ_CORRELATE.
        if shape < 0.9:
            return [b"", b"", body, b""]
        if shape < 0.95:
            return [self.randbytes(self.randrange(5)) for _ in range(self.randrange(1, 40))]
        return [b""] * self.randrange(1, 4)

    def text(self, message: Mapping[str, Any]) -> bytes:
        """A message as it is, with something wrong in it, or something that is none."""
        chance = self.random()
        if chance < 0.15:
            return _dump(message)
        if chance < 0.75:
            return _dump(self._changed(dict(message)))
        if chance < 0.95:
            return self.damaged(_dump(self._changed(dict(message))))
        return self._nonsense()

    def _changed(self, message: dict[str, Any]) -> dict[str, Any]:
        for _ in range(self.choice((1, 1, 1, 2, 4))):
            place = message
            if isinstance(message.get("x"), dict) and self.random() < 0.7:
                place = message["x"] = dict(message["x"])
                for inner in ("put", "commit"):
                    if isinstance(place.get(inner), dict) and self.random() < 0.7:
                        place[inner] = place = dict(place[inner])
                        break
            names = [*place, "count", "x", "limit", "ack", "got", "limitb", "v", "from", "to", "lease", "id"]
            name = self.choice(names)
            if self.random() < 0.2:
                place.pop(name, None)
            else:
                place[name] = self.choice(_VALUES)
        return message

    def _nonsense(self) -> bytes:
        kind = self.randrange(5)
        if kind == 0:
            return self.randbytes(self.randrange(200))
        if kind == 1:
            return self.choice((b"[", b'{"x":', b'{"jsonClass":"Next","count":1,"x":[')) * self.randrange(
                1, 3000
            )
        if kind == 2:
            return b'{"jsonClass":"' + self.randbytes(10).hex().encode() + b'"}'
        if kind == 3:
            return b" " * self.randrange(70_000)
        return b'{"jsonClass":"Next","count":' + b"9" * self.randrange(1, 6000) + b"}"

    def damaged(self, data: bytes) -> bytes:
        """Some bytes, flipped, cut, repeated or put in."""
        changed = bytearray(data)
        for _ in range(self.randrange(1, 4)):
            if not changed:
                break
            place = self.randrange(len(changed))
            match self.randrange(4):
                case 0:
                    changed[place] ^= 1 << self.randrange(8)
                case 1:
                    del changed[place : place + self.randrange(1, 20)]
                case 2:
                    changed[place:place] = self.randbytes(self.randrange(1, 10))
                case 3:
                    changed[place:place] = changed[place : place + self.randrange(1, 20)]
        return bytes(changed)

    # ---------------------------------------------------------------- what a gateway says
    def answer(self, port: int, topic: bytes) -> bytes:
        """An answer to a request, usually not the right one."""
        answers: list[dict[str, Any]] = [
            self.welcome(port, topic),
            {"jsonClass": "OnSubscribe", "size": 10, "port": port},
            {"jsonClass": "OnNext", "count": self.randrange(5)},
            {"jsonClass": "OnError", "message": "no", "recoverable": True},
            {
                "jsonClass": "OnError",
                "message": "no",
                "x": {"code": self.choice(["SESSION", "LEASE", "BUSY", "LAG", "SOURCE", "??"]), "first": 3},
            },
            {"jsonClass": "OnComplete", "complete": True, "x": {"end": 5}},
            {"jsonClass": "Next", "count": 3},
        ]
        return self.text(self.choice(answers))

    def welcome(self, port: int, topic: bytes) -> dict[str, Any]:
        """What a gateway says to an extended subscriber."""
        terms = {
            "v": 1,
            "topic": topic.hex(),
            "epoch": "e",
            "first": 0,
            "next": 0,
            "head": 100,
            "fmt": "msgpack",
        }
        return {"jsonClass": "OnSubscribe", "size": 2**63 - 1, "port": port, "x": terms}

    def frame(self, topic: bytes, first: int) -> tuple[list[bytes], int]:
        """A data frame, and the offset after it if it is a good one; the offset itself if it is not."""
        count = self.randrange(1, 5)
        values = [b"%d" % number for number in range(first, first + count)]
        flags = self.choice((0, 0, 0, int(Flag.ACK)))
        head = struct.pack(">BBHQI", 1, flags, 0, first, count)
        parts = [topic, head, msgspec.msgpack.encode(values), msgspec.msgpack.encode([1, None, None])]
        if self.random() < 0.9:
            return parts, first + count
        match self.randrange(6):
            case 0:
                flags = self.randrange(256)
                offset = self.choice((0, first, first + 1, 2**63, 2**64 - 1))
                parts[1] = struct.pack(">BBHQI", 1, flags, 0, offset, self.choice((0, 1, count, 2**32 - 1)))
            case 1:
                place = self.randrange(1, 4)
                parts[place] = self.damaged(parts[place])
            case 2:
                del parts[self.randrange(1, 4)]
            case 3:
                parts += [b""] * self.randrange(1, 5)
            case 4:
                error = {"jsonClass": "OnError", "message": "x", "x": {"code": "SOURCE"}}
                parts[1] = struct.pack(">BBHQI", 1, int(Flag.ERR), 0, first, 0)
                parts[2] = self.text(error)
            case 5:
                parts[1] = struct.pack(
                    ">BBHQI", 1, int(Flag.GAP), 0, self.choice((0, first + 7, 2**64 - 1)), 0
                )
        return parts, first


def _dump(message: Mapping[str, Any]) -> bytes:
    text = json.dumps(message, ensure_ascii=False)
    return text.replace(f'"{_HUGE}"', "1" + "0" * 400).encode(errors="surrogatepass")
