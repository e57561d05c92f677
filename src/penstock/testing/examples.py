"""Marbles in docstrings: what a test needs to execute them.

A block begins with ``Marble::`` and has lines of sources, an expression, and its result::

    Marble::

        a: 1-2-3-|
        b: -x-y|
        Flux.merge(a, b)
        >  1x2y3-|

A source whose name begins with ``mono`` is a Mono. A line ``where A = [1, 2], B = [3]`` explains characters,
and names for the expression. More than one expression, each with its result, may follow.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock import streams
from penstock.testing.marbles import Marble, MarbleError, marble
from penstock.testing.verifier import ExpectationFailed, verify
from penstock.testing.virtual_time import virtual_time

__all__ = ["MarbleExample", "marble_examples"]

_SOURCE = re.compile(r"(?P<name>[a-z]\w*):\s*(?P<line>[-\w|#() ]*)$")
_DEFINITION = re.compile(r",\s+(?=(?:[A-Za-z_]\w*|#) = )")


@dataclass(frozen=True)
class MarbleExample:
    """One ``Marble::`` block."""

    text: str
    sources: dict[str, str]
    results: list[tuple[str, str]]
    """Each expression, and the marble of its result."""
    definitions: dict[str, str] = field(default_factory=dict)
    """What the ``where`` lines say."""

    @classmethod
    def parse(cls, text: str) -> MarbleExample:
        """Read a block."""
        sources: dict[str, str] = {}
        results: list[tuple[str, str]] = []
        definitions: dict[str, str] = {}
        expression: list[str] = []
        for line in filter(None, map(str.rstrip, inspect.cleandoc(text).splitlines())):
            source = _SOURCE.match(line)
            if line.startswith(">"):
                if not expression:
                    raise ValueError(f"there is no expression above {line!r} in\n{text}")
                results.append(("\n".join(expression), line[1:]))
                expression = []
            elif line.startswith("where "):
                for each in _DEFINITION.split(line.removeprefix("where ")):
                    name, _, value = each.partition(" = ")
                    definitions[name.strip()] = value
            elif source is not None and not expression:
                sources[source["name"]] = source["line"]
            else:
                expression.append(line)
        if expression or not results:
            raise ValueError(f"an expression has no result, which is a line that begins with >:\n{text}")
        return cls(text, sources, results, definitions)

    def run(self) -> None:
        """Run each expression in virtual time; raises ExpectationFailed if a result is another."""
        for expression, expected in self.results:
            with virtual_time():
                scope, values = self._scope()
                Marble.parse(expected, values)  # a line that cannot be read is not the fault of the stream
                stream = eval(f"(\n{expression}\n)", scope)
                try:
                    with verify(stream) as verifier:
                        verifier.marble(expected, values)
                except ExpectationFailed as failed:
                    failed.add_note(f"in the marble\n{inspect.cleandoc(self.text)}")
                    raise

    def _scope(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What an expression sees, and what the characters of a marble stand for."""
        scope: dict[str, Any] = {name: getattr(streams, name) for name in streams.__all__}
        scope |= {"MarbleError": MarbleError, "asyncio": asyncio}
        values: dict[str, Any] = {}
        for name, definition in self.definitions.items():
            scope[name] = values[name] = eval(definition, scope)
        values = {name: value for name, value in values.items() if len(name) == 1}
        for name, line in self.sources.items():
            # What `#` stands for is said of the results; a source fails with MarbleError.
            source = marble(line, {each: value for each, value in values.items() if each != "#"})
            scope[name] = source.first() if name.startswith("mono") else source
        return scope, values


def marble_examples(docstring: str) -> Iterator[MarbleExample]:
    """The ``Marble::`` blocks of a docstring."""
    lines = inspect.cleandoc(docstring).splitlines()
    for number, line in enumerate(lines):
        if line.strip() != "Marble::":
            continue
        block: list[str] = []
        for each in lines[number + 1 :]:
            if each.strip() and len(each) - len(each.lstrip()) <= len(line) - len(line.lstrip()):
                break
            block.append(each)
        yield MarbleExample.parse("\n".join(block).strip("\n"))
