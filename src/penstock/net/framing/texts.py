"""Bytes as text, where a character may be cut in two by the end of a chunk."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from penstock.net.framing.decoder import Decoder
from penstock.net.framing.errors import BadFrame, FrameTruncated

__all__ = ["TextDecoder"]


class TextDecoder(Decoder[str]):
    """Pieces of text, as long as the chunks they came in. See :func:`penstock.net.framing.text`."""

    def __init__(self, encoding: str = "utf-8", errors: str = "strict") -> None:
        super().__init__()
        try:
            make = codecs.getincrementaldecoder(encoding)
            codecs.lookup_error(errors)
        except LookupError as unknown:
            raise ValueError(f"text() cannot decode: {unknown}; try text('utf-8', 'strict')") from None
        self._encoding = encoding
        self._decoder = make(errors)
        self._before = 0
        """Bytes of the stream before the present chunk."""

    def cut(self, chunk: bytes) -> Iterable[str]:
        """All characters that are complete."""
        state = self._decoder.getstate()
        try:
            text = self._decoder.decode(chunk)
        except UnicodeDecodeError as wrong:
            start = wrong.start - len(state[0])
            self._decoder.setstate(state)
            text = self._decoder.decode(chunk[: max(0, start)])
            bad = BadFrame(
                f"byte {self._before + start} of the stream is no {self._encoding} text: {wrong.reason}; "
                "text(errors='replace') goes on with a replacement, text('latin-1') takes any byte",
                offset=self._before + start,
            )
            bad.__cause__ = wrong
            return self.broken([text] if text else [], bad)
        self._before += len(chunk)
        return [text] if text else []

    def rest(self) -> list[str]:
        """A character that is cut off is an error, or what ``errors`` makes of it."""
        left = len(self._decoder.getstate()[0])
        try:
            text = self._decoder.decode(b"", final=True)
        except UnicodeDecodeError as wrong:
            raise FrameTruncated(
                f"the stream ended inside a character of {self._encoding}, after {self._before} bytes: "
                f"{left} bytes of it had come; text(errors='replace') takes it as it is",
                left=left,
            ) from wrong
        return [text] if text else []
