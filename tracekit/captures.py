"""Split a tree of many captures into the inputs of one profile each, without reading more than heads.

The rule, from the most to the least certain:

1. An archive file is one capture.
2. A directory with ``<instance>_pid_<pid>`` directories in it is one capture with everything below it (a Neuron output
   directory with its processes); so is a single such directory that is the root itself.
3. A directory whose own files show a whole capture (a trace beside ``capture.json``, ``ntrace.pb``, NEFF or NTFF) is
   one.
4. Sibling directories ``<prefix>rank<N><suffix>`` that hold traces are one capture: the ranks of a job. So are trace
   files in one directory whose names differ in the rank only.
5. Every other trace file is one capture.
6. System traces (Explorer Parquet, system or fetch JSON, ``ntrace.pb``), NEFFs and NTFFs belong to the only capture
   beside or below their directory; where there is none, or several, those of each directory are one.

Captures come in the order of their names while the tree is being walked, one directory at a time.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tracekit.discover import EXPECTED
from tracekit.errors import DiscoveryError
from tracekit.recognise import Kind, printable, recognise
from tracekit.sessions import is_process_name, trace_stem
from tracekit.walk import Findings, entries, passed_over, stem_of_archive

_RANK = re.compile(r"(?<![A-Za-z0-9])rank[-_= ]?\d{1,9}(?!\d)", re.IGNORECASE)
_PACKED = re.compile(r"\.(gz|zst|zstd|bz2|xz)$")
MAX_DEPTH = 64
"""Directories below the root that are looked at."""

_SYSTEM_FORMATS = frozenset(("explorer", "system_json", "fetch_json"))


@dataclass(frozen=True)
class Capture:
    """The inputs of one profile."""

    name: str
    """Path relative to the root of the tree, without file endings; safe to show, unique in most trees."""
    paths: tuple[Path, ...]


@dataclass
class _Rest:
    """What a directory could not settle by itself: at most one capture, and system traces without one."""

    capture: Capture | None = None
    pieces: list[Capture] = field(default_factory=list)


@dataclass
class _Folder:
    """One directory, looked at."""

    path: Path
    folders: list[Path] = field(default_factory=list)
    archives: list[Path] = field(default_factory=list)
    traces: list[Path] = field(default_factory=list)
    system: list[Path] = field(default_factory=list)
    companions: list[Path] = field(default_factory=list)
    """Files that lie in the directory of a whole capture."""


def captures(root: Path) -> Iterator[Capture]:
    """The captures at ``root``: a file or a directory of any depth; see the module for the rule.

    Directories that cannot be read, links to directories and hidden directories are passed over.

    Raises:
        DiscoveryError: there is nothing at ``root``.
    """
    root = Path(os.path.abspath(root))  # noqa: PTH100 - a link's own name counts
    if not root.exists():
        raise DiscoveryError(f"{printable(str(root))}: no such file or directory", hint=f"name {EXPECTED}")
    if not root.is_dir():
        yield Capture(_name(root, root.parent), (root,))
        return
    if is_process_name(root.name) or is_process_name(root.parent.name):
        yield Capture(printable(root.name), (root,))
        return
    rest = yield from _split(root, root)
    if rest.capture is not None:
        yield rest.capture
    yield from rest.pieces


def _name(path: Path, root: Path) -> str:
    relative = path.relative_to(root)
    parent = "" if str(relative.parent) == "." else f"{relative.parent.as_posix()}/"
    stem = relative.name if path.is_dir() else trace_stem(stem_of_archive(relative.name))
    return printable(parent + stem) if relative.name else printable(root.name)


def _whole(path: Path, root: Path) -> Capture:
    return Capture(_name(path, root), (path,))


def _split(path: Path, root: Path) -> Generator[Capture, None, _Rest]:
    """Yield the captures of a directory that are certain, and return what its parent has to decide."""
    folder = _look(path, root)
    if any(is_process_name(child.name) for child in folder.folders) or (folder.companions and folder.traces):
        return _Rest(_whole(path, root))
    loose = (*folder.system, *folder.companions)
    pieces = [Capture(_name(path, root), loose)] if loose else []
    held: Capture | None = None
    is_many = False
    for capture in _inside(folder, root, pieces):
        if held is None and not is_many:
            held = capture
            continue
        if held is not None:
            yield held
        held, is_many = None, True
        yield capture
    if pieces and held is not None and not any(p in folder.archives for p in held.paths):
        return _Rest(_whole(path, root))
    if is_many:
        yield from pieces
        return _Rest()
    return _Rest(held, pieces)


def _inside(folder: _Folder, root: Path, pieces: list[Capture]) -> Iterator[Capture]:
    """Captures of a directory's own files and of its children; system traces without one go to ``pieces``."""
    for archive in folder.archives:
        yield _whole(archive, root)
    for group in _rank_groups(folder.traces):
        yield _group(group, root)
    for group in _rank_groups(folder.folders):
        if len(group) > 1 and all(_has_trace(child, root) for child in group):
            yield _group(group, root)
            continue
        for child in group:
            rest = yield from _split(child, root)
            pieces += rest.pieces
            if rest.capture is not None:
                yield rest.capture


def _rank_groups(paths: list[Path]) -> list[list[Path]]:
    """Paths whose names differ only in the rank, together; all others alone. A packed copy joins its original."""
    groups: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        groups[_RANK.sub("rank#", _PACKED.sub("", path.name))].append(path)
    return list(groups.values())


def _group(paths: list[Path], root: Path) -> Capture:
    """Several files or directories of one job."""
    names = {trace_stem(path.name) for path in paths}
    if len(names) == 1:
        return Capture(_name(paths[0], root), tuple(paths))
    first, last = min(names), max(names)
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    prefix = first[:same].rstrip("-_=. ")
    folder = paths[0].parent
    parent = "" if folder == root else f"{folder.relative_to(root).as_posix()}/"
    return Capture(printable(parent + (prefix or "ranks")), tuple(paths))


def _has_trace(path: Path, root: Path) -> bool:
    """Whether a directory holds exactly one capture."""
    found = _split(path, root)
    try:
        next(found)
    except StopIteration as end:
        rest: _Rest = end.value
        return rest.capture is not None
    return False


def _look(path: Path, root: Path) -> _Folder:
    """Sort the entries of one directory by what they are."""
    folder = _Folder(path)
    if len(path.parts) - len(root.parts) > MAX_DEPTH:
        return folder
    for entry in entries(path, (), Findings()):
        place = Path(entry.path)
        if passed_over(entry, str(root)):
            continue
        if entry.is_dir():
            folder.folders.append(place)
            continue
        try:
            kind = recognise(place, entry.name, entry.stat().st_size)
        except OSError:
            continue
        _file(folder, place, kind)
    return folder


def _file(folder: _Folder, path: Path, kind: Kind) -> None:
    if kind.is_archive:
        folder.archives.append(path)
    elif kind.role == "trace":
        folder.traces.append(path)
    elif kind.format in _SYSTEM_FORMATS:
        folder.system.append(path)
    elif kind.role in ("manifest", "neff", "ntff", "device_table") or kind.format == "ntrace":
        folder.companions.append(path)
