"""Operators as a plain function, for a stage that has several elements at hand and all of them on one thread.

Most chains run in a generator, which a drain can stop and resume at any element. Operators that keep nothing
from one element to the next can be run over a list instead, as often as there is one: a socket that has
received hundreds of lines does so. The function is called with the elements, and calls ``out`` for each
result.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable
from functools import lru_cache
from types import FunctionType
from typing import Any

from penstock.spec import none_element
from penstock.streams.errors import Place
from penstock.streams.fusion.codegen import Head, LoopWriter, Tail
from penstock.streams.fusion.compiler import CompiledLoop, Shape, cut
from penstock.streams.fusion.fragments import LOOP_NAMES, Kind
from penstock.streams.fusion.op import Op
from penstock.streams.fusion.pull import Pulled

__all__ = ["Piecewise"]


class Piecewise:
    """A run of operators as a function of some elements."""

    def __init__(self, ops: tuple[Op, ...], name: str, place: Place) -> None:
        self._ops = ops
        self._name = name
        self._loop = _compiled(tuple([op.kind for op in ops]))
        self._pulled = Pulled(ops, Shape((self._loop,), (0,), False), name, place)

    @staticmethod
    def suits(ops: tuple[Op, ...]) -> bool:
        """Whether these operators make at most one element of each, and keep nothing between two."""
        kinds = tuple([op.kind for op in ops])
        return not any(op.watch is not None or _keeps(op.kind) for op in ops) and len(cut(kinds)) == 1

    def into(self, out: Callable[[Any], object]) -> Callable[[None, Iterable[Any]], None]:
        """The function. Its first argument is None: a drain would be there."""
        values = [op.args[which] for op in self._ops for which in op.kind.uses]
        # A copy of the code, as in compiler.run(), and the arguments as defaults: a call passes two.
        defaults = (out, self._none, 0, *values)
        return FunctionType(self._loop.code.replace(), self._loop.function.__globals__, None, defaults)

    def failed(self, error: BaseException) -> BaseException:
        """What the function raised, with a note that names the operator."""
        return self._pulled.failed(error) if isinstance(error, Exception) else error

    def _none(self, index: int) -> Exception:
        return none_element(self._ops[index].label if index >= 0 else self._name)


class _CallWriter(LoopWriter):
    """Writes a function that calls ``out`` with each element."""

    def _signature(self) -> None:
        super()._signature()
        self.lines.pop()  # the line that would make a generator of it

    def _emit(self, *, wait_first: bool = False, checked: bool = False) -> None:
        super()._emit(wait_first=wait_first, checked=checked)
        self.lines[-1] = self.lines[-1].replace("yield x", "out(x)")


@lru_cache(maxsize=1024)
def _compiled(kinds: tuple[Kind, ...]) -> CompiledLoop:
    writer = _CallWriter(Head.ITERABLE, kinds, Tail.PULL, watched=False, trusted=False)
    text = writer.text()
    filename = f"<penstock piecewise: {' '.join(kind.name for kind in kinds)}>"
    names = dict(LOOP_NAMES)
    exec(compile(text, filename, "exec"), names)
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    function = names["loop"]
    return CompiledLoop(function, function.__code__, text, len(kinds), writer.owner)


def _keeps(kind: Kind) -> bool:
    """Whether such an operator remembers anything, ends the stream, or makes several elements of one."""
    return bool(kind.setup or kind.state or kind.lead or kind.after or kind.flush or kind.opens) or kind.stops
