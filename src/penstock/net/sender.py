"""What goes out to a socket: a Subscriber that writes, and asks for as much as the socket takes.

Demand is counted in elements, because the standard does so, and steered by bytes, because that is what memory
and the peer's window are made of: the window of elements follows their mean size, so that about
``BUDGET`` bytes are on their way whether an element has ten bytes or a quarter of a million.

Elements that a source produces inside one ``request``, or out of one chunk that was received, are joined into
one write. After such a burst the next request goes through the event loop, so that a source which never waits
cannot keep the loop for itself.

Demand cannot be taken back, and a peer that has sent small chunks may go on with large ones. So while the
socket is full, a connection that feeds it is held back: its chunks stay on its side, where they are bounded.
"""

from __future__ import annotations

import asyncio
from _thread import get_ident
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from penstock.net.errors import ConnectionAborted, ReceiveStopped, SendRefused
from penstock.net.flush import HIGH_WATER, Flushing
from penstock.net.framing.stage import FrameStage
from penstock.net.receiver import Receiver, Turn
from penstock.spec import UNBOUNDED, Subscription, none_element, none_error, none_subscription
from penstock.streams.fusion import QueueDrain
from penstock.streams.spi import Relay, asks_main_thread_to_stop

__all__ = ["BUDGET", "MOST_ELEMENTS", "Flush", "LoopSender", "Sender"]

MOST_ELEMENTS: Final = 1024
"""Elements that are asked for ahead at most."""
_MOST_CHUNKS: Final = 2
"""The same, if they are what another socket receives, and nobody can hold that one back."""
BUDGET: Final = 128 * 1024
"""Bytes that are asked for ahead, about."""
_JOINED: Final = 64 * 1024
"""A burst is written when it has this many bytes."""

Flush = Callable[[bytes], bool]
"""Says of an element whether it must not wait for the rest of its burst."""


