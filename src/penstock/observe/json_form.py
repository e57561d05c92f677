"""Frozen dataclasses as JSON, both ways.

The type of each field says how it is read. Fields that this version does not know are left out, and fields
that the sender does not know have their defaults, so that versions can be mixed. A value of the wrong type is
a ValueError that names the field: what is read here may come from another process.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, Self

__all__ = ["JsonForm"]


class JsonForm:
    """A dataclass of plain values, of tuples and mappings of them, and of others like itself."""

    __slots__ = ()

    def to_dict(self) -> dict[str, object]:
        """The JSON object, as a dict; fields that are None are left out."""
        shown = {each.name: _shown(getattr(self, each.name)) for each in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in shown.items() if value is not None}

    def to_json(self) -> str:
        """The JSON object, as text on one line. It is ASCII, so that it can be written anywhere."""
        return json.dumps(self.to_dict(), allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_dict(cls, read: Mapping[str, object]) -> Self:
        """Make one of a JSON object; ValueError if a field is missing or has the wrong type."""
        values = {
            name: _read(read[name], kind, f"{cls.__name__}.{name}")
            for name, kind in _fields(cls).items()
            if name in read
        }
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"this is not a {cls.__name__}: {error}") from None

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Make one of a text; ValueError if it is not JSON, or not of this kind."""
        read = json.loads(text)
        if not isinstance(read, dict):
            raise ValueError(f"a {cls.__name__} is a JSON object, not a {type(read).__name__}")
        return cls.from_dict(read)


_known: dict[type, dict[str, Any]] = {}


def _fields(cls: type) -> dict[str, Any]:
    """The fields of a class with their types; looking these up takes a while, so they are kept."""
    if cls not in _known:
        _known[cls] = typing.get_type_hints(cls)
    return _known[cls]


def _shown(value: object) -> object:
    if isinstance(value, JsonForm):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_shown(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _shown(each) for key, each in value.items()}
    return value


def _read(value: Any, kind: Any, name: str) -> Any:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        (kind,) = (each for each in typing.get_args(kind) if each is not type(None))
        return _read(value, kind, name)
    if origin is tuple and isinstance(value, list):
        return tuple(_read(each, typing.get_args(kind)[0], name) for each in value)
    if origin is Mapping and isinstance(value, dict):
        return {str(key): _read(each, typing.get_args(kind)[1], name) for key, each in value.items()}
    if isinstance(kind, type) and issubclass(kind, JsonForm) and isinstance(value, dict):
        return kind.from_dict(value)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and type(value) is kind:
        return value
    raise ValueError(f"{name} cannot be {value!r:.40}")
