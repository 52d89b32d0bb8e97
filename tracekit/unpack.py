"""Unpack archives without trusting them: nothing is written but plain files, under names made here.

Members go to ``<target>/<number>/<harmless name>``, so that no name in an archive decides where bytes land, and
two names that differ only in case cannot overwrite each other. A name that tries to leave the archive (absolute,
``..``, a drive) makes the whole archive refused; links, devices and sparse files are left out and reported.
Only the members a caller wants are written; the others are listed with their size.
"""

from __future__ import annotations

import lzma
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from tracekit.errors import DiscoveryError
from tracekit.inflate import CHUNK_BYTES, Inflated, PackedDataError
from tracekit.recognise import HEAD_BYTES, packing_of, printable
from tracekit.unzip import unpack_zip

Wanted = Callable[[str, int, bytes], bool]
"""Whether to write a member, by its name, its size in bytes and its head."""


@dataclass(frozen=True)
class Limits:
    """What an archive may cost before it counts as a bomb."""

    member_count: int = 200_000
    total_bytes: int = 256 * 1024**3
    """Bytes written, of all members."""
    ratio: float = 300.0
    """Unpacked bytes per packed byte; real traces reach 15 to 60."""
    ratio_floor_bytes: int = 256 * 1024**2
    """The ratio counts only above this many unpacked bytes."""
    header_bytes: int = 16 * 1024**2
    """Bytes between two tar members (long names, extended headers)."""
    free_bytes: int = 512 * 1024**2
    """Space that stays free on the disk."""


LIMITS = Limits()

_DAMAGE = (
    OSError,
    EOFError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    PackedDataError,
    ValueError,
)
"""What reading a damaged member raises."""


@dataclass(frozen=True)
class Member:
    """A file of an archive; ``path`` is where it was written, None if it is only listed."""

    name: str
    size_bytes: int
    path: Path | None
    problem: str | None = None


@dataclass(frozen=True)
class Unpacked:
    """What came out of an archive."""

    members: tuple[Member, ...]
    """In the order of the archive; of members with one name, the last."""
    left_out: tuple[tuple[str, str], ...]
    """Name and reason of what was not unpacked."""
    problem: str | None = None
    """Set when the archive is cut or damaged and only a part could be read."""


class _Source(Protocol):
    """Where the bytes of one member come from."""

    def read(self, size: int, /) -> bytes: ...


