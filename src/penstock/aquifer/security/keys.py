"""CURVE keys: pairs that are made, saved and loaded, and the files that they are in.

A pair is saved as two files. ``NAME.key`` has both halves, and nobody but its owner can read it; ``NAME.pub``
has the public half, for everybody. In the directory of a gateway's access list, a ``.pub`` file may also
say what its owner may do there: ``rights = "read, write"``.
"""

from __future__ import annotations

import logging
import os
import re
import struct
from pathlib import Path
from typing import NamedTuple, TypeAlias

import zmq
from zmq.utils import z85

__all__ = [
    "CurveKeys",
    "check_key",
    "check_pair",
    "generate_keys",
    "load_keys",
    "load_public",
    "read_key_file",
    "save_keys",
]

_log = logging.getLogger("penstock.aquifer")

PathLike: TypeAlias = str | os.PathLike[str]
_HOW = "make a pair of keys with: penstock gateway --keygen PATH"
_LINE = re.compile(r'(public|secret|rights)\s*=\s*"([^"]*)"')
_PUBLIC_NOTE = "# The public half of a CURVE key pair for Penstock; for everybody to see.\n"
_SECRET_NOTE = "# A CURVE key pair for Penstock. Whoever can read this file can pass for its owner.\n"


class CurveKeys(NamedTuple):
    """A pair of CURVE keys, each in the 40 characters of Z85."""

    public: str
    secret: str

    def __repr__(self) -> str:
        # A pair gets into logs and tracebacks; its secret must not.
        return f"CurveKeys(public={self.public!r}, secret=...)"


def generate_keys() -> CurveKeys:
    """A new pair of keys."""
    public, secret = zmq.curve_keypair()
    return CurveKeys(public.decode(), secret.decode())


def save_keys(keys: CurveKeys, path: PathLike, *, overwrite: bool = False) -> None:
    """Write ``PATH.pub``, for everybody, and ``PATH.key``, which nobody but its owner can read.

    Raises FileExistsError when one of them is there already, unless ``overwrite`` is set.
    """
    check_pair(keys, "the pair to save")
    stem = re.sub(r"\.(pub|key)\Z", "", os.fspath(path))
    if not overwrite:
        for file in (f"{stem}.key", f"{stem}.pub"):
            if os.path.lexists(file):
                raise FileExistsError(f"{file} is there already, and a lost secret key cannot be made again")
    public = f'public = "{keys.public}"\n'
    _write(f"{stem}.key", f'{_SECRET_NOTE}{public}secret = "{keys.secret}"\n', 0o600, overwrite)
    _write(f"{stem}.pub", _PUBLIC_NOTE + public, 0o644, overwrite)
    os.chmod(f"{stem}.pub", 0o644)  # whatever the umask took away


def _write(file: str, text: str, mode: int, overwrite: bool) -> None:
    # The mode counts only when a file is made. An old file, which may be open to others, is replaced as a
    # whole by a new one, and O_EXCL sees to it that this one is new, too.
    made = f"{file}.new" if overwrite else file
    if overwrite:
        Path(made).unlink(missing_ok=True)
    with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="ascii") as stream:
        stream.write(text)
    if overwrite:
        os.replace(made, file)


def load_keys(path: PathLike) -> CurveKeys:
    """Read the pair in ``PATH.key``; the path may be given with or without its end."""
    file = next(filter(os.path.isfile, (f"{os.fspath(path)}.key", os.fspath(path))), None)
    if file is None:
        raise FileNotFoundError(f"there is no key file {os.fspath(path)}; {_HOW}")
    found = read_key_file(file)
    for name in ("public", "secret"):
        if name not in found:
            raise ValueError(f"{file} has no {name} key; the file that ends with .key has both, or {_HOW}")
    return check_pair(CurveKeys(found["public"], found["secret"]), file)


def load_public(path_or_key: PathLike) -> str:
    """Read the public key from ``PATH.pub`` or ``PATH.key``; a key of 40 characters is returned as it is."""
    text = os.fspath(path_or_key)
    # Files first: every character of a path may occur in a key, but a key is hardly ever the name of a file.
    file = next(filter(os.path.isfile, (text, f"{text}.pub")), None)
    if file is not None:
        found = read_key_file(file)
        if "public" not in found:
            raise ValueError(f"{file} has no public key; {_HOW}")
        return check_key(found["public"], f"the public key in {file}")
    if isinstance(path_or_key, os.PathLike) or text.endswith((".pub", ".key")):
        raise FileNotFoundError(f"there is no key file {text}; {_HOW}")
    return check_key(text, f"{text!r} is not a file, and not a key either: it")


def read_key_file(file: str) -> dict[str, str]:
    """The lines of a key file by their names: ``public``, ``secret``, ``rights``."""
    with open(file, encoding="utf-8", errors="replace") as stream:
        mode = os.fstat(stream.fileno()).st_mode & 0o777
        lines = [line.strip() for line in stream]
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if line and not line.startswith("#"):
            match = _LINE.fullmatch(line)
            if match is None or match[1] in found:
                # The line itself stays out of the text: it may be a secret key.
                raise ValueError(
                    f'{file}, line {number}: this is not a key file. It has lines public = "..." and, for a '
                    f'pair, secret = "..."; {_HOW}'
                )
            found[match[1]] = match[2]
    if "secret" in found and mode & 0o077 and os.name == "posix":
        _log.warning("other users can get at the secret key in %s (mode %o): chmod 600 %s", file, mode, file)
    return found


def check_key(key: str, what: str) -> str:
    """The key, if it is one; otherwise a ValueError that begins with ``what``."""
    if len(key) != 40:
        raise ValueError(f"{what} has {len(key)} characters, and a CURVE key has 40; {_HOW}")
    try:
        z85.decode(key)
    except (KeyError, ValueError, struct.error):
        raise ValueError(f"{what} has characters that do not make a CURVE key (Z85); {_HOW}") from None
    return key


def check_pair(keys: CurveKeys, where: str) -> CurveKeys:
    """The pair, if its halves belong together; otherwise a ValueError that says where it was found."""
    check_key(keys.public, f"the public key of {where}")
    check_key(keys.secret, f"the secret key of {where}")
    if zmq.curve_public(keys.secret.encode()).decode() != keys.public:
        raise ValueError(f"the public and the secret key of {where} do not belong together; {_HOW}")
    return keys
