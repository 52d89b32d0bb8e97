"""Every file below the inputs, in and out of archives, with what it is; no meaning beyond the single file.

The walk is deterministic (sorted by name), never follows a link to a directory, opens no file that is not plain,
and reads heads only.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tracekit.errors import DiscoveryError
from tracekit.recognise import Kind, by_content, by_name, host_process, printable, recognise
from tracekit.unpack import LIMITS, Limits, Member, unpack, unpack_file

MAX_FILES = 500_000
"""More files than any capture has: the wrong directory was named."""

_PACKED_TABLE = "in an archive: unpack it to query this table"
_ARCHIVE_SUFFIX = re.compile(r"\.(tar|tar\.\w+|tgz|tbz2?|txz|tzst|zip)$", re.IGNORECASE)


@dataclass(frozen=True)
class Found:
    """A file, where it is and what it is."""

    path: Path
    parts: tuple[str, ...]
    """Path relative to the root, an archive counting as a directory; safe to show."""
    kind: Kind
    size_bytes: int
    problem: str | None = None
    process_id: int | None = None
    """Process of the host events in a framework trace, if its head shows it."""

    @property
    def label(self) -> str:
        """Path relative to the root, as text."""
        return "/".join(self.parts)

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.parts[-1]


@dataclass(frozen=True)
class Remark:
    """A note about a path; fields as in ``tables.NOTES``."""

    severity: str
    code: str
    path: str | None
    message: str
    hint: str | None = None
    session: str | None = None


@dataclass
class Findings:
    """What a walk found."""

    files: list[Found] = field(default_factory=list)
    ignored: list[tuple[str, str]] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)


def stem_of_archive(name: str) -> str:
    """A name without the ending of an archive: what the directory in it would be called."""
    return _ARCHIVE_SUFFIX.sub("", name)


def walk(path: Path, parts: tuple[str, ...], findings: Findings, workdir: Path, limits: Limits = LIMITS) -> None:
    """Find and recognise everything at ``path``.

    Args:
        path: a file, directory or archive; an absolute path.
        parts: what ``path`` is called relative to the profile's root; empty if it is the root.
        findings: takes what is found.
        workdir: where archives are unpacked.
        limits: what an archive may cost.

    Raises:
        DiscoveryError: ``path`` cannot be read, or an archive is unsafe.
    """
    if path.is_dir():
        _check_readable(path)
        for file, file_parts in _files(path, parts, findings):
            _add(file, file_parts, findings, workdir, limits, is_input=False)
    else:
        _add(path, parts, findings, workdir, limits, is_input=True)


def _check_readable(directory: Path) -> None:
    try:
        os.scandir(directory).close()
    except OSError as error:
        raise DiscoveryError(
            f"{printable(str(directory))}: cannot be read: {error.strerror}", hint="check its permissions"
        ) from error


def _files(directory: Path, parts: tuple[str, ...], findings: Findings) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Plain files below a directory, depth first, by name; what is passed over is recorded."""
    real_root = os.path.realpath(directory)
    pending = [(directory, parts)]
    count = 0
    while pending:
        place, place_parts = pending.pop()
        folders = []
        for entry in entries(place, place_parts, findings):
            count += 1
            if count > MAX_FILES:
                raise DiscoveryError(
                    f"{printable(str(directory))}: more than {MAX_FILES:,} files", hint="name the capture's directory"
                )
            entry_parts = (*place_parts, printable(entry.name))
            reason = passed_over(entry, real_root)
            if reason:
                findings.ignored.append(("/".join(entry_parts), reason))
            elif entry.is_dir(follow_symlinks=False):
                folders.append((Path(entry.path), entry_parts))
            else:
                yield Path(entry.path), entry_parts
        pending.extend(reversed(folders))


def entries(directory: Path, parts: tuple[str, ...], findings: Findings) -> list[os.DirEntry[str]]:
    """The entries of a directory by name; none, and a remark, if it cannot be read."""
    try:
        with os.scandir(directory) as scan:
            return sorted(scan, key=lambda entry: entry.name)
    except OSError as error:
        label = "/".join(parts) or "."
        findings.ignored.append((label, f"cannot be read: {error.strerror}"))
        message = f"directory cannot be read: {error.strerror}"
        findings.remarks.append(Remark("warning", "unreadable_directory", label, message, "check its permissions"))
        return []


def passed_over(entry: os.DirEntry[str], real_root: str) -> str | None:
    """Why an entry is not looked at, or None."""
    try:
        if entry.is_dir(follow_symlinks=False):
            if entry.name.startswith("."):
                return "hidden directory"
            return "a profile that tracekit stored" if entry.name.startswith("profile=") else None
        if entry.is_symlink():
            return _link_reason(entry, real_root)
        mode = entry.stat(follow_symlinks=False).st_mode
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None if stat.S_ISREG(mode) else "not a plain file"


