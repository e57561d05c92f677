"""The stage behind every framing: chunks come in, and frames wait for demand.

``flat_map_iterable`` is close, but does not fit for three reasons. It asks for as many chunks as there is
demand for frames, and all but the first may then have to wait, at up to 64 KiB each. It cannot add anything
when the source completes. And it notices the end or the error of the source only when more is requested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.net.framing.decoder import Decoder
from penstock.spec import UNBOUNDED, Subscriber
from penstock.streams.spi import (
    FailedSource,
    Next,
    Op,
    Place,
    Relay,
    Source,
    Stream,
    asks_main_thread_to_stop,
    drop_error,
    runs_on,
)

__all__ = ["FrameStage", "FramesSource"]


class FramesSource(Source):
    """The frames in a stream of chunks. Each subscriber has a decoder of its own."""

    ahead = 2  # a frame is as large as its decoder allows and the peer likes

    def __init__(self, label: str, upstream: Stream[Any], make: Callable[[], Decoder[Any]]) -> None:
        super().__init__("frames")
        self.label = label
        self.chunks = upstream
        self.make = make

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        """Make the decoder, then subscribe."""
        try:
            decoder = self.make()
        except BaseException as error:
            FailedSource(error, self.label).attach(ops, downstream)
            if asks_main_thread_to_stop(error):
                raise
            return None
        stage = FrameStage(decoder, ops, downstream, self.label, self.place)
        stage.introduce()
        return None if stage.closed else (self.chunks, stage)

    def upstreams(self) -> list[Stream[Any]]:
        """The stream of chunks."""
        return [self.chunks]

    def runs_on(self) -> str:
        """Wherever the chunks come from."""
        return runs_on(self.chunks)


class FrameStage(Relay):
    """Queues the frames of one chunk, and asks for the next chunk when they are gone and there is demand.

    Only the source's signals use the decoder, and they are serial. Other threads see only the queue.
    """

    resizes = True
    __slots__ = ("_chunk_is_due", "_decoder", "_fed", "_size", "_unread")

    def __init__(
        self,
        decoder: Decoder[Any],
        ops: tuple[Op, ...],
        downstream: Subscriber[Any],
        name: str,
        place: Place,
    ) -> None:
        super().__init__(ops, downstream, name, place)
        self._decoder = decoder
        self._fed = 0
        """Bytes since the last frame."""
        self._size = 0
        self._chunk_is_due = False
        """A chunk has been requested and has not arrived."""
        self._unread = False
        """Frames were waiting when the subscriber cancelled."""

    def on_next(self, chunk: Any, /) -> None:
        """Queue the frames that end in this chunk."""
        if self.closed or self.error is not None:
            return  # §2.8: may still come after a cancel
        before, failed = len(self.queue), None
        try:
            self.queue.extend(self._decoder.feed(chunk))
        except BaseException as error:
            self.error = failed = error  # it is emitted after the frames before it
            upstream = self.upstream
            if upstream is not None:
                upstream.cancel()
        self._fed += len(chunk)
        frames = len(self.queue) - before
        if frames > 0:
            self._size, self._fed = self._fed // frames, 0
        self._chunk_is_due = False
        self.dirty = True
        self.drain()
        if failed is not None and asks_main_thread_to_stop(failed):
            raise failed

    def release(self) -> None:
        """Remember whether frames are discarded."""
        self._unread = self._unread or bool(self.queue)
        super().release()

    def cancel(self) -> None:
        """Remember whether the reader of a loop has frames that it has not taken."""
        below = getattr(self.downstream, "unfinished", None)
        self._unread = self._unread or (below is not None and below())
        super().cancel()

    def unfinished(self) -> bool:
        """Whether bytes were received that made no frame, or a frame that nobody took.

        For the source after a cancel, as one of its signals: the decoder cannot be used after it.
        """
        if self._unread or self.queue:
            return True
        try:
            return bool(self._decoder.finish())
        except BaseException as error:
            if asks_main_thread_to_stop(error):
                raise
            return True  # The bytes end inside a frame, or they are wrong.

    def size_of_one(self) -> int:
        """The mean size of the frames in the last chunk."""
        return self._size

    def on_error(self, error: BaseException, /) -> None:
        """The source failed. Its error follows the queued frames; an incomplete frame is dropped."""
        if self.error is not None:
            drop_error(error, f"the source of {self.name}, after its end")
            return
        super().on_error(error)

    def on_complete(self) -> None:
        """Emit what the decoder has left."""
        if self.closed or self.error is not None:
            return
        try:
            self.queue.extend(self._decoder.finish())
        except BaseException as error:
            self.error = error
            self.dirty = True
            self.drain()
            if asks_main_thread_to_stop(error):
                raise
            return
        super().on_complete()

    def can_pause(self) -> bool:
        """While frames of one chunk wait, no other chunk is requested, unless the demand is unbounded."""
        return self.asked < UNBOUNDED

    def wanted(self) -> int:
        """One chunk if there is demand and nothing is left of the last. All, if demand is unbounded."""
        upstream = self.upstream
        if self.paused or upstream is None or self._chunk_is_due:
            return 0
        if self.queue or self.done or self.error is not None:
            return 0
        need = UNBOUNDED if self.demand >= UNBOUNDED else self.demand - self.emitted
        for op, state in zip(reversed(self.ops), reversed(self.states), strict=True):
            need = op.kind.demand(need, op.args, state)
        if need <= 0 or self.asked >= UNBOUNDED:
            return 0
        n = UNBOUNDED if need >= UNBOUNDED else 1
        self.asked += n
        self._chunk_is_due = True
        self._owed.append((upstream, n))
        return n
