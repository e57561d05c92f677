"""The text of a loop: the fragments of a segment's operators, between a head and a tail.

A loop has a **head**, where elements come from, and a **tail**, where they go:

========  =====================================================================================
head
========  =====================================================================================
iterable  ``for x in source``
queue     elements that the source appends to a deque (an asynchronous boundary)
poll      elements that a hand-written stage composes (``merge``, ``zip``)
segment   the segment above, when a chain had to be cut in two
========  =====================================================================================

========  =====================================================================================
tail
========  =====================================================================================
push      ``on_next(x)`` as long as there is demand, then stop with ``yield``
segment   hand ``x`` to the segment below
pull      ``yield x`` to a plain ``for``
async     ``yield x`` to an ``async for``
========  =====================================================================================

A push loop is a generator that yields only to stop working: ``yield False`` says "out of demand",
``yield True`` says "out of elements". It polls **one** word for demand and cancellation, ``S.stop_at``, which
is -1 once the subscription is cancelled; that is all the bookkeeping that an element pays for.

A loop that is **free** runs over a collection, for a subscriber that has requested everything. Nothing but an
end can stop it, so it polls ``S.sated``, which is no comparison. It does not count what it sends either: the
iterator knows how many elements are left, and the loop counts those that it left out, which is ``d``. See
:mod:`.pull`.

Where the subscriber is an :class:`~.link.ElementInbox`, the loop does not call ``on_next``. It appends the
element itself, and wakes the reader of the inbox if that is waiting.

When a chain had to be cut, only the lowest segment counts what it sends. It sets ``S.sated`` when the demand
is used up; those above then send ``FULL`` instead of another element, and ``PENDING`` if there is none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from penstock.streams.fusion.fragments import Kind

__all__ = ["SOURCE", "TAIL", "Head", "LoopWriter", "Tail"]

FAIR_TIME = 0.001
"""An ``async for`` over a synchronous stream lets others run after this many seconds …"""
HANDFUL = 32
"""… and looks at the clock after this many elements."""

SOURCE = -1
"""Owner of a line that takes an element from the source."""
TAIL = -2
"""Owner of a line that calls the subscriber."""


class Head(Enum):
    """Where a loop's elements come from."""

    ITERABLE = "iterable"
    QUEUE = "queue"
    POLL = "poll"
    SEGMENT = "segment"

    __hash__ = object.__hash__  # each subscription looks up its loop by these


class Tail(Enum):
    """Where a loop's elements go."""

    PUSH = "push"
    SEGMENT = "segment"
    PULL = "pull"
    ASYNC = "async"

    __hash__ = object.__hash__


