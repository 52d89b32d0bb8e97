"""Random-looking access to the bytes of a trace, plain or gzip, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, cast

from isal import isal_zlib

from tracekit.errors import SourceError
from tracekit.salvage import salvaged

_BLOCK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_AUTO = 15 + 16
_USUAL_RATIO = 10
"""How much smaller gzip makes a trace, about."""
_INFLATE_ERROR: type[Exception] = cast(type[Exception], isal_zlib.error)


class TraceBytes(Protocol):
    """The uncompressed bytes of a trace."""

    @property
    def consumed(self) -> int:
        """Bytes of the file on disk that have been used."""

    @property
    def problem(self) -> str | None:
        """Why the bytes end before the file is whole, if they do."""

    @property
    def fileno(self) -> int | None:
        """Descriptor whose content equals these bytes; None if they are compressed."""

    @property
    def size(self) -> int:
        """Size of the file on disk."""

    def read(self, start: int, stop: int) -> bytes:
        """Bytes ``[start, stop)``; fewer at the end of the file. Nothing before the last ``forget`` is there."""

    def reaches(self, size: int) -> bool:
        """Whether there are about ``size`` bytes or more; an estimate where the bytes are compressed."""

    def forget(self, before: int) -> None:
        """Nothing before this offset will be read again."""

    def tail(self, size: int) -> bytes:
        """The last ``size`` bytes of the file, wherever reading is."""

    def close(self) -> None:
        """Close the file."""


def open_bytes(path: Path) -> TraceBytes:
    """Open a trace, gzip being recognised by its content.

    Raises:
        SourceError: if the file cannot be opened, or is empty.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        raise SourceError(
            path, f"cannot be read: {error.strerror}", hint="check the path and its permissions"
        ) from error
    try:
        magic = os.pread(descriptor, 2, 0)
    except OSError as error:
        os.close(descriptor)
        raise SourceError(path, f"cannot be read: {error.strerror}", hint="name a trace file") from error
    if not magic:
        os.close(descriptor)
        raise SourceError(path, "the file is empty", hint="the profiler was probably stopped before it wrote the trace")
    return GzipBytes(descriptor, path) if magic == _GZIP_MAGIC else PlainBytes(descriptor)


class PlainBytes:
    """An uncompressed file."""

    problem: str | None = None

    def __init__(self, descriptor: int) -> None:
        self.fileno: int | None = descriptor
        self._descriptor = descriptor
        self.consumed = 0
        self.size = os.fstat(descriptor).st_size

    def read(self, start: int, stop: int) -> bytes:
        """See ``TraceBytes.read``."""
        return os.pread(self._descriptor, max(0, stop - start), start)

    def reaches(self, size: int) -> bool:
        """See ``TraceBytes.reaches``."""
        return self.size >= size

    def forget(self, before: int) -> None:
        """See ``TraceBytes.forget``."""
        self.consumed = max(self.consumed, before)

    def tail(self, size: int) -> bytes:
        """See ``TraceBytes.tail``."""
        return self.read(max(0, self.size - size), self.size)

    def close(self) -> None:
        """See ``TraceBytes.close``."""
        os.close(self._descriptor)


class Inflater:
    """Inflates gzip members one after another, as far as the file is sound."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.consumed = 0
        self.problem: str | None = None
        self.ended = False
        self._input = b""
        self._member_start = self._given = 0
        self._rest: Iterator[bytes] | None = None
        self._stream = isal_zlib.decompressobj(_AUTO)

    def next_block(self) -> bytes:
        """More bytes, or ``b""`` once ``ended``."""
        while not self.ended:
            if self._rest is not None:
                return self._salvaged()
            if self._stream.eof and not self._next_member():
                break
            if not self._input:
                self._input = os.pread(self._descriptor, _BLOCK, self.consumed)
                self.consumed += len(self._input)
                if not self._input:
                    self._end("the gzip data is cut")
                    break
            try:
                block: bytes = self._stream.decompress(self._input, _BLOCK * 4)
            except _INFLATE_ERROR as error:
                self.problem = f"the gzip data is damaged ({error})"
                self._rest = salvaged(self._reader(self._member_start), self._given)
                continue
            self._input = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            if block:
                self._given += len(block)
                return block
        return b""

    def _salvaged(self) -> bytes:
        """What the damaged member still gives, then the end."""
        assert self._rest is not None
        block = next(self._rest, b"")
        self.ended = not block
        return block

    def _reader(self, start: int) -> Callable[[int], bytes]:
        """Reads the file from ``start`` on."""
        position = start

        def read(size: int) -> bytes:
            nonlocal position
            data = os.pread(self._descriptor, size, position)
            position += len(data)
            self.consumed = max(self.consumed, position)
            return data

        return read

    def _next_member(self) -> bool:
        """Start on the member that follows, if anything but padding does."""
        while not self._input.strip(b"\0"):
            self._input = os.pread(self._descriptor, _BLOCK, self.consumed)
            self.consumed += len(self._input)
            if not self._input:
                self.ended = True
                return False
        self._input = self._input.lstrip(b"\0")
        if not self._input.startswith(_GZIP_MAGIC[: len(self._input)]):
            self._end("the gzip data is followed by something else")
            return False
        self._member_start, self._given = self.consumed - len(self._input), 0
        self._stream = isal_zlib.decompressobj(_AUTO)
        return True

    def _end(self, problem: str) -> None:
        self.ended, self.problem = True, problem


class GzipBytes:
    """A gzip file, inflated once from front to back; a window of it is kept."""

    fileno: int | None = None

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        self._inflater = Inflater(descriptor)
        self._window = bytearray()
        self._window_start = 0
        self._fill(1)
        if not self._window:
            os.close(descriptor)
            problem = self._inflater.problem or "holds nothing"
            raise SourceError(path, f"cannot be read: {problem}", hint="copy the file again")

    @property
    def consumed(self) -> int:
        """See ``TraceBytes.consumed``."""
        return self._inflater.consumed

    @property
    def problem(self) -> str | None:
        """See ``TraceBytes.problem``."""
        return self._inflater.problem

    def read(self, start: int, stop: int) -> bytes:
        """See ``TraceBytes.read``."""
        self._fill(stop)
        return bytes(memoryview(self._window)[start - self._window_start : max(start, stop) - self._window_start])

    def reaches(self, size: int) -> bool:
        """See ``TraceBytes.reaches``."""
        return self.size * _USUAL_RATIO >= size

    def _fill(self, stop: int) -> None:
        while self._window_start + len(self._window) < stop and not self._inflater.ended:
            self._window += self._inflater.next_block()

    def forget(self, before: int) -> None:
        """See ``TraceBytes.forget``."""
        if before > self._window_start:
            del self._window[: before - self._window_start]
            self._window_start = before

    def tail(self, size: int) -> bytes:
        """See ``TraceBytes.tail``; inflates the whole file once more unless it is short."""
        if not self._inflater.ended:
            self._fill(self._window_start + len(self._window) + _BLOCK)
        if self._inflater.ended:
            return bytes(self._window[-size:])
        other, kept = Inflater(self._descriptor), bytearray()
        while block := other.next_block():
            kept += block
            if len(kept) > 2 * size + 8 * _BLOCK:
                del kept[:-size]
        return bytes(kept[-size:])

    def close(self) -> None:
        """See ``TraceBytes.close``."""
        os.close(self._descriptor)
