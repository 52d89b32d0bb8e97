"""Zip archives, whole or cut; the safety rules are those of ``unpack``.

A whole zip is read by its directory, which stands at its end. A cut one has lost that, so its members are found by
their local headers (PKWARE APPNOTE 4.3.7), one after the other, up to the cut.
"""

from __future__ import annotations

import lzma
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from tracekit.errors import DiscoveryError
from tracekit.inflate import CHUNK_BYTES, PackedDataError
from tracekit.recognise import HEAD_BYTES, printable

if TYPE_CHECKING:
    from tracekit.unpack import Unpacked, Wanted, _Writer

_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    NotImplementedError,
    ValueError,
    RuntimeError,
)
"""What zipfile raises on damaged data (an OSError without number comes from bzip2)."""

_LOCAL_HEADER = struct.Struct("<4sHHHHHIIIHH")
_ENCRYPTED = 0x1
_SIZES_FOLLOW = 0x8
_STORED, _DEFLATED = 0, 8


def unpack_zip(writer: _Writer, file: IO[bytes], wanted: Wanted) -> Unpacked:
    """Write the wanted members of a zip; see ``unpack.unpack``."""
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error, OverflowError):
        return _recover(writer, file, wanted)
    with archive:
        for info in archive.infolist():
            _zip_member(writer, archive, info, wanted)
    return writer.result(None)


def _zip_member(writer: _Writer, archive: zipfile.ZipFile, info: zipfile.ZipInfo, wanted: Wanted) -> None:
    writer.clean_name(info.orig_filename)
    name = writer.clean_name(info.filename, backslash=True)
    if info.filename.endswith("/") or not name:
        return
    if reason := _link_or_device(info.external_attr >> 16):
        writer.left_out.append((name, f"{reason}; only plain files are unpacked"))
        return
    if info.flag_bits & _ENCRYPTED:
        raise _encrypted(writer, name)
    if not info.file_size:
        writer.listed(name, 0)
        return
    try:
        with archive.open(info) as source:
            head = source.read(HEAD_BYTES)
            if wanted(name, info.file_size, head):
                writer.write(name, head, source)
            else:
                writer.listed(name, info.file_size)
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        writer.listed(name, info.file_size, problem=f"cannot be unpacked: {_why(error)}")


def _why(error: Exception) -> str:
    """What is wrong with a member, without the bytes of its header that zipfile shows."""
    text = str(error)
    return "its header is damaged" if " and header b" in text else printable(text)


def _encrypted(writer: _Writer, name: str) -> DiscoveryError:
    return DiscoveryError(
        f"{printable(str(writer.archive))}: encrypted zip ({printable(name)[:100]!r} needs a password)",
        hint="unpack it with its password and give the directory",
    )


def _link_or_device(mode: int) -> str | None:
    """What a Unix mode says a member is, if it is neither a file nor a folder."""
    kind = stat.S_IFMT(mode)
    if kind == stat.S_IFLNK:
        return "a symbolic link"
    return None if kind in (0, stat.S_IFREG, stat.S_IFDIR) else "not a plain file"


class _Local:
    """The data of one member of a zip without directory, from its local header on."""

    def __init__(self, file: IO[bytes], method: int, packed_bytes: int | None) -> None:
        self._file = file
        self._left = packed_bytes
        self._inflate = zlib.decompressobj(-zlib.MAX_WBITS) if method == _DEFLATED else None
        self._pending = b""

    def read(self, size: int, /) -> bytes:
        """Up to ``size`` bytes; empty at the end of the member.

        Raises:
            PackedDataError: the file is cut inside the member.
        """
        if self._inflate is None:
            return self._packed(size)
        while not self._inflate.eof:
            data = self._pending or self._packed(CHUNK_BYTES)
            piece = self._inflate.decompress(data, size)
            self._pending = self._inflate.unconsumed_tail
            if piece:
                return piece
            if not data:
                raise PackedDataError("unexpected end of data")
        return b""

    def _packed(self, size: int) -> bytes:
        wanted = size if self._left is None else min(size, self._left)
        data = self._file.read(wanted)
        if self._left is not None:
            self._left -= len(data)
            if wanted and not data:
                raise PackedDataError("unexpected end of data")
        return data

    def finish(self) -> None:
        """Go to the byte after the member."""
        while self.read(CHUNK_BYTES):
            pass
        if self._inflate is not None:
            unused = len(self._inflate.unused_data)
            if self._left is not None:
                self._file.seek(self._left, 1)
            self._file.seek(-unused if self._left is None else 0, 1)


def _recover(writer: _Writer, file: IO[bytes], wanted: Wanted) -> Unpacked:
    """Read a zip that has lost its directory, up to the cut."""
    file.seek(0)
    for name, size, source in _local_members(writer, file):
        try:
            head = source.read(HEAD_BYTES)
            if head and wanted(name, size, head):
                writer.write(name, head, source)
            else:
                writer.listed(name, size)
            source.finish()
        except (PackedDataError, zlib.error) as error:
            if writer.known(name) is None:
                writer.listed(name, size, problem=f"cut or damaged ({error})")
            break
    found = writer.result(None).members
    if not found:
        raise DiscoveryError(
            f"{printable(str(writer.archive))}: not a readable zip: it is cut or damaged from the start",
            hint="copy it again",
        )
    return writer.result(f"cut zip: its directory is missing; {len(found)} files were found before the cut")


def _local_members(writer: _Writer, file: IO[bytes]) -> Iterator[tuple[str, int, _Local]]:
    """Name, claimed size and data of each member that a local header announces."""
    while len(raw := file.read(_LOCAL_HEADER.size)) == _LOCAL_HEADER.size:
        magic, _, flags, method, _, _, _, packed, size, name_length, extra_length = _LOCAL_HEADER.unpack(raw)
        if magic[:2] == b"PK" and magic[2:] == b"\x07\x08":
            file.seek(16 - _LOCAL_HEADER.size, 1)
            continue
        if magic != b"PK\x03\x04":
            return
        name = writer.clean_name(file.read(name_length).decode("utf-8", "replace"), backslash=True)
        file.seek(extra_length, 1)
        if flags & _ENCRYPTED:
            raise _encrypted(writer, name)
        unknown = bool(flags & _SIZES_FOLLOW) or packed == 0xFFFFFFFF
        if method not in (_STORED, _DEFLATED) or (unknown and method == _STORED):
            return
        source = _Local(file, method, None if unknown else packed)
        if name and not name.endswith("/") and (packed or unknown):
            yield name, size, source
