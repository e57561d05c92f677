"""Certificates of an authority of our own, as files, the way a server gets them."""

from __future__ import annotations

import datetime
import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme

from penstock.net import TcpClient
from tests.net.tcp.peers import begun, soon


@dataclass(frozen=True)
class Authority:
    """An authority, and the folder for what it signs."""

    ca: trustme.CA
    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Authority:
        return cls(trustme.CA(), folder)

    @property
    def trust(self) -> Path:
        path = self.folder / "authority.pem"
        self.ca.cert_pem.write_to_path(path)
        return path

    def certificate(self, *names: str, file: str = "certificate.pem", expired: bool = False) -> Path:
        """A file with a certificate for these names, and its key."""
        ended = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1) if expired else None
        signed = self.ca.issue_cert(*names, not_after=ended)
        path = self.folder / file
        signed.private_key_and_cert_chain_pem.write_to_path(path)
        return path

    def context(self, *names: str) -> ssl.SSLContext:
        """A server's context with a certificate for these names."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.ca.issue_cert(*names).configure_cert(context)
        return context


async def echoed(client: TcpClient, data: bytes = b"hello") -> bytes:
    """What comes back of this."""
    async with await soon(client.connect()) as connection:
        sending = begun(connection.outbound.send(data))
        got = bytearray()
        async for chunk in connection.inbound.receive():
            got += chunk
            if len(got) >= len(data):
                break
        await sending
        return bytes(got)