class _Writer:
    """Writes members and keeps the account of what they cost."""

    def __init__(self, archive: Path, target: Path, limits: Limits) -> None:
        self.archive = archive
        self.limits = limits
        self.packed_bytes = archive.stat().st_size
        self._target = target
        self._written_bytes = 0
        self._room_bytes = max(shutil.disk_usage(target).free - limits.free_bytes, 0)
        self._members: dict[str, Member] = {}
        self._seen = 0
        self.left_out: list[tuple[str, str]] = []

    def refuse(self, problem: str, hint: str) -> DiscoveryError:
        """The error that refuses the whole archive."""
        return DiscoveryError(f"{printable(str(self.archive))}: unsafe archive: {problem}", hint=hint)

    def clean_name(self, name: str, *, backslash: bool = False) -> str:
        """``name`` as a plain relative path.

        Args:
            name: as the archive gives it.
            backslash: it separates folders too, as in zip files made on Windows.

        Raises:
            DiscoveryError: if the name would leave the archive.
        """
        self._seen += 1
        if self._seen > self.limits.member_count:
            raise self.refuse(f"more than {self.limits.member_count:,} members", "unpack it yourself if you trust it")
        slashed = name.replace("\\", "/")
        parts = slashed.split("/")
        if slashed.startswith("/") or ".." in parts or (len(parts[0]) > 1 and parts[0][1] == ":"):
            raise self.refuse(
                f"member {printable(name[:200])!r} would be written outside of it",
                "make it again with relative names: tar -C DIRECTORY -czf FILE .",
            )
        kept = (slashed if backslash else name).split("/")
        return "/".join(part for part in kept if part not in ("", "."))

    def listed(self, name: str, size_bytes: int, path: Path | None = None, problem: str | None = None) -> None:
        """Record a member; a later one of the same name replaces it, as unpacking would."""
        if name in self._members:
            self.left_out.append((name, "an earlier copy of this member was replaced by a later one"))
        self._members[name] = Member(name, size_bytes, path, problem)

    def known(self, name: str) -> Member | None:
        """The member recorded under a name."""
        return self._members.get(name)

    def write(self, name: str, head: bytes, source: _Source) -> None:
        """Write a member: its head, then what its source still gives; cut data is kept and marked."""
        path = Path(tempfile.mkdtemp(dir=self._target, prefix=f"{self._seen:06d}-")) / _harmless(name)
        size, problem = 0, None
        with path.open("xb") as file:
            chunk = head
            while chunk:
                self._account(len(chunk))
                file.write(chunk)
                size += len(chunk)
                try:
                    chunk = source.read(CHUNK_BYTES)
                except _DAMAGE as error:
                    problem = f"cut or damaged after {size:,} bytes ({error or 'unexpected end'})"
                    break
        self.listed(name, size, path, problem)

    def _account(self, more_bytes: int) -> None:
        self._written_bytes += more_bytes
        if self._written_bytes > self.limits.total_bytes:
            gib = self.limits.total_bytes / 1024**3
            raise self.refuse(f"its traces unpack to more than {gib:,.0f} GiB", "unpack it yourself if you trust it")
        if self._written_bytes > self._room_bytes:
            raise DiscoveryError(
                f"{printable(str(self.archive))}: not enough disk space to unpack it at {self._target}",
                hint="point TMPDIR at a disk with more space, or unpack it yourself",
            )
        self.check_ratio(self._written_bytes)

    def check_ratio(self, unpacked_bytes: int) -> None:
        """Refuse an archive that unpacks to far more than traces do."""
        floor = self.limits.ratio_floor_bytes
        if unpacked_bytes > floor and unpacked_bytes > self.limits.ratio * self.packed_bytes:
            raise self.refuse(
                f"it unpacks to more than {self.limits.ratio:g} times its size, like a decompression bomb",
                "unpack it yourself if you trust it",
            )

    def result(self, problem: str | None) -> Unpacked:
        """Everything recorded so far."""
        return Unpacked(tuple(self._members.values()), tuple(self.left_out), problem)


def unpack(archive: Path, target: Path, wanted: Wanted, limits: Limits = LIMITS) -> Unpacked:
    """Read an archive of any supported kind and write the wanted members below ``target``.

    A cut archive gives what lies before the cut, with ``problem`` set.

    Raises:
        DiscoveryError: the archive is unsafe, encrypted, or not readable at all.
    """
    target.mkdir(parents=True, exist_ok=True)
    try:
        with archive.open("rb") as file:
            writer = _Writer(archive, target, limits)
            if file.read(2) == b"PK":
                return unpack_zip(writer, file, wanted)
            file.seek(0)
            return _unpack_tar(writer, file, wanted)
    except OSError as error:
        raise DiscoveryError(
            f"{printable(str(archive))}: cannot be unpacked: {error.strerror or error}",
            hint="check permissions and disk space",
        ) from error


def unpack_file(packed: Path, target: Path, limits: Limits = LIMITS) -> Member:
    """Decompress one file that is not an archive (``trace.json.zst``, ``.bz2``, ``.xz``, ``.gz``).

    Raises:
        DiscoveryError: it is a decompression bomb, or nothing of it can be read.
    """
    target.mkdir(parents=True, exist_ok=True)
    try:
        with packed.open("rb") as file:
            writer = _Writer(packed, target, limits)
            stream = Inflated(file, packing_of(file.read(8)))
            file.seek(0)
            name = writer.clean_name(packed.stem)
            writer.write(name, stream.read(HEAD_BYTES), stream)
    except (OSError, PackedDataError) as error:
        raise DiscoveryError(f"{printable(str(packed))}: cannot be decompressed: {error}") from error
    member = writer.known(name)
    assert member is not None
    return member