@dataclass(slots=True)
class LoopWriter:
    """Writes the loop of one segment from the fragments of its operators."""

    head: Head
    kinds: tuple[Kind, ...]
    tail: Tail
    watched: bool
    trusted: bool
    paced: bool = False
    free: bool = False
    inbox: bool = False
    lines: list[str] = field(default_factory=list)
    owner: dict[int, int] = field(default_factory=dict)
    depth: int = 1
    nested: int = 0
    """User loops (``flat``) that are open around the current line."""

    @property
    def no_demand(self) -> str:
        """The condition to poll. Only the lowest segment counts what was sent; it tells those above."""
        return "e >= S.stop_at" if self.tail is Tail.PUSH and not self.free else "S.sated"

    @property
    def counts_what_is_left_out(self) -> bool:
        """Whether the number of elements sent follows from the number taken: ``d`` of these were not sent.

        Operators that gather elements leave most of them out, and so they count what they send.
        """
        return self.free and not any(kind.gathers for kind in self.kinds)

    @property
    def emitted(self) -> str:
        """How many elements have been sent."""
        return "S.passed() - d" if self.counts_what_is_left_out else "e"

    @property
    def managed(self) -> bool:
        """Whether a drain (``S``) runs this loop, not a plain ``for``."""
        return self.tail in (Tail.PUSH, Tail.SEGMENT)

    def text(self) -> str:
        """The whole function."""
        self._signature()
        if self.watched and not self.managed:
            self._line("try:")
            self.depth += 1
        depth = self.depth
        for index, kind in enumerate(self.kinds):
            self._fragment(index, kind.setup)
        leads = bool(self.kinds and self.kinds[-1].lead)
        if leads:
            self._fragment(len(self.kinds) - 1, self.kinds[-1].lead)
        if leads or self.tail is Tail.SEGMENT:
            self._wait_before_the_next()  # a lead, here or in a segment below, may have used up the demand
        self._open_head()
        self._body()
        if self.tail is Tail.ASYNC or self.paced:
            self._close_head_of_handfuls()
        self.depth, self.nested = depth, 0
        self._ending()
        if self.watched and not self.managed:
            self.depth -= 1
            for line in (
                "except Exception as error:",
                "    raise S.failed(error)",
                "finally:",
                "    S.close()",
            ):
                self._line(line)
        return "\n".join(self.lines) + "\n"

    # ---------------------------------------------------------------- the frame round the operators
    def _line(self, text: str, owner: int = SOURCE) -> None:
        self.lines.append("    " * self.depth + text)
        self.owner[len(self.lines)] = owner

    def _signature(self) -> None:
        parameters = ["S", "src", "out", "none", "base"]
        for index, kind in enumerate(self.kinds):
            parameters += [f"{'ab'[which]}{index}" for which in kind.uses]
            parameters += [f"s{index}"] if kind.state else []
        self.depth = 0
        kind_of_function = "async def" if self.tail is Tail.ASYNC else "def"
        self._line(f"{kind_of_function} loop({', '.join(parameters)}):")
        self.depth = 1
        if self.tail is Tail.PUSH:
            self._line("d = 0" if self.counts_what_is_left_out else "e = 0")
        if self.inbox:
            self._line("keep = out.append")
        if self.head is Head.POLL and self.tail is Tail.PUSH:
            self._line("pushed = False")
        if self.head is Head.QUEUE:
            self._line("t = 0")
            self._line("popleft = src.popleft")
        if not self.managed:
            self._line("if False: yield")  # so that a loop that sends nothing is a generator, too
        if self.tail is Tail.ASYNC:
            self._line(f"late = monotonic() + {FAIR_TIME}")

    def _open_head(self) -> None:
        if self.head is Head.QUEUE:
            self._queue_head()
        elif self.head is Head.POLL:
            self._poll_head()
        elif self.tail is Tail.ASYNC:
            self._async_head()
        elif self.paced:
            self._paced_head()
        else:
            self._line("for x in src:")
            self.depth += 1
            if self.head is Head.SEGMENT and self.managed:
                self._line("if x is PENDING:")
                self._suspend(starved=True, then="continue")
                self._line("if x is FULL:")
                self._suspend(starved=False, then="continue")

    def _async_head(self) -> None:
        """Elements in handfuls, and a look at the clock between them.

        A counter would cost more than the handful does, and a turn of the event loop as much as fifty
        elements, so it is the clock that decides whether others run.
        """
        self._line("while True:")
        self.depth += 1
        self._let_others_run()
        self._handful()

    def _paced_head(self) -> None:
        """The same for a loop that a drain runs: when its time is over, it stops and rests."""
        self._line("while True:")
        self.depth += 1
        self._line("if monotonic() > S.home.late and S.rests():")
        self._suspend(starved=False, then="continue")
        self._handful()

    def _handful(self) -> None:
        self._line("x = NOTHING")
        self._line(f"for x in islice(src, {HANDFUL}):")
        self.depth += 1

    def _let_others_run(self) -> None:
        self._line("if monotonic() > late:")
        self._line("    await out()")
        self._line(f"    late = monotonic() + {FAIR_TIME}")

    def _close_head_of_handfuls(self) -> None:
        """A break of the inner loop ends the outer one, too."""
        self.depth -= 1
        self._line("else:")
        self._line("    if x is NOTHING:")  # not one element: the source is at its end
        self._line("        break")
        self._line("    continue")
        self._line("break")

    def _queue_head(self) -> None:
        self._line("while True:")
        self.depth += 1
        self._line("if not src:")
        self._line("    if S.done and not src:")
        self._line("        break")
        self._await_element()
        self._line(f"elif {self.no_demand}:")
        self._suspend(starved=False, then="continue")
        self._line("else:")
        self._line("    try:")
        self._line("        x = popleft()")
        self._line("    except IndexError:")
        self._line("        continue")  # another thread has cancelled, and taken what was left
        self._line("t += 1")
        self._line("if t >= S.refill_at:")
        self._line("    S.taken = t")
        self._line("    S.refill()")

    def _poll_head(self) -> None:
        self._line("while True:")
        self.depth += 1
        if self.tail is Tail.PUSH:
            # After an element that was pushed there is nothing to poll, or the drain will say so.
            self._line(f"if pushed or {self.no_demand} or (x := src()) is PENDING:")
            self._line("    if not pushed and S.finished():")
        else:
            self._line(f"if {self.no_demand} or (x := src()) is PENDING:")
            self._line("    if S.finished():")
        self._line("        break")
        self._await_element()

    def _await_element(self) -> None:
        """Wait for an element. The drain resumes the loop, or sends it an element that is first in line."""
        self._line("    x = None")  # while it waits, the loop must not keep a delivered element alive
        if self.tail is Tail.PUSH:
            self._suspend(starved=True, into="x = ")
            if not self.kinds and self.head is Head.QUEUE:
                self._line("    e = S.emitted")  # elements may have gone past the loop: see QueueDrain.push()
                self._line("    t = S.taken")
            if self.head is Head.POLL:
                self._line("    pushed = x is not None")
            self._line("    if x is None: continue")
        else:
            self._suspend(starved=True, then="continue")

    def _suspend(self, *, starved: bool, then: str = "", into: str = "") -> None:
        """Stop until there is demand (or an element) again, one level deeper than here."""
        self.depth += 1
        if self.tail is Tail.PUSH:
            self._line(f"S.emitted = {self.emitted}")
        if self.head is Head.QUEUE:
            self._line("S.taken = t")
        token = "PENDING" if starved else "FULL"
        self._line(f"{into}yield {token if self.tail is Tail.SEGMENT else starved}")
        if then:
            self._line(then)
        self.depth -= 1

    # ---------------------------------------------------------------- the operators
    def _body(self) -> None:
        pending_afters: list[list[tuple[int, Kind]]] = [[]]
        checked = self.trusted or self.head is Head.SEGMENT  # the segment above has checked
        for index, kind in enumerate(self.kinds):
            if kind.body and not checked:
                self._refuse_none(index - 1)
                checked = True
            self._fragment(index, kind.body, pending_afters[-1])
            checked = checked and not kind.assigns
            if kind.opens:
                self.depth += 1
                self.nested += 1
                pending_afters.append([])
            if kind.after:
                pending_afters[-1].append((index, kind))
        falls_through = not (self.kinds and self.kinds[-1].body[-1:] == ("DROP",))
        if falls_through:
            self._emit(checked=checked)
        while pending_afters:
            afters = pending_afters.pop()
            for index, kind in reversed(afters):
                self._fragment(index, kind.after)
            if falls_through:
                # After the endings of the innermost loop: take(n) completes without further demand.
                self._wait_before_the_next()
                falls_through = False
            if pending_afters:
                self.depth -= 1
                self.nested -= 1
                self._look_up_after_a_nested_loop()

    def _look_up_after_a_nested_loop(self) -> None:
        if self.managed and (self.nested or self.head in (Head.ITERABLE, Head.SEGMENT)):
            # It may have had no element, and then nothing has checked whether to go on.
            self._line("if S.halted:")
            self._suspend(starved=False)

    def _wait_before_the_next(self) -> None:
        """If the last element has used up the demand, take no further one, but notice the end of the source.

        A queue and a poll look before they take. An iterable that is known to be at its end may be asked once
        more: it completes. A segment above is told, and says whether it is at its end or just waits.
        """
        at_top = self.nested == 0
        if self.tail is Tail.ASYNC and not at_top:
            self._let_others_run()  # the inner loop of one element may be endless
        if not self.managed or (at_top and self.head in (Head.QUEUE, Head.POLL)):
            return
        if at_top and self.head is Head.SEGMENT:
            if self.tail is Tail.PUSH:
                self._line("if e >= S.stop_at:", TAIL)
                self._line("    S.sated = True", TAIL)
            return
        if at_top and self.free:
            self._line("if S.sated:", TAIL)
            self._suspend(starved=False)
            return
        if at_top and self.tail is Tail.PUSH:
            self._line("if e >= S.stop_at:", TAIL)
            self._line("    S.emitted = e")
            self._line("    if not S.mailbox or not S.more():")
            self._line("        yield False")
            return
        if at_top:
            self._line("while S.sated and not S.at_end:", TAIL)
        else:
            self._line(f"while {self.no_demand}:", TAIL)
        self._suspend(starved=False)

    def _fragment(
        self,
        index: int,
        lines: tuple[str, ...],
        afters: list[tuple[int, Kind]] | None = None,
    ) -> None:
        for line in lines:
            word = line.strip()
            indent = (len(line) - len(line.lstrip())) // 4
            self.depth += indent
            if word == "DROP":
                self._drop(afters or [])
            elif word == "STOP":
                if afters is not None and self.counts_what_is_left_out:
                    self._line("d += 1")
                self._stop(index)
            elif word == "EMIT":
                self._emit(wait_first=True)
            else:
                names = {name: f"{name}{index}" for name in "abs"}
                self._line(word.format(**names), index)
            self.depth -= indent

    def _drop(self, afters: list[tuple[int, Kind]]) -> None:
        if self.counts_what_is_left_out:
            self._line("d += 1")
        for index, kind in reversed(afters):
            self._fragment(index, kind.after)
        if self.managed and (self.head in (Head.ITERABLE, Head.SEGMENT) or self.nested):
            # A dropped element emits nothing, so nothing else would check whether to go on.
            self._line("if S.halted:")
            self._suspend(starved=False)
        if self.tail is Tail.ASYNC and self.nested:
            self._let_others_run()
        self._line("continue")

    def _stop(self, index: int) -> None:
        if self.managed:
            self._line(f"S.stopped = base + {index}")
        last = len(self.kinds) - 1
        flush_is_due = bool(self.kinds[last].flush) and index < last
        if self.nested == 0 and (flush_is_due or not self.kinds[last].flush):
            self._line("break")
            return
        if self.tail is Tail.PUSH:
            self._line(f"S.emitted = {self.emitted}")
        self._announce_end()
        self._line("return")

    def _emit(self, *, wait_first: bool = False, checked: bool = False) -> None:
        if wait_first and self.managed:
            self._line(f"while {self.no_demand}:", TAIL)
            self._suspend(starved=False)
        if not checked:
            self._refuse_none(len(self.kinds) - 1)
        if self.tail is Tail.PUSH:
            self._hand_over()
            if not self.counts_what_is_left_out:
                self._line("e += 1")
            elif wait_first:
                self._line("d -= 1")  # it was not taken from the source
        else:
            self._line("yield x", TAIL)

    def _hand_over(self) -> None:
        if not self.inbox:
            self._line("out(x)", TAIL)
            return
        self._line("keep(x)", TAIL)
        self._line("if out.idle:", TAIL)  # after it is there: see ElementInbox
        self._line("    out.wake()", TAIL)

    def _refuse_none(self, upto: int) -> None:
        """§2.13: ``None`` cannot be an element. The operator that last assigned ``x`` is to blame."""
        culprit = next((i for i in range(upto, -1, -1) if self.kinds[i].assigns), SOURCE)
        where = "base - 1" if culprit == SOURCE else f"base + {culprit}"
        self._line("if x is None:", culprit)
        self._line(f"    raise none({where})", culprit)

    # ---------------------------------------------------------------- the end
    def _ending(self) -> None:
        self._announce_end()
        last = len(self.kinds) - 1
        if self.kinds and self.kinds[last].flush:
            self._fragment(last, self.kinds[last].flush)
        if self.tail is Tail.PUSH:
            self._line(f"S.emitted = {self.emitted}")

    def _announce_end(self) -> None:
        if self.watched and self.managed:
            self._line(f"S.ended(base, base + {len(self.kinds)})")
