"""What each synchronous operator contributes to a compiled loop, as text.

A run of synchronous operators is compiled into **one** Python function (see :mod:`.compiling`), the way
``dataclasses`` writes ``__init__``. An operator therefore is not a class with an ``on_next`` but a
:class:`Kind`: a few lines of source that the compiler strings together. The lines see

* ``x``: the element on its way down; a line that makes another element assigns ``x``;
* ``{a}``, ``{b}``: the operator's arguments (``map``'s function, ``take``'s count);
* ``{s}``: the operator's own variable, made by ``setup`` lines or, if the drain has to see it, by the
  ``state`` factory;
* ``NOTHING``: a marker that no element can be.

and three words, each on a line of its own, which become different code in each kind of loop:

* ``DROP``: leave this element out, and take the next one;
* ``STOP``: complete here, although the source may have more;
* ``EMIT``: send ``x`` on; only in ``lead`` and ``flush``, since ``body`` always falls through to the
  next operator.

The user's functions are arguments of the compiled function; no text of theirs gets into these lines.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from penstock.arguments import describe
from penstock.spec import UNBOUNDED

__all__ = ["KINDS", "NOTHING", "HandleSink", "Kind", "WeightedBatch"]

R = TypeVar("R")


class _Nothing:
    """The marker for "no element yet". It is not ``None``, because a mapper may return that by mistake."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING: Any = _Nothing()

Demand = Callable[[int, tuple[Any, ...], Any], int]


def _same(demand: int, args: tuple[Any, ...], state: Any) -> int:
    return demand


def _everything(demand: int, args: tuple[Any, ...], state: Any) -> int:
    """A fold emits one element after it has seen all: with any demand it needs everything."""
    return UNBOUNDED if demand > 0 else 0


def _what_is_left(demand: int, args: tuple[Any, ...], state: Any) -> int:
    """``take(n)`` never asks upstream for more than it will pass on."""
    left: int = state[0]
    return min(demand, left)


def _what_is_skipped_too(demand: int, args: tuple[Any, ...], state: Any) -> int:
    """``skip(n)`` asks for the elements it will drop together with those that are wanted."""
    return demand + state[0] if demand > 0 else 0


def _what_is_held_too(demand: int, args: tuple[Any, ...], state: Any) -> int:
    """``skip_last(n)`` holds n elements back before the first can pass."""
    return demand + args[0] - len(state) if demand > 0 else 0


def _up_to_the_one(demand: int, args: tuple[Any, ...], state: Any) -> int:
    """Whatever the demand, one element is wanted, and those before it."""
    return _what_is_skipped_too(min(demand, 1), args, state)


def _a_buffer_each(demand: int, args: tuple[Any, ...], state: Any) -> int:
    """``buffer(n)`` needs n elements for each list, less those it has already."""
    return max(0, demand * args[0] - len(state)) if demand > 0 else 0