class _TarStream:
    """What tarfile reads from: decompressed bytes, with a bound on every read between two members."""

    def __init__(self, stream: Inflated, writer: _Writer) -> None:
        self._stream = stream
        self._writer = writer
        self._tail = bytes(1)
        self.position = 0
        self.bound: int | None = None

    @property
    def is_cut(self) -> bool:
        """Whether the data ended, but not with the block of zeros that ends a tar."""
        return self._stream.is_cut or self._tail.strip(b"\0") != b""

    def read(self, size: int) -> bytes:
        """The next bytes; fewer only at the end."""
        data = self._stream.read(size)
        self.position += len(data)
        self._tail = data[-tarfile.BLOCKSIZE :] or self._tail
        if self.bound is not None and self.position > self.bound:
            raise self._writer.refuse("a header of it is absurdly long", "unpack it yourself if you trust it")
        self._writer.check_ratio(self.position)
        return data


def _unpack_tar(writer: _Writer, file: IO[bytes], wanted: Wanted) -> Unpacked:
    """Stream through a tar of any compression; members are met once, in order."""
    packing = packing_of(file.read(8))
    file.seek(0)
    stream = _TarStream(Inflated(file, packing), writer)
    problem = None
    try:
        for tar, info in _tar_members(stream, writer):
            _tar_member(writer, tar, info, wanted)
    except (tarfile.TarError, EOFError, PackedDataError, ValueError, OverflowError) as error:
        found = writer.result(None).members
        # tarfile calls data that ends before its first header an empty file.
        why = "it is cut or damaged" if writer.packed_bytes and str(error) == "empty file" else str(error)
        many = "1 file was" if len(found) == 1 else f"{len(found)} files were"
        problem = f"cut or damaged after {stream.position:,} unpacked bytes ({why}); {many} read"
        if not found:
            raise DiscoveryError(
                f"{printable(str(writer.archive))}: not a readable archive: {why}",
                hint="copy it again; a .tar, .tar.gz, .tar.zst or .zip is expected",
            ) from error
    return writer.result(problem)


def _tar_members(stream: _TarStream, writer: _Writer) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    header_bytes = writer.limits.header_bytes
    stream.bound = header_bytes
    with tarfile.open(fileobj=stream, mode="r|", bufsize=CHUNK_BYTES, encoding="utf-8") as tar:  # type: ignore[call-overload]
        while True:
            # tarfile reads a header of any claimed length into memory; the stream stops it at the bound.
            stream.bound = max(int(tar.offset), stream.position) + header_bytes
            info = tar.next()
            if info is None:
                _check_end(stream)
                return
            if info.size < 0:
                raise tarfile.ReadError("a member has a negative size")
            stream.bound = None
            yield tar, info
            tar.members.clear()


def _check_end(stream: _TarStream) -> None:
    """tarfile takes a stream that stops between two members for a whole one; a whole one ends with zero blocks."""
    if stream.is_cut:
        raise tarfile.ReadError("no end mark")


def _tar_member(writer: _Writer, tar: tarfile.TarFile, info: tarfile.TarInfo, wanted: Wanted) -> None:
    name = writer.clean_name(info.name)
    if info.isdir() or not name:
        return
    if info.islnk():
        _hard_link(writer, name, info.linkname)
        return
    reason = "a symbolic link" if info.issym() else "a sparse file" if info.issparse() else "not a plain file"
    if not info.isreg() or info.issparse():
        writer.left_out.append((name, f"{reason}; only plain files are unpacked"))
        return
    source = tar.extractfile(info)
    assert source is not None
    head = source.read(min(HEAD_BYTES, info.size)) if info.size else b""
    if head and wanted(name, info.size, head):
        writer.write(name, head, source)
    else:
        writer.listed(name, info.size)


def _hard_link(writer: _Writer, name: str, target: str) -> None:
    """A hard link to an earlier member is that member under a second name; nothing is linked on disk."""
    earlier = writer.known(writer.clean_name(target))
    if earlier is None:
        writer.left_out.append((name, "a hard link to something that is not in the archive"))
    else:
        writer.listed(name, earlier.size_bytes, earlier.path, earlier.problem)


def _harmless(name: str) -> str:
    """The last part of a name with only characters that no shell, terminal or file system minds."""
    last = name.rsplit("/", 1)[-1]
    kept = "".join(char if char.isascii() and (char.isalnum() or char in "._-@+=") else "_" for char in last)
    return kept[-150:].lstrip(".") or "member"
