"""Forms: the fields of a short one at once, and the parts of a long one as streams.

A form with files is read part by part. The next part begins in the body where this one ends. So a part that
is being read holds back the next, and a part that nobody reads is skipped when the next one is asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Final, cast
from urllib.parse import parse_qsl

from penstock.arguments import a_count
from penstock.net.errors import ReceiverTaken
from penstock.net.http.asgi import BadForm, FormTooLarge, NotAForm, PartSkipped, end_of, steps_of
from penstock.net.http.multipart import PART_END, MultipartDecoder, MultipartEvent, PartHead, parameters_of
from penstock.net.http.outflow import LARGE
from penstock.net.http.reception import Reception
from penstock.net.transport import call_on
from penstock.streams import Flux, Single
from penstock.streams.spi import DeferSource, as_stream, flux_of

__all__ = ["MAX_FIELDS", "MAX_FORM_BYTES", "Form", "FormPart", "PartReader", "form_of", "parts_of"]

MAX_FORM_BYTES: Final = 1024 * 1024
"""The default for the most bytes of something that is kept in memory whole."""
MAX_FIELDS: Final = 1000
"""The default for the most fields or parts of a form."""

_PATIENCE: Final = 10.0
"""Seconds after which the log says that a part which is no longer read holds back the next one."""

_log = logging.getLogger("penstock.net.http")

NextChunk = Callable[[], Awaitable[bytes | None]]
"""Waits for the next chunk of a body; None at its end."""


class Form(Mapping[str, str]):
    """The fields of a form that was sent as ``application/x-www-form-urlencoded``.

    >>> form = Form([("colour", "red"), ("size", "4"), ("colour", "blue")])
    >>> form["size"], form["colour"], form.all("colour"), form.get("shape")
    ('4', 'blue', ['red', 'blue'], None)
    """

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        """Made by ``request.form()``."""
        self.pairs = pairs
        """All fields, in their order."""
        self._last = dict(pairs)

    def __getitem__(self, name: str) -> str:
        """The value of a field; of a repeated one, the last value."""
        return self._last[name]

    def __iter__(self) -> Iterator[str]:
        """The names, each once."""
        return iter(self._last)

    def __len__(self) -> int:
        """The number of different names."""
        return len(self._last)

    def __repr__(self) -> str:
        """The names without the values, which may be secrets."""
        return f"<Form {', '.join(self._last)}>"

    def all(self, name: str) -> list[str]:
        """All values of a field, in their order."""
        return [value for given, value in self.pairs if given == name]


async def _read_form(content_type: str, chunks: NextChunk, max_bytes: int, max_fields: int) -> Form:
    """Read a whole body and take it apart."""
    kind, given = parameters_of(content_type)
    if kind != "application/x-www-form-urlencoded":
        raise NotAForm(
            f"this needs a body of application/x-www-form-urlencoded, not {kind or 'one without a type'}"
        )
    if given.get("charset", "utf-8").lower() not in ("utf-8", "utf8", "us-ascii"):
        raise NotAForm("a form has to be in UTF-8")
    data = bytearray()
    while (chunk := await chunks()) is not None:
        data += chunk
        if len(data) > max_bytes:
            raise FormTooLarge(f"the form has more than {max_bytes} bytes")
    if data.count(b"&") >= max_fields:
        raise FormTooLarge(f"the form has more than {max_fields} fields")
    try:
        return Form(parse_qsl(data.decode("ascii"), keep_blank_values=True, errors="strict"))
    except UnicodeDecodeError:
        raise BadForm("the fields of the form are not UTF-8 text, or not encoded") from None


class FormPart:
    """One part of a form: a field, or a file."""

    def __init__(self, head: PartHead, reader: PartReader) -> None:
        """Made by ``request.parts()``."""
        self.name = head.name
        """The name of the field."""
        self.filename = head.filename
        """The name of the file as the client gives it, or None; it may be any text, also ``../../x``."""
        self.headers = head.headers
        """The headers of the part, with names in lower case."""
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._unclaimed = [True]
        self._skipped = False
        self._left = asyncio.Event()
        source = DeferSource("part", self._claim, as_stream)
        source.ahead = LARGE
        self._steps = steps_of(self._chunks, "part").do_on_cancel(self._left_by_its_reader)
        self._body: Flux[bytes] = flux_of(source)

    def __repr__(self) -> str:
        """The name, and that of the file."""
        return (
            f"<FormPart {self.name!r}>"
            if self.filename is None
            else f"<FormPart {self.name!r} {self.filename!r}>"
        )

    @property
    def content_type(self) -> str:
        """What the client says the content is; ``text/plain`` if it says nothing."""
        return self.headers.get("content-type", "text/plain")

    def body(self) -> Flux[bytes]:
        """The content, in the chunks that arrive; for one subscriber.

        Emits when bytes of this part have arrived and there is demand.
        Backpressures when there is none: the server stops reading, and the client's upload has to wait.
        Completes when the part is complete. It fails if the form is broken or too large, if the client
        disconnects, and with ``PartSkipped`` if the next part was asked for before.
        Cancels when its subscriber cancels; the rest of the part is thrown away when the next is asked for.
        """
        return self._body

    def content(self, max_bytes: int = MAX_FORM_BYTES) -> Single[bytes]:
        """The whole content at once; it fails with FormTooLarge if there is more than ``max_bytes``."""
        most = a_count(max_bytes, "content()", least=0)

        def joined(so_far: bytearray, chunk: bytes) -> bytearray:
            so_far += chunk
            if len(so_far) > most:
                raise FormTooLarge(f"the part {self.name!r} of the form has more than {most} bytes")
            return so_far

        return self._body.reduce_with(bytearray, joined).map(bytes)

    def _claim(self) -> Flux[bytes]:
        try:
            self._unclaimed.pop()  # atomic: another thread, or the search for the next part, may be faster
        except IndexError:
            if self._skipped:
                raise PartSkipped(
                    f"the part {self.name!r} was skipped, because the next part was asked for before this "
                    "one was read; take the parts one at a time, with 'async for' or "
                    "map_async(…, concurrency=1), and without publish_on() before it"
                ) from None
            raise ReceiverTaken(
                f"the part {self.name!r} already has a subscriber; subscribe once and share the stream with "
                ".share()"
            ) from None
        return self._steps

    async def _chunks(self) -> AsyncIterator[bytes]:
        try:
            while (piece := await self._reader.piece()) is not None:
                yield piece
        finally:
            # Not at once: when the parts go on, the subscriber has heard the end, and may have left them too.
            self._left_by_its_reader()

    def _left_by_its_reader(self) -> None:
        """The end, or the subscriber has cancelled: perhaps before its first step, and on any thread."""
        call_on(self._loop, self._leave)

    def _leave(self) -> None:
        self._left.set()
        self._reader.part_left()

    async def settled(self) -> None:
        """Wait until nobody reads the part any more; if nobody does, nobody will."""
        self._skipped = True
        try:
            self._unclaimed.pop()
        except IndexError:
            self._skipped = False
            await self._until_left()

    async def _until_left(self) -> None:
        """Wait for the reader of the part. It may be slow; or it was forgotten, and then nothing goes on."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._left.wait()
        except TimeoutError:
            _log.warning(
                "the next part of a form was asked for %g s ago, and waits for the part %r, which somebody "
                "has begun to read and has not left; read it to its end, or close its iterator (aclose()) or "
                "cancel its subscription",
                _PATIENCE,
                self.name,
            )
            await self._left.wait()

    @property
    def in_use(self) -> bool:
        """Whether the part is being read, or may be."""
        return not self._left.is_set() and not self._skipped


