"""Self-signed certificates, to try things out. A peer trusts one only if you tell it to."""

from __future__ import annotations

import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.x509 import GeneralName

__all__ = ["SelfSigned"]

_VALID = datetime.timedelta(days=30)


@dataclass(frozen=True, slots=True)
class SelfSigned:
    """A certificate and its key, in PEM format."""

    certificate: bytes
    key: bytes
    fingerprint: str
    """SHA-256 of the certificate, in hex."""

    @classmethod
    def make(cls, *names: str) -> SelfSigned:
        """Make a certificate for these names and addresses. It is valid for a month."""
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives import hashes, serialization
            from cryptography.hazmat.primitives.asymmetric import ec
            from cryptography.x509.oid import NameOID
        except ImportError as error:
            raise ImportError(
                "a self-signed certificate needs cryptography: pip install 'penstock-streams[net]', "
                "or use a certificate of your own"
            ) from error
        alternatives = [_alternative(name) for name in dict.fromkeys(names)]
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + _VALID)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(
            certificate.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
            certificate.fingerprint(hashes.SHA256()).hex(),
        )

    def save(self, folder: Path) -> tuple[Path, Path]:
        """Write both into a folder. Only the owner can read the key."""
        certificate, key = folder / "certificate.pem", folder / "key.pem"
        certificate.write_bytes(self.certificate)
        with open(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(self.key)
        return certificate, key


def _alternative(name: str) -> GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
