"""Files as they are read: plain, or decompressed if their names end with ``.gz`` or ``.zst``."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import BinaryIO, Final, cast

__all__ = ["COMPRESSED", "check_packages", "incomplete", "open_content"]

COMPRESSED: Final = (".gz", ".zst")
"""What the names of compressed files end with."""


def open_content(path: Path) -> BinaryIO:
    """Open a file whose reads give its content."""
    if path.name.endswith(".gz"):
        return cast("BinaryIO", gzip.GzipFile(path))
    if path.name.endswith(".zst"):
        return cast("BinaryIO", _ZstdFile(path))
    return path.open("rb", 0)


def check_packages(name: str) -> None:
    """Raise an ImportError that names the extra if a package for this file is missing."""
    if name.endswith(".zst"):
        try:
            import zstandard  # noqa: F401
        except ImportError as error:
            raise ImportError(
                f"{name} needs zstandard, which is not installed: pip install 'penstock-streams[zstd]'"
            ) from error


class _ZstdFile:
    """Reads the content of a file of one or more frames; EOFError if the last one is not complete."""

    def __init__(self, path: Path) -> None:
        check_packages(path.name)
        import zstandard

        self._error: type[Exception] = zstandard.ZstdError
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame = self._decompressor.decompressobj()
        self._file = path.open("rb", 0)
        self._rest = b""
        """Compressed bytes that were read and not decompressed."""
        self._content = io.BytesIO()
        self._begun = False

    def read(self, most: int) -> bytes:
        """The next bytes of the content; none at the end."""
        while True:
            chunk = self._content.read(most)
            if chunk:
                return chunk
            packed = self._rest or self._file.read(64 * 1024)
            self._rest = b""
            if not packed:
                if self._begun:
                    raise EOFError("it ends in the middle of a frame")
                return b""
            self._begun = True
            try:
                self._content = io.BytesIO(self._frame.decompress(packed))
            except self._error as error:
                raise zlib.error(str(error)) from None
            if self._frame.eof:
                self._rest, self._begun = self._frame.unused_data, False
                self._frame = self._decompressor.decompressobj()

    def fileno(self) -> int:
        """The open file."""
        return self._file.fileno()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def incomplete(path: Path, error: Exception) -> ValueError:
    """The error of a file that cannot be decompressed."""
    kind = "zstd" if path.name.endswith(".zst") else "gzip"
    return ValueError(
        f"{path} is not a complete {kind} file ({error}); give a file its name when it is complete"
    )
