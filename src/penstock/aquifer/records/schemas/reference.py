"""What names a schema, and what a codec with a schema can do."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol
from urllib.parse import parse_qsl, urlencode

if TYPE_CHECKING:
    import pyarrow

__all__ = ["EncodedRecord", "SchemaCodec", "SchemaReference", "missing_package"]


_SHOWN: Final = 200
"""Characters of a reference in an error: it may be a whole schema."""


class EncodedRecord(bytes):
    """The bytes of a record that were checked already: encoding takes them as they are."""

    __slots__ = ()


class SchemaCodec(Protocol):
    """A codec that knows what its records look like."""

    name: str
    """What the journal and the wire call it."""

    def encode(self, element: Any) -> bytes:
        """The record for an element; a TypeError or ValueError if it does not fit the schema."""
        ...

    def decode(self, value: bytes) -> Any:
        """The element in a record; a ValueError if there is none."""
        ...

    def read(self, data: bytes) -> Any:
        """The element in what a sender has sent, perhaps with the header of a registry; ValueError if bad."""
        ...

    def checked(self, data: bytes) -> Any:
        """The same in a form that :meth:`encode` takes without more ado."""
        ...

    def row(self, element: Any) -> Any:
        """The element with values that columns can hold."""
        ...

    def arrow_schema(self) -> pyarrow.Schema:
        """The columns of its records; ValueError names a field that no column can hold."""
        ...


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """``KIND:FILE?NAME=VALUE&…``, taken apart; in place of a file there can be the JSON of a schema."""

    text: str
    kind: str
    path: str
    parameters: tuple[tuple[str, str], ...] = ()
    content: str | None = None
    """The schema itself, if it is not in a file."""

    @classmethod
    def parse(cls, text: str) -> SchemaReference:
        """Take it apart; ValueError if there is no file."""
        kind, _, rest = text.partition(":")
        if rest.lstrip().startswith(("{", '"')):
            return cls(text, kind, "the schema", content=rest)
        path, _, query = rest.partition("?")
        if not path:
            raise ValueError(f"codec {text!r} names no file; write {kind}:FILE, with the file of the schema")
        return cls(text, kind, os.path.expanduser(path), tuple(parse_qsl(query, keep_blank_values=True)))

    @property
    def shown(self) -> str:
        """The reference in an error message, shortened if it is long."""
        return repr(self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}…")

    def given(self, name: str) -> list[str]:
        """All values of a parameter."""
        return [value for given, value in self.parameters if given == name]

    def check_parameters(self, known: Collection[str]) -> None:
        """Raise a ValueError for a parameter that the codec does not have."""
        for name, _ in self.parameters:
            if name not in known:
                raise ValueError(
                    f"codec {self.shown} has no parameter {name!r}; there are {', '.join(known)}"
                )

    def file(self, path: str | None = None) -> bytes:
        """The content of the file, or of another one; ValueError if it cannot be read."""
        if path is None and self.content is not None:
            return self.content.encode()
        name = self.path if path is None else os.path.expanduser(path)
        try:
            with open(name, "rb") as opened:
                return opened.read()
        except OSError as error:
            raise ValueError(f"codec {self.shown}: cannot read {name}: {error.strerror}") from None

    def versions(self) -> list[tuple[int, int]]:
        """Which versions of its files there are: the time and the size of each."""
        files = [self.path, *(value.rpartition("=")[2] for _, value in self.parameters)]
        found = []
        for name in files:
            with suppress(OSError):
                known = os.stat(os.path.expanduser(name))
                found.append((known.st_mtime_ns, known.st_size))
        return found

    def in_the_log(self) -> str:
        """The schema for records in a log, with absolute paths: ``/schemas/v2.avsc?writer=/schemas/v1.avsc``.

        The header of a registry was taken off at the door, so its ids are not needed any more; the older
        schemas that belong to them are.
        """
        if self.content is not None:
            return self.content
        older = [*self.given("writer"), *(each.partition("=")[2] for each in self.given("id"))]
        parameters = [("writer", os.path.abspath(os.path.expanduser(path))) for path in older if path]
        parameters += [("message", name) for name in self.given("message")]
        path = os.path.abspath(self.path)
        return f"{path}?{urlencode(parameters, safe='/')}" if parameters else path

    def wrong(self, why: object) -> ValueError:
        """The error that says what is wrong with the schema."""
        return ValueError(f"codec {self.shown}: {' '.join(str(why).split())}")

    def number(self, text: str) -> int:
        """The id of a schema in a registry."""
        if not (text.isascii() and text.isdigit() and int(text) < 1 << 32):
            raise self.wrong(f"the id {text!r} is not a number of a schema registry; write id=7")
        return int(text)


def missing_package(kind: str, package: str, error: ImportError) -> NoReturn:
    """Raise the error that says which extra to install."""
    raise ImportError(
        f"codec {kind!r} needs {package}, which is not installed: pip install 'penstock-streams[schemas]'"
    ) from error
