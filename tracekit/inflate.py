"""A decompressed byte stream in bounded memory that gives every byte before a cut or damage."""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Iterator
from typing import IO, Protocol, cast

import zstandard
from isal import isal_zlib

from tracekit.salvage import salvaged

CHUNK_BYTES = 1024 * 1024
"""Bytes handed out at a time."""

_PACKED_BYTES = 64 * 1024
# isal's stub calls the class an instance.
_ISAL_ERROR = cast("type[Exception]", isal_zlib.error)
_MAX_WINDOW_BYTES = 256 * 1024 * 1024


class PackedDataError(Exception):
    """Compressed data is damaged from here on."""


class _Part(Protocol):
    """Decompresses one member or frame."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = ..., /) -> bytes: ...


class Inflated:
    """Reads a file of any packing (gzip, bzip2, xz, zstd or None) as plain bytes.

    ``read`` gives every byte before damage, then raises; of gzip it gives what still decodes (``salvage``), so
    that a wrong checksum costs nothing. ``is_cut`` tells, at the end, that the packed
    data stopped in the middle (zstd does not say).
    """

    def __init__(self, file: IO[bytes], packing: str | None) -> None:
        self._file = file
        self._packing = packing
        self._zstd: zstandard.ZstdDecompressionReader | None = None
        if packing == "zstd":
            unpacker = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
            self._zstd = unpacker.stream_reader(file, read_across_frames=True, closefd=False)
        self._part = self._new_part()
        self._rest = b""
        self._member_start: int | None = None
        self._given = 0
        self._saved: Iterator[bytes] = iter(())
        self._spare = b""
        self._error: PackedDataError | None = None
        self.is_cut = False

    def read(self, size: int, /) -> bytes:
        """Up to ``size`` bytes; fewer only at the end or before damage.

        Raises:
            PackedDataError: if no byte is left before the damage.
        """
        if self._packing is None:
            return self._file.read(size)
        pieces: list[bytes] = []
        missing = size
        while missing:
            piece = self._piece(missing) if self._error is None else self._salvage(missing)
            if not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
        if not pieces and self._error is not None:
            raise self._error
        return b"".join(pieces)

    def _piece(self, limit: int) -> bytes:
        """Some bytes, at most ``limit``; empty at the end or at damage."""
        try:
            if self._zstd is not None:
                return bytes(self._zstd.read(limit))
            return self._next(limit)
        except (_ISAL_ERROR, OSError, EOFError, lzma.LZMAError, zstandard.ZstdError, ValueError) as error:
            self._error = PackedDataError(f"damaged {self._packing} data: {error}")
            if self._packing == "gzip":
                self._file.seek(self._member_start or 0)
                self._saved = salvaged(self._file.read, self._given)
            return self._salvage(limit)

    def _salvage(self, limit: int) -> bytes:
        """Some bytes that the damaged gzip member still holds."""
        block = self._spare or next(self._saved, b"")
        piece, self._spare = block[:limit], block[limit:]
        return piece

    def _next(self, limit: int) -> bytes:
        if self._member_start is None:
            self._member_start = self._file.tell()
        while self._part is not None:
            if self._part.eof and not self._next_part():
                return b""
            data = self._rest
            if not data and getattr(self._part, "needs_input", True):
                data = self._file.read(_PACKED_BYTES)
                if not data:
                    self.is_cut = True
                    return b""
            piece = self._part.decompress(data, limit)
            self._rest = bytes(getattr(self._part, "unconsumed_tail", b""))
            if piece:
                self._given += len(piece)
                return piece
        return b""

    def _next_part(self) -> bool:
        """Go on to the next gzip member or bzip2/xz stream; padding and trailing rubbish end the file."""
        assert self._part is not None
        rest = self._part.unused_data.lstrip(b"\0") or self._file.read(_PACKED_BYTES).lstrip(b"\0")
        self._part = self._new_part() if rest else None
        magic = {"gzip": b"\x1f\x8b", "bzip2": b"BZh", "xz": b"\xfd7zXZ"}[self._packing or ""]
        if self._part is None or not rest.startswith(magic):
            self._part = None
            return False
        self._rest = rest
        self._member_start, self._given = self._file.tell() - len(rest), 0
        return True

    def _new_part(self) -> _Part | None:
        if self._packing == "gzip":
            part: _Part = isal_zlib.decompressobj(31)
            return part
        if self._packing == "bzip2":
            return bz2.BZ2Decompressor()
        if self._packing == "xz":
            return lzma.LZMADecompressor(memlimit=_MAX_WINDOW_BYTES)
        return None