def _sliding_buffer(demand: int, args: tuple[Any, ...], state: Any) -> int:
    """Lists that overlap or leave gaps: the first takes ``size`` elements, each later one ``skip`` more."""
    buffers: SlidingBuffers = state
    return buffers.missing(demand) if demand > 0 else 0


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One synchronous operator, as data."""

    name: str
    body: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    lead: tuple[str, ...] = ()
    """Lines before the first element is taken (``start_with``)."""
    after: tuple[str, ...] = ()
    """Lines after everything below has seen the element, also if it was dropped there (``take``)."""
    flush: tuple[str, ...] = ()
    """Lines after the last element (``buffer``'s rest, a fold's result)."""
    state: Callable[..., Any] | None = None
    demand: Demand = _same
    """How many elements to ask of upstream so that this many can be sent down."""
    assigns: bool = False
    """The body makes a new ``x``, so this operator is to blame for a ``None`` in it."""
    opens: bool = False
    """The last body line opens a loop: everything below runs inside it (``flat_map_iterable``)."""
    uses: tuple[int, ...] = field(init=False)
    """Which arguments the text names; the others only made the state."""

    def __post_init__(self) -> None:
        text = "".join(self.body + self.setup + self.lead + self.after + self.flush)
        object.__setattr__(self, "uses", tuple(i for i, name in enumerate("ab") if f"{{{name}}}" in text))

    @property
    def ends_segment(self) -> bool:
        """Whether this operator emits before the first or after the last element.

        Such elements must pass through all operators below it. With these in the next segment, that is plain
        control flow instead of a second copy of their text.
        """
        return bool(self.lead or self.flush)

    @property
    def gathers(self) -> bool:
        """Whether it holds elements back, and sends few for many or none (``buffer``, a fold, ``ignore``)."""
        drops = any("DROP" in line for line in self.body)
        return drops and (bool(self.flush) or self.body[-1] == "DROP")

    @property
    def stops(self) -> bool:
        """Whether this operator can end the stream early."""
        return any("STOP" in line for line in self.body + self.after)


class SlidingBuffers:
    """The unfinished lists of ``buffer(size, skip)`` with ``skip != size``."""

    __slots__ = ("_filled", "_open", "_seen", "_size", "_skip")

    def __init__(self, size: int, skip: int) -> None:
        self._size = size
        self._skip = skip
        self._seen = 0
        self._filled = 0
        self._open: list[list[Any]] = []

    def push(self, element: Any) -> list[Any] | None:
        """Add an element to every unfinished list; return the list that it fills, if any."""
        if self._seen % self._skip == 0:
            self._open.append([])
        self._seen += 1
        for unfinished in self._open:
            unfinished.append(element)
        if self._open and len(self._open[0]) == self._size:
            self._filled += 1
            return self._open.pop(0)
        return None

    def missing(self, lists: int) -> int:
        """How many more elements fill this many more lists."""
        return (self._filled + lists - 1) * self._skip + self._size - self._seen

    def rest(self) -> list[list[Any]]:
        """The lists that are unfinished when the stream ends."""
        rest, self._open = self._open, []
        return rest


class WeightedBatch:
    """The unfinished list of ``batch_weighted``, and what it weighs."""

    __slots__ = ("_heavy", "_list", "_most", "_weight")

    def __init__(self, most: float, weight: Callable[[Any], float]) -> None:
        self._most = most
        self._weight = weight
        self._list: list[Any] = []
        self._heavy: float = 0

    def push(self, element: Any) -> list[list[Any]]:
        """Add an element; return the lists that are finished by it, none, one or two."""
        weight = self._weight(element)
        if not weight >= 0:  # written so that NaN is refused, too
            raise ValueError(f"batch_weighted() needs a weight of at least 0, not {weight!r}")
        finished = self.rest() if self._heavy + weight > self._most else []
        self._list.append(element)
        self._heavy += weight
        return finished if self._heavy < self._most else finished + self.rest()

    def rest(self) -> list[list[Any]]:
        """The list so far, if it has any element; the next one begins empty."""
        rest = [self._list] if self._list else []
        self._list, self._heavy = [], 0
        return rest


class RunOfKey:
    """The unfinished list of ``buffer_until_changed``: neighbours with the same key."""

    __slots__ = ("_key", "_key_of", "_list")

    def __init__(self, key_of: Callable[[Any], Any] | None) -> None:
        self._key_of = key_of
        self._key: Any = None
        self._list: list[Any] = []

    def push(self, element: Any) -> list[list[Any]]:
        """Add an element; return the list before it, if that had another key."""
        key = element if self._key_of is None else self._key_of(element)
        finished = [] if not self._list or key == self._key else self.rest()
        self._key = key
        self._list.append(element)
        return finished

    def rest(self) -> list[list[Any]]:
        """The list so far, if it has any element; the next one begins empty."""
        rest = [self._list] if self._list else []
        self._list = []
        return rest


class HandleSink(Generic[R]):
    """Passed to the function of ``handle``: call ``next(y)`` once, ``complete()``, both or neither."""

    __slots__ = ("completed", "value")

    def __init__(self) -> None:
        self.value: Any = NOTHING
        self.completed = False

    def next(self, element: R, /) -> None:
        """Send ``element`` on in place of the one that came in."""
        if self.value is not NOTHING:
            raise RuntimeError(
                "handle() may emit one element for each that comes in; for several use flat_map_iterable()"
            )
        self.value = element

    def complete(self) -> None:
        """End the stream after this element."""
        self.completed = True


def _not_that_type(expected: Any, element: Any) -> TypeError:
    return TypeError(f"cast({expected.__name__}) met {describe(element)}, a {type(element).__name__}")


_LAST_SEEN = ("if {s} is not NOTHING:", "    x = {s}", "    EMIT")
_RESULT = ("x = {s}", "EMIT")
_REST_OF_BUFFER = ("if {s}:", "    x = {s}", "    EMIT")


def _fold(name: str, setup: str, *body: str, flush: tuple[str, ...] = _RESULT) -> Kind:
    """Everything in, at most one out; the result is kept in ``{s}`` until the end."""
    lines = (*body, "DROP")
    return Kind(name, lines, (setup,), flush=flush, demand=_everything, assigns=True)


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        # one in, one out
        Kind("map", ("x = {a}(x)",), assigns=True),
        Kind("tap", ("{a}(x)",)),
        Kind("index", ("{s} += 1", "x = ({s}, x)"), ("{s} = -1",), assigns=True),
        Kind("scan", ("x = {s} = x if {s} is NOTHING else {a}({s}, x)",), ("{s} = NOTHING",), assigns=True),
        Kind("scan_from", ("x = {s} = {a}({s}, x)",), ("{s} = {b}()",), ("x = {s}", "EMIT"), assigns=True),
        Kind(
            "elapsed",
            ("k = {a}()", "x = (k - {s}[0], x)", "{s}[0] = k"),
            state=lambda clock: [clock()],
            assigns=True,
        ),
        Kind("timestamp", ("x = ({a}(), x)",), assigns=True),
        Kind("cast", ("if not isinstance(x, {a}):", "    raise not_that_type({a}, x)")),
        # one in, none or one out
        Kind("filter", ("if not {a}(x):", "    DROP")),
        Kind("map_not_none", ("x = {a}(x)", "if x is None:", "    DROP"), assigns=True),
        Kind("of_type", ("if not isinstance(x, {a}):", "    DROP")),
        Kind(
            "skip",
            ("if {s}[0]:", "    {s}[0] -= 1", "    DROP"),
            state=lambda n: [n],
            demand=_what_is_skipped_too,
        ),
        Kind(
            "skip_last",
            ("{s}.append(x)", "if len({s}) <= {a}:", "    DROP", "x = {s}.popleft()"),
            state=lambda n: deque(),
            demand=_what_is_held_too,
            assigns=True,
        ),
        Kind(
            "skip_while",
            ("if {s}:", "    if {a}(x):", "        DROP", "    {s} = False"),
            ("{s} = True",),
        ),
        Kind("distinct", ("k = {a}(x)", "if k in {s}:", "    DROP", "{s}.add(k)"), state=lambda key: set()),
        Kind(
            "distinct_until_changed",
            ("k = {a}(x)", "if {s} is not NOTHING and {s} == k:", "    DROP", "{s} = k"),
            ("{s} = NOTHING",),
        ),
        Kind("ignore", ("DROP",), demand=_everything),
        Kind(
            "handle",
            (
                "{a}(x, {s})",
                "x, {s}.value = {s}.value, NOTHING",
                "if x is NOTHING:",
                "    if {s}.completed:",
                "        STOP",
                "    DROP",
            ),
            after=("if {s}.completed:", "    STOP"),
            state=lambda handler: HandleSink(),
            assigns=True,
        ),
        # one in, many out
        Kind("flat", ("for x in {a}(x):",), assigns=True, opens=True),
        # an early end
        Kind(
            "take",
            ("{s}[0] -= 1",),
            after=("if not {s}[0]:", "    STOP"),
            state=lambda n: [n],
            demand=_what_is_left,
        ),
        Kind("take_while", ("if not {a}(x):", "    STOP")),
        Kind("take_until", ("{s} = {a}(x)",), after=("if {s}:", "    STOP")),
        Kind(
            "element_at",
            ("if {s}[0]:", "    {s}[0] -= 1", "    DROP"),
            after=("STOP",),
            flush=("x = {b}({s}[0])", "EMIT"),
            state=lambda index, missing: [index],
            demand=_up_to_the_one,
        ),
        # something before the first or after the last
        Kind("start_with", lead=("for x in {a}:", "    EMIT")),
        Kind(
            "default_if_empty",
            ("{s} = False",),
            ("{s} = True",),
            flush=("if {s}:", "    x = {a}", "    EMIT"),
        ),
        Kind("do_on_success", ("{s} = False", "{a}(x)"), ("{s} = True",), flush=("if {s}:", "    {a}(None)")),
        Kind(
            "buffer",
            ("{s}.append(x)", "if len({s}) < {a}:", "    DROP", "x = {s}.copy()", "{s}.clear()"),
            flush=("if {s}:", "    x = {s}.copy()", "    {s}.clear()", "    EMIT"),
            state=lambda size: [],
            demand=_a_buffer_each,
            assigns=True,
        ),
        Kind(
            "buffer_sliding",
            ("x = {s}.push(x)", "if x is None:", "    DROP"),
            flush=("for x in {s}.rest():", "    EMIT"),
            state=SlidingBuffers,
            demand=_sliding_buffer,
            assigns=True,
        ),
        Kind(
            "buffer_until",
            ("{s}.append(x)", "if not {a}(x):", "    DROP", "x, {s} = {s}, []"),
            ("{s} = []",),
            flush=_REST_OF_BUFFER,
            assigns=True,
        ),
        Kind(
            "buffer_until_before",
            ("if not {a}(x) or not {s}:", "    {s}.append(x)", "    DROP", "x, {s} = {s}, [x]"),
            ("{s} = []",),
            flush=_REST_OF_BUFFER,
            assigns=True,
        ),
        Kind(
            "buffer_while",
            ("if {a}(x):", "    {s}.append(x)", "    DROP", "if not {s}:", "    DROP", "x, {s} = {s}, []"),
            ("{s} = []",),
            flush=_REST_OF_BUFFER,
            assigns=True,
        ),
        Kind(
            "regroup",
            ("for x in {s}.push(x):",),
            flush=("for x in {s}.rest():", "    EMIT"),
            state=lambda make: make(),
            assigns=True,
            opens=True,
        ),
        # everything in, then something out
        Kind(
            "take_last",
            ("{s}.append(x)", "DROP"),
            flush=("for x in {s}:", "    EMIT"),
            state=lambda n: deque(maxlen=min(n, sys.maxsize)),
            demand=_everything,
            assigns=True,
        ),
        Kind(
            "sort",
            ("{s}.append(x)", "DROP"),
            ("{s} = []",),
            flush=("{s}.sort(key={a}, reverse={b})", "for x in {s}:", "    EMIT"),
            demand=_everything,
            assigns=True,
        ),
        # everything in, at most one out
        _fold("reduce", "{s} = NOTHING", "{s} = x if {s} is NOTHING else {a}({s}, x)", flush=_LAST_SEEN),
        _fold("reduce_from", "{s} = {b}()", "{s} = {a}({s}, x)"),
        _fold("collect", "{s} = {a}()", "{b}({s}, x)"),
        _fold("collect_list", "{s} = []", "{s}.append(x)"),
        _fold("count", "{s} = 0", "{s} += 1"),
        _fold("last", "{s} = NOTHING", "{s} = x", flush=_LAST_SEEN),
        _fold(
            "single",
            "{s} = NOTHING",
            "if {s} is not NOTHING:",
            "    raise {a}(True)",
            "{s} = x",
            flush=("if {s} is NOTHING:", "    raise {a}(False)", "x = {s}", "EMIT"),
        ),
        Kind(
            "has_elements",
            ("x = True",),
            after=("STOP",),
            flush=("x = False", "EMIT"),
            demand=lambda demand, args, state: min(demand, 1),
        ),
        Kind(
            "any",
            ("if not {a}(x):", "    DROP", "x = True"),
            after=("STOP",),
            flush=("x = False", "EMIT"),
            demand=_everything,
        ),
        Kind(
            "all",
            ("if {a}(x):", "    DROP", "x = False"),
            after=("STOP",),
            flush=("x = True", "EMIT"),
            demand=_everything,
        ),
        # no line at all: these live in the hooks of the drain
        Kind("watch"),
    )
}

LOOP_NAMES: dict[str, Any] = {"NOTHING": NOTHING, "not_that_type": _not_that_type}
"""Names that the compiled text may use besides its arguments."""