class Sender:
    """Writes the elements of one source to one transport; then tells ``done`` with None or an error.

    Elements may come from any thread; everything else happens on the event loop.
    """

    __slots__ = (
        "_asked",
        "_burst",
        "_burst_bytes",
        "_bytes",
        "_done",
        "_elsewhere",
        "_finishing",
        "_flush",
        "_flushing",
        "_held",
        "_left",
        "_loop",
        "_low",
        "_scheduled",
        "_since_full",
        "_source_error",
        "_subscribed",
        "_subscription",
        "_target",
        "_thread",
        "_transport",
        "_turn",
        "_unsent",
        "_window_bytes",
        "_writable",
        "_write",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: Any,
        write: Callable[[bytes], None],
        writable: bool,
        flush: Flush | None,
        done: Callable[[BaseException | None], object],
    ) -> None:
        self._loop = loop
        self._thread = get_ident()
        self._transport = transport
        self._turn = Turn.of(loop)
        self._write = write
        self._writable = writable
        self._flush = flush
        self._done: Callable[[BaseException | None], object] | None = done
        self._subscription: Subscription | None = None
        self._subscribed = False
        self._burst: list[bytes] | None = None
        self._burst_bytes = 0
        self._asked = 0
        """Elements that were asked for."""
        self._left = 0
        """Those of them that have not come."""
        self._target = 2
        """Elements to be asked for ahead."""
        self._low = 1
        self._bytes = 0
        """Bytes given to the socket."""
        self._window_bytes = 0
        """The same when the window was last set."""
        self._unsent = 0
        """Bytes that waited in the transport when it said that it was full."""
        self._since_full = 0
        """Bytes given to the socket by then."""
        self._flushing: Flushing | None = None
        """Waits until everything has been handed to the kernel."""
        self._held: Receiver | None = None
        """The connection that is held back because this one is full."""
        self._elsewhere: deque[Any] = deque()
        """Signals that came on other threads."""
        self._scheduled = False
        self._finishing = False
        self._source_error: BaseException | None = None

    # ---------------------------------------------------------------- Subscriber
    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Ask for the first elements."""
        if subscription is None:
            raise none_subscription()
        if self._subscribed or self._done is None:
            subscription.cancel()  # §2.5
            return
        self._subscribed = True
        self._subscription = subscription
        if get_ident() == self._thread:
            self._refill()
        else:
            self._loop.call_soon_threadsafe(self._refill)

    def on_next(self, data: bytes, /) -> None:
        """Write an element, or keep it until the burst that it belongs to is over."""
        if get_ident() != self._thread:
            self._from_elsewhere(data)
            return
        if type(data) is not bytes:
            copied = self._as_bytes(data)
            if copied is None:
                return
            data = copied
        burst = self._burst
        if burst is None and self._turn.active:
            burst = self._burst = []
            self._turn.joining.append(self)
        if burst is None:
            self._bytes += len(data)
            self._left -= 1
            self._write(data)
            if self._left <= self._low and self._writable and not self._scheduled:
                # Not from here: a source that is in the middle of a loop of its own would never leave it.
                self._scheduled = True
                self._loop.call_soon(self._refill)
            return
        burst.append(data)
        self._burst_bytes = size = self._burst_bytes + len(data)
        if size >= _JOINED or (self._flush is not None and self._wants_flush(data)):
            self._write_burst()

    def on_error(self, error: BaseException, /) -> None:
        """The source failed: what it gave before is written, then the error goes on."""
        if error is None:
            raise none_error()
        self._source_ended(error)

    def on_complete(self) -> None:
        """The source is at its end: when everything has been handed to the kernel, so are we."""
        self._source_ended(None)

    # ---------------------------------------------------------------- what the connection calls
    def wrote(self, size: int) -> None:
        """An element of this size was written before, and may not have left."""
        self._asked, self._bytes = 1, size

    def pause(self) -> None:
        """The transport's buffer is full."""
        self._writable = False
        self._unsent = self._transport.get_write_buffer_size()
        self._since_full = self._bytes
        self._hold_back()

    def resume(self) -> None:
        """There is room again; or, while finishing, nothing is left."""
        self._writable = True
        self._unsent = 0
        if self._flushing is not None:
            self._flushing.check()
        else:
            self._let_go()
            self._refill()

    @property
    def flushing(self) -> bool:
        """Whether the source is at its end, and the socket has not taken all of it."""
        return self._finishing and self._done is not None

    def ignore_end(self) -> None:
        """The connection is gone: from now on the end of the source is not the end of the send."""
        self._finishing = True

    def lost(self, why: str, error: BaseException | None = None) -> None:
        """The connection is gone; what it had not taken is told as an error, never as an end."""
        if self._done is None:
            return
        elements, unsent = self._asked - self._left, self._unsent + self._bytes - self._since_full
        if self._writable:
            unsent = min(self._bytes, HIGH_WATER)
        aborted = ConnectionAborted(
            f"{why} while sending: {elements:,} elements with {self._bytes:,} bytes were written, and up to "
            f"{unsent:,} of these had not left",
            elements=elements,
            written=self._bytes,
            unsent=unsent,
        )
        aborted.__cause__ = error
        self._end(aborted, cancel=True)

    def cancel(self) -> None:
        """Nobody wants to know any more: stop asking. What was written still goes out."""
        if get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.cancel)
            return
        if self._done is not None:
            self._done = None
            self._stop_flushing()
            self._cancel_source()
            self._let_go()

    # ---------------------------------------------------------------- demand
    def _hold_back(self) -> None:
        """Stop the connection whose bytes these are, if all between it and us only passes demand on.

        What takes more than is asked of it, to drop or to keep it, has to go on taking.
        """
        step = self._subscription
        while isinstance(step, Relay):
            step = step.upstream
        if isinstance(step, Receiver) and step.loop is self._loop:
            self._held = step
            step.hold_back()

    def _most_ahead(self) -> int:
        """What comes from a socket is small at one time and a quarter of a megabyte at the next.

        If it passes something that takes more than is asked of it (which drops what is too much, say), then
        all that was asked for may still come when this socket is full, however large it is. Frames that were
        cut out of it are as large as their decoder allows.
        """
        step = self._subscription
        can_be_held = True
        while isinstance(step, QueueDrain) and not isinstance(step, FrameStage):
            can_be_held &= isinstance(step, Relay)
            step = step.upstream
        return _MOST_CHUNKS if isinstance(step, Receiver) and not can_be_held else MOST_ELEMENTS

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.go_on()

    def _refill(self) -> None:
        self._scheduled = False
        if self._left > self._low or not self._writable or self._done is None or self._finishing:
            return
        subscription = self._subscription
        if subscription is None:
            return
        came = self._target - self._left
        size = self._bytes - self._window_bytes
        if came and size:
            # The next window has as many elements of the size seen as fit, but it does not grow at one go.
            self._target = max(1, min(BUDGET * came // size, self._target * 8, self._most_ahead()))
            self._low = self._target >> 1
            self._window_bytes = self._bytes
        n = self._target - self._left
        if n <= 0:
            return
        self._left += n
        self._asked += n
        if self._burst is not None:
            subscription.request(n)
            return
        self._burst = []
        try:
            subscription.request(n)
        except BaseException as fault:
            self._end(fault, cancel=True)  # §3.16
            if asks_main_thread_to_stop(fault):
                raise
        finally:
            self._write_burst()
            self._burst = None
        if self._left <= self._low and self._writable and not self._scheduled and self._done is not None:
            # All of it came at once: let the others on this loop have their turn.
            self._scheduled = True
            self._loop.call_soon(self._refill)

    def _write_burst(self) -> None:
        burst = self._burst
        if not burst:
            return
        data = burst[0] if len(burst) == 1 else b"".join(burst)
        self._bytes += self._burst_bytes
        self._left -= len(burst)
        burst.clear()
        self._burst_bytes = 0
        # Not writelines: on some interpreters it does not say when the buffer is full (CVE-2024-12254).
        self._write(data)

    def end_burst(self) -> None:
        """The chunk that these elements came from has been dealt with."""
        self._write_burst()
        self._burst = None
        if self._left <= self._low and self._writable and not self._scheduled and self._done is not None:
            self._scheduled = True
            self._loop.call_soon(self._refill)

    # ---------------------------------------------------------------- other threads
    def _from_elsewhere(self, signal: Any) -> None:
        if signal is None:
            raise none_element("send()")  # §2.13
        if isinstance(signal, bytearray | memoryview):
            signal = bytes(signal)  # now: when the loop gets to it, its owner may have changed it
        self._elsewhere.append(signal)
        if len(self._elsewhere) == 1:
            # Whoever put the first one in wakes the loop; the loop empties all of it.
            self._loop.call_soon_threadsafe(self._take_elsewhere)

    def _take_elsewhere(self) -> None:
        arrived = self._elsewhere
        if self._burst is None:
            self._burst = []
            try:
                self._take_all(arrived)
            finally:
                self._write_burst()
                self._burst = None
        else:
            self._take_all(arrived)
        self._refill()

    def _take_all(self, arrived: deque[Any]) -> None:
        while arrived:
            signal = arrived[0]
            if type(signal) is _End:
                arrived.popleft()
                self._write_burst()
                self._source_ended(signal.error)
            else:
                self.on_next(signal)
                arrived.popleft()

    # ---------------------------------------------------------------- ends
    def _source_ended(self, error: BaseException | None) -> None:
        self._subscription = None  # §2.4: from now on, whenever the loop gets to know of it
        if get_ident() != self._thread:
            self._from_elsewhere(_End(error))
            return
        if self._done is None or self._finishing:
            return
        self._finishing = True
        self._source_error = error
        self._write_burst()
        self._flush_all()

    def _flush_all(self) -> None:
        if self._source_error is not None and not isinstance(self._source_error, ReceiveStopped):
            self._end(self._source_error, cancel=False)
            return
        self._flushing = Flushing(self._loop, self._transport, self._flushed)
        self._flushing.check()

    def _flushed(self) -> None:
        self._end(self._source_error, cancel=False)

    def _end(self, error: BaseException | None, *, cancel: bool) -> None:
        done, self._done = self._done, None
        self._stop_flushing()
        if cancel:
            self._cancel_source()
        self._let_go()
        if done is not None:
            done(error)

    def _stop_flushing(self) -> None:
        flushing, self._flushing = self._flushing, None
        if flushing is not None:
            flushing.cancel()

    def _cancel_source(self) -> None:
        self._write = _drop  # §2.8: elements may still come
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.cancel()

    def _wants_flush(self, data: bytes) -> bool:
        try:
            return self._flush is not None and bool(self._flush(data))
        except BaseException as fault:
            self._end(fault, cancel=True)
            if asks_main_thread_to_stop(fault):
                raise
            return False

    def _as_bytes(self, data: Any) -> bytes | None:
        if data is None:
            raise none_element("send()")
        if isinstance(data, bytes | bytearray | memoryview):
            # A copy: the transport may keep what it is given, and its owner may change it.
            return bytes(data)
        refused = SendRefused(
            f"send() was given {data!r:.80}, which is no bytes; encode it before, or configure an encoder() "
            "and use send_object()"
        )
        self._end(refused, cancel=True)
        return None


class LoopSender(Sender):
    """A Sender for what a connection on the same loop receives: it is bytes, and it comes on the loop.

    It asks once, for everything. When this socket is full the other one is held back, whatever it has been
    asked for; a window of elements would bound nothing that is not bounded already.
    """

    __slots__ = ()

    def on_next(self, data: bytes, /) -> None:
        """As above, without a look at the thread, the type and the window."""
        self._bytes += len(data)
        self._left -= 1
        self._write(data)

    def _refill(self) -> None:
        subscription = self._subscription
        if self._asked or subscription is None or not self._writable:
            return
        self._asked = self._left = UNBOUNDED
        subscription.request(UNBOUNDED)


class _End:
    """The end of a source, on its way from another thread."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def _drop(data: bytes) -> None:
    """Where elements go that nobody waits for."""