class PartReader:
    """The only reader of a body that has parts."""

    def __init__(
        self, reception: Reception, chunks: NextChunk, decoder: Callable[[], MultipartDecoder]
    ) -> None:
        self._reception = reception
        self._chunks = chunks
        self._decoder_for_it = decoder
        self._loop = reception.loop
        self._events: deque[MultipartEvent] = deque()
        self._error: Exception | None = None
        self._part: FormPart | None = None
        self._complete = True
        """Whether the content of the part has been taken to its end."""
        self._left = False
        self._cancelled = False

    async def parts(self) -> AsyncIterator[FormPart]:
        """The parts, each when it is asked for; what is left of the one before is thrown away."""
        try:
            self._reception.resumes = True
            self._decoder = self._decoder_for_it()
            while True:
                if self._part is not None:
                    await self._part.settled()
                    if self._cancelled:
                        return  # an error of the form has been told to the reader of the part
                while not self._complete:
                    await self.piece()
                event = await self._event()
                if event is None:
                    return
                assert isinstance(event, PartHead)
                self._complete = False
                self._part = FormPart(event, self)
                yield self._part
        finally:
            self._leave()

    def left_by_its_reader(self) -> None:
        """The subscriber has cancelled: perhaps before its first step, and on any thread."""
        self._cancelled = True
        call_on(self._loop, self._leave)

    def _leave(self) -> None:
        self._left = True
        self.part_left()

    async def piece(self) -> bytes | None:
        """The next piece of this part's content; None at its end."""
        if self._complete:
            return None
        event = await self._event()
        if event is PART_END:
            self._complete = True
            return None
        assert isinstance(event, bytes)
        return event

    def part_left(self) -> None:
        """Stop keeping the body if neither parts nor the content of one is wanted any more."""
        if self._left and (self._part is None or not self._part.in_use):
            self._reception.drop()

    async def _event(self) -> MultipartEvent:
        if self._error is not None:
            raise self._error
        try:
            while not self._events:
                chunk = await self._chunks()
                self._events += self._decoder.finish() if chunk is None else self._decoder.feed(chunk)
            event = self._events.popleft()
            if isinstance(event, Exception):
                raise event
        except Exception as error:
            self._error = error
            raise
        return event


def parts_of(
    reception: Reception, chunks: NextChunk, decoder: Callable[[], MultipartDecoder]
) -> Flux[FormPart]:
    """The parts of a body, for one subscriber, one at a time."""
    reader = PartReader(reception, chunks, decoder)
    steps = steps_of(reader.parts, "parts", reception.loop).do_on_cancel(reader.left_by_its_reader)
    source = DeferSource("parts", lambda: reception.claim(steps), as_stream)
    source.ahead = 1  # a part that waits in a queue would be skipped
    return flux_of(source)


def form_of(
    reception: Reception, content_type: str, chunks: NextChunk, max_bytes: int, max_fields: int
) -> Single[Form]:
    """The fields of a body, for one subscriber."""

    async def read() -> Form:
        reception.claim(None)
        try:
            return await _read_form(content_type, chunks, max_bytes, max_fields)
        finally:
            reception.drop()

    return cast("Single[Form]", end_of(read, "form", reception.loop))
