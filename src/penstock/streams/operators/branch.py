"""One part of a stream that was split: a queue with one reader, and the stream that the reader sees."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.spec import Subscriber
from penstock.streams.errors import Place
from penstock.streams.fusion import Op, Pausable, QueueDrain
from penstock.streams.operators.sources import FailedSource
from penstock.streams.source import Source

if TYPE_CHECKING:
    from penstock.streams.operators.splitter import Splitter

__all__ = ["Branch", "BranchReader", "BranchSource", "attach_reader"]

REPORT_EVERY = 64
"""A busy reader says after this many elements that it has taken them; an idle one says so at once."""


class Branch:
    """The part of a stream that one reader gets, and that reader's Subscription."""

    __slots__ = (
        "_splitter",
        "_unclaimed",
        "ended",
        "error",
        "given",
        "gone",
        "label",
        "queue",
        "reader",
        "taken",
    )

    def __init__(self, splitter: Splitter, label: str) -> None:
        self._splitter = splitter
        self._unclaimed = [True]
        self.label = label
        self.queue: deque[Any] = deque()
        self.reader: Subscriber[Any] | None = None
        self.given = 0
        """How many elements the splitter has put in; only its owner counts, as with ``taken``."""
        self.taken = 0
        self.ended = False
        """No further element comes."""
        self.gone = False
        """Nobody wants its elements any more."""
        self.error: BaseException | None = None

    def claim(self) -> bool:
        """Whether this is the first subscriber; a branch has only one."""
        try:
            return self._unclaimed.pop()
        except IndexError:
            return False

    @property
    def claimed(self) -> bool:
        """Whether somebody has subscribed."""
        return not self._unclaimed

    def join(self, reader: Subscriber[Any]) -> None:
        """The subscriber is ready; it gets what waits, and what comes."""
        self._splitter.post(self._splitter.joined, self, reader)

    # ---------------------------------------------------------------- what the reader calls
    def request(self, n: int, /) -> None:
        """The reader has taken ``n`` elements out of the queue."""
        self._splitter.post(self._splitter.took, self, n)

    def cancel(self) -> None:
        self._splitter.post_from_cancel(self._splitter.left, self)

    def read_out(self) -> None:
        """The reader has taken the last element, and did not say so: it has ended with that."""
        if self._splitter.counts_bytes:
            self._splitter.post_from_cancel(self._splitter.took, self, 0)

    def size_of_one(self) -> int | None:
        """About how many bytes an element was made of, if that is known."""
        above = self._splitter.upstream
        return above.size_of_one() if isinstance(above, Pausable) else None

    @property
    def large(self) -> int | None:
        """How many elements to ask for at a time, if they can be large."""
        return self._splitter.large

    def desert(self) -> None:
        """The program has let go of the stream and did not read it. The garbage collector calls this."""
        if not self.ended or self._splitter.counts_bytes:
            self._splitter.post_from_collector(self._splitter.left, self)

    # ---------------------------------------------------------------- what the splitter's owner calls
    def give(self, element: Any) -> None:
        """Put an element in, unless nobody wants it."""
        self.given += 1
        if self.gone:
            return
        if self.reader is None:
            self.queue.append(element)
        else:
            self.reader.on_next(element)

    def end(self, error: BaseException | None) -> None:
        """Nothing more comes; the end follows what waits."""
        self.ended = True
        self.error = error
        if self.reader is not None:
            self.tell_end(self.reader)

    def tell_end(self, reader: Subscriber[Any]) -> None:
        """Send the reader the end, unless it has left."""
        if self.gone:
            return
        error, self.error = self.error, None
        if error is None:
            reader.on_complete()
        else:
            reader.on_error(error)


class BranchReader(QueueDrain):
    """Runs the operators below a branch over the branch's own queue, and says how much it has taken."""

    __slots__ = ("_told",)

    def __init__(
        self,
        branch: Branch,
        ops: tuple[Op, ...],
        downstream: Subscriber[Any],
        name: str,
        place: Place | None,
    ) -> None:
        super().__init__(ops, downstream, name, place)
        self.queue = branch.queue
        self._told = 0
        self.refill_at = REPORT_EVERY

    def wanted(self) -> int:
        """What was taken and not reported yet; the splitter may ask the source for as many."""
        if self.upstream is None:
            return 0  # it reads what waits, and joins in a moment
        fresh, self._told = self.taken - self._told, self.taken
        return fresh

    def refill(self) -> None:
        self.refill_at += REPORT_EVERY
        self.ask(self.wanted())

    def can_pause(self) -> bool:
        """What waits here is bounded by the splitter."""
        return True

    def size_of_one(self) -> int | None:
        return self.upstream.size_of_one() if isinstance(self.upstream, Branch) else None

    def release(self) -> None:
        branch = self.upstream
        super().release()
        if self.done and isinstance(branch, Branch):
            branch.read_out()


class BranchSource(Source):
    """A branch as a stream. It can be read once."""

    def __init__(self, branch: Branch, place: Place) -> None:
        # Not Source.__init__: a branch opens while the stream runs, so it belongs to the splitter's place.
        self.label = branch.label
        self.place = place
        self._branch = branch
        self.ahead = branch.large

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        branch = self._branch
        if not branch.claim():
            error = RuntimeError(
                f"{self.label} was subscribed to before, and its elements pass only once; "
                "put share() or cache() on it for several subscribers"
            )
            FailedSource(error, self.label).attach(ops, downstream)
            return
        self.begin(ops, downstream)

    def begin(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        """The one subscriber has come."""
        attach_reader(self._branch, ops, downstream, self.label, self.place)

    def runs_on(self) -> str:
        return "source"

    def __del__(self) -> None:
        if not self._branch.claimed:
            self._branch.desert()


def attach_reader(
    branch: Branch, ops: tuple[Op, ...], downstream: Subscriber[Any], name: str, place: Place
) -> None:
    """Subscribe ``downstream``, through ``ops``, to a branch that it has claimed."""
    reader = BranchReader(branch, ops, downstream, name, place)
    reader.introduce()
    if reader.closed:
        branch.cancel()
    else:
        branch.join(reader)
