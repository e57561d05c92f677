"""Senders for what a connection on the same event loop receives, with a framing and operators in between.

The bytes, the frames and the operators all belong to this loop's thread, so a chunk can be handled at one go:
the decoder cuts it, the compiled operators run over the list of its frames, and the results are written as
one. That needs operators that keep nothing from one element to the next (``map``, ``filter``). Any other
chain goes through the stages that every stream has.

The peer is held back as always. While the socket is full, the frames that are left of a chunk wait, and no
other chunk is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.net.echo import LoopSender
from penstock.net.framing.decoder import Decoder
from penstock.net.pull_sender import STEP, HandfulSender, are_large
from penstock.net.sender import BUDGET, Done
from penstock.net.transport import Transport
from penstock.streams.spi import Piecewise, asks_main_thread_to_stop

__all__ = ["FrameSender", "MappedSender"]


class FrameSender(HandfulSender):
    """Cuts chunks into frames and sends what the operators make of them."""

    __slots__ = ("_at", "_chunk_is_due", "_decoder", "_fault", "_frames", "_operators", "_over", "_run")

    def __init__(
        self,
        transport: Transport,
        write: Callable[[bytes], None],
        writable: bool,
        done: Done,
        decoder: Decoder[Any],
        operators: Piecewise,
    ) -> None:
        super().__init__(transport, write, writable, done)
        self._handful = 16
        self._decoder = decoder
        self._operators = operators
        self._run = operators.into(self._taken.append)
        self._frames: list[Any] = []
        self._at = 0
        """How many of these frames have been sent."""
        self._fault: BaseException | None = None
        """The error that follows the frames: the decoder's, or that of the source."""
        self._over = False
        """No more chunks come."""
        self._chunk_is_due = False
        """A chunk has been requested and has not arrived."""

    # ---------------------------------------------------------------- Subscriber of the chunks
    def on_next(self, chunk: bytes, /) -> None:
        """Send the frames that end in this chunk."""
        self._chunk_is_due = False
        if self._done is not None:  # §2.8
            self._cut(lambda: self._decoder.feed(chunk))
            self._refill()

    def on_complete(self) -> None:
        """Send what the decoder has left, after what is waiting."""
        self._subscription = None  # §2.4
        if not self._over:
            self._over = True
            self._cut(self._decoder.finish)
            self._refill()

    def on_error(self, error: BaseException, /) -> None:
        """The source failed. What has arrived whole is sent first; an incomplete frame is dropped."""
        self._subscription = None  # §2.4
        if not self._over:
            self._over = True
            self._fault = error
            self._refill()

    def _cut(self, decode: Callable[[], Iterable[Any]]) -> None:
        """Add frames to those that wait. An error of the decoder comes after the frames before it."""
        waiting = self._frames[self._at :] if self._at < len(self._frames) else []
        self._at = 0
        try:
            frames = decode()
            if type(frames) is list and not waiting:
                self._frames = frames
                return
            self._frames = waiting
            waiting.extend(frames)  # What comes before an error stays in the list.
        except BaseException as fault:
            self._frames = waiting
            self._fault = fault

    # ---------------------------------------------------------------- elements
    def _has_room(self) -> bool:
        """A chunk that has been begun is finished, unless more comes out of it than a sender asks for ahead.

        A pause in the middle of a chunk would cost several turns of the loop, and save little memory.
        """
        return self._writable or self._bytes - self._since_full < BUDGET

    def _take(self, most: int) -> bool:
        frames, at = self._frames, self._at
        left = len(frames) - at
        if left > most:
            self._at = at + most
            part = frames[at : self._at]
        else:
            self._frames, self._at = [], 0
            part = frames[at:] if at else frames
        try:
            if len(part) <= STEP:
                self._run(None, part)
            elif self._run_in_steps(part):
                return True
        except BaseException as fault:
            raise self._operators.failed(fault) from fault.__cause__
        return left > most

    def _run_in_steps(self, part: list[Any]) -> bool:
        """Stop when results are much larger than those before; returns whether frames were put back.

        How large a result is may be the peer's choice: a short line may ask for a megabyte.
        """
        for at in range(0, len(part), STEP):
            self._run(None, part[at : at + STEP])
            if self._taken and are_large(self._taken[-1]):
                rest = part[at + STEP :]
                self._frames, self._at = rest + self._frames[self._at :], 0
                return bool(rest)
        return False

    def _ran_out(self) -> None:
        """The frames of a chunk have been written: ask for the next chunk, if there is room for it."""
        if self._fault is not None and not self._over:
            self._failed(self._fault)
        elif self._over:
            self._source_ended(self._fault)
        elif self._writable and not self._chunk_is_due and self._subscription is not None:
            self._chunk_is_due = True
            self._ask(self._subscription, 1)

    def _failed(self, fault: BaseException) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.cancel()
        super()._failed(fault)

    def _release(self) -> None:
        self._frames, self._at = [], 0


class MappedSender(LoopSender):
    """Sends each chunk after operators that make one element of it, or none."""

    __slots__ = ("_operators", "_run")

    def __init__(
        self,
        transport: Transport,
        write: Callable[[bytes], None],
        writable: bool,
        done: Done,
        operators: Piecewise,
    ) -> None:
        super().__init__(transport, write, writable, None, done)
        self._operators = operators
        self._run = operators.into(super().on_next)

    def on_next(self, data: bytes, /) -> None:
        """Run the operators, and write."""
        try:
            self._run(None, (data,))
        except BaseException as fault:
            subscription, self._subscription = self._subscription, None
            if subscription is not None:
                subscription.cancel()
            self._source_ended(self._operators.failed(fault))
            if asks_main_thread_to_stop(fault):
                raise
