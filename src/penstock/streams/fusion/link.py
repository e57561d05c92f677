"""The two ends of a drain: what knows its upstream, and what stands in for a subscriber that has left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from penstock.spec import Subscriber, Subscription

__all__ = [
    "GONE",
    "ElementInbox",
    "ExpectsLarge",
    "Link",
    "Pausable",
    "announce_large",
    "is_starving",
    "last_passed",
]


class Pausable:
    """A subscription that its subscriber may stop in spite of open demand, and let go on again.

    Demand cannot be taken back. A queue that has asked for all that it can hold stops what is above it while
    the elements that wait are too large.
    """

    __slots__ = ()

    def can_pause(self) -> bool:
        """Whether :meth:`pause` bounds everything: neither this stage nor those above take more meanwhile."""
        return False

    def pause(self) -> None:
        """Emit nothing more until :meth:`resume`; called by the subscriber inside ``on_next``."""

    def resume(self) -> None:
        """Go on with the open demand; may be called from any thread."""

    def size_of_one(self) -> int | None:
        """About how many bytes one element was made of; None if that is unknown."""
        return None


class ExpectsLarge:
    """A subscriber that can be told that large elements come."""

    __slots__ = ()

    def expect_large(self, step: int) -> bool:
        """Large elements may come from now on; ``step`` is how many of them to ask for at a time.

        The source of such elements says so to its subscriber before it is subscribed to, or when they come,
        and the stages pass it on. So queues hear of streams that nobody knew when they asked for their first
        elements. The answer is whether the next queue below has asked for everything it can hold, and relies
        on :meth:`Pausable.pause`.
        """
        return False


class Link(Pausable, ExpectsLarge):
    """A subscription that knows what stands above it, for a subscriber that has to stop the source.

    Demand cannot be taken back. When a socket is full, its sender walks from link to link up to the source,
    as long as each of them only passes demand on, and holds the source back.
    """

    __slots__ = ()

    passes_demand: ClassVar[bool] = False
    """Whether it asks for no more than it was asked for, so that holding back what is above it bounds it."""
    resizes: ClassVar[bool] = False
    """Whether the sizes of its elements say nothing about those above it, as with frames cut from chunks."""
    lone: bool = True
    """Whether what is pushed here goes nowhere else; otherwise it must go through the queues of all."""
    upstream: Subscription | None = None
    """What it asks for elements; None at the top, or if there are several."""
    downstream: Subscriber[Any]

    def let_pass(self, upstream: Link) -> bool:
        """Whether the elements of ``upstream`` may go past this stage, to its own subscriber.

        A stage that has nothing to do with an element agrees. It still gets the end, and then reads from
        ``upstream`` how many elements there were.
        """
        return False

    def abort(self, error: BaseException) -> None:
        """End with ``error``, in turn with what is just being sent."""

    def hold_back(self) -> bool:
        """Emit nothing until :meth:`go_on`, whatever the demand; False if this is impossible."""
        return False

    def go_on(self) -> None:
        """Emit again what has been asked for."""

    def expect_large(self, step: int) -> bool:
        """What comes from above goes straight down."""
        return announce_large(self.downstream, step)

    def queued(self) -> int:
        """Elements waiting in our own queue."""
        return 0

    def capacity(self) -> int | None:
        """The bound of that queue."""
        return None

    def waiting_bytes(self) -> tuple[int | None, int | None]:
        """How many bytes wait in our own queue, and their bound, as far as bytes are counted."""
        return None, None

    def runs_on(self) -> str:
        """The scheduler that we emit on."""
        return "caller"

    def upstreams(self) -> list[Any]:
        """The subscriptions that feed us, for ``scan()``."""
        return []


def announce_large(subscriber: object, step: int) -> bool:
    """Have a subscriber expect large elements; one that we do not know does not mind their size."""
    return isinstance(subscriber, ExpectsLarge) and subscriber.expect_large(step)


def is_starving(subscriber: Any) -> bool:
    """Whether a subscriber waits for an element now. We believe one that we do not know."""
    ask = getattr(subscriber, "is_starving", None)
    return True if ask is None else ask()


def last_passed(stage: Link) -> Link:
    """The lowest stage that lets the elements of ``stage`` pass; ``stage`` itself if none does."""
    while isinstance(below := stage.downstream, Link) and below.let_pass(stage):
        stage = below
    return stage


class ElementInbox:
    """A Subscriber that keeps elements until somebody takes them, and does nothing else with them.

    A loop over an iterable need not call its ``on_next``, which costs more than all the rest of the loop. It
    calls ``append`` for each element, and then :meth:`wake` if ``idle`` says that the reader waits. A source
    that has many elements at once calls ``extend``. The order matters: the reader sets ``idle`` first and
    then looks for elements, so one of them sees the other.
    """

    __slots__ = ()

    append: Callable[[Any], object]
    """Keeps an element that is not None; the same function as long as a subscription lasts."""
    extend: Callable[[list[Any]], object]
    """Keeps several."""
    idle: bool
    """Whether the reader waits for elements, or is about to."""

    def wake(self) -> None:
        """Make the reader look; clears ``idle``."""
        raise AssertionError("each inbox wakes its reader in its own way")

    def takes_elements(self) -> bool:
        """Whether elements may be appended; asked when the first is requested. If not, ``on_next`` it is."""
        return True


class _Gone:
    """Takes the place of a subscriber that has left, and ignores late signals."""

    def on_subscribe(self, subscription: Any, /) -> None:
        subscription.cancel()

    def on_next(self, element: Any, /) -> None: ...

    def on_error(self, error: Any, /) -> None: ...

    def on_complete(self) -> None: ...


GONE = _Gone()