def _link_reason(entry: os.DirEntry[str], real_root: str) -> str | None:
    """Why a symbolic link is not followed: only links to plain files elsewhere are."""
    try:
        mode = entry.stat().st_mode
    except OSError:
        return "a link that leads nowhere"
    if stat.S_ISDIR(mode):
        return "a link to a directory is not followed; name that directory as an input"
    if not stat.S_ISREG(mode):
        return "not a plain file"
    target = os.path.realpath(entry.path)
    inside = os.path.commonpath([target, real_root]) == real_root
    return "a link to a file that is read where it lies" if inside else None


def _add(
    path: Path, parts: tuple[str, ...], findings: Findings, workdir: Path, limits: Limits, *, is_input: bool
) -> None:
    """Recognise one file on disk; an archive gives its members, a packed file what is in it."""
    try:
        size = path.stat().st_size
    except OSError as error:
        findings.ignored.append(("/".join(parts), f"cannot be read: {error.strerror}"))
        return
    name = parts[-1] if parts else path.name
    kind = recognise(path, name, size, is_input=is_input)
    if kind.is_archive:
        _add_archive(path, parts, findings, workdir, limits, is_input=is_input)
        return
    _keep(path, parts or (name,), kind, size, kind.problem, findings, workdir, limits)


def _keep(
    path: Path,
    parts: tuple[str, ...],
    kind: Kind,
    size_bytes: int,
    problem: str | None,
    findings: Findings,
    workdir: Path,
    limits: Limits,
) -> None:
    """Record a file, decompressed beside if its reader cannot do that itself."""
    if kind.format is not None and kind.packing not in (None, "gzip"):
        member = unpack_file(path, Path(tempfile.mkdtemp(dir=workdir)), limits)
        path, problem = member.path or path, problem or member.problem
    process = host_process(kind.head) if kind.format == "kineto" else None
    findings.files.append(Found(path, parts, replace(kind, head=b""), size_bytes, problem, process))


def _add_archive(
    path: Path, parts: tuple[str, ...], findings: Findings, workdir: Path, limits: Limits, *, is_input: bool
) -> None:
    """Unpack what readers need of an archive, and record all of its files."""
    kinds: dict[str, Kind] = {}

    def wanted(name: str, _size: int, head: bytes) -> bool:
        last = name.rsplit("/", 1)[-1]
        kind = by_name(last) or by_content(head, last)
        kinds[name] = replace(kind, head=b"")
        hopeful = kind.format is None and kind.role == "other" and _may_hide_events(kind)
        return kind.format is not None or kind.role == "manifest" or hopeful

    label = "/".join(parts) or path.name
    try:
        unpacked = unpack(path, Path(tempfile.mkdtemp(dir=workdir)), wanted, limits)
    except DiscoveryError as error:
        if is_input:
            raise
        findings.ignored.append((label, error.problem))
        findings.remarks.append(Remark("error", "archive_refused", label, error.problem, error.hint or None))
        return
    if unpacked.problem:
        hint = "copy it again; what lies before the damage was read"
        findings.remarks.append(Remark("warning", "cut_archive", label, unpacked.problem, hint))
    for name, reason in unpacked.left_out:
        findings.ignored.append(("/".join((*parts, *_shown(name))), reason))
    for member in unpacked.members:
        _add_member(path, member, kinds.get(member.name), parts, findings, workdir, limits)


def _may_hide_events(kind: Kind) -> bool:
    """A JSON object whose head shows no event list: the whole file must be looked at."""
    return kind.head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" and len(kind.head) >= 64 * 1024


def _add_member(
    archive: Path,
    member: Member,
    kind: Kind | None,
    parts: tuple[str, ...],
    findings: Findings,
    workdir: Path,
    limits: Limits,
) -> None:
    """Record one member of an archive; one that was not written has the archive as its path."""
    member_parts = (*parts, *_shown(member.name))
    name = member_parts[-1]
    if member.path is not None:
        kind = recognise(member.path, name, member.path.stat().st_size)
    elif kind is None:
        kind = by_name(name) or Kind("other", reason=member.problem or "0 bytes")
    if kind.is_archive:
        findings.ignored.append(("/".join(member_parts), "an archive in an archive is not opened"))
        message = "an archive inside an archive is not opened"
        hint = "unpack the outer one and give the directory"
        findings.remarks.append(Remark("warning", "nested_archive", "/".join(member_parts), message, hint))
        return
    unqueryable = member.path is None and kind.role == "device_table"
    _keep(
        member.path or archive,
        member_parts,
        kind,
        member.size_bytes,
        member.problem or kind.problem or (_PACKED_TABLE if unqueryable else None),
        findings,
        workdir,
        limits,
    )


def _shown(name: str) -> tuple[str, ...]:
    return tuple(printable(part) for part in name.split("/"))
