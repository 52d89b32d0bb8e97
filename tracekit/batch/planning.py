"""From what the user names to tasks: directories, globs, archive files, object storage, lists."""

from __future__ import annotations

import glob
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import xxhash

from tracekit import remote
from tracekit.batch.ledger import Ledger
from tracekit.batch.tasks import Outcome, Task
from tracekit.captures import Capture, captures
from tracekit.discover import EXPECTED
from tracekit.errors import DiscoveryError, TracekitError
from tracekit.recognise import recognise

_LISTS = (".txt", ".list", ".lst", ".tsv")
_LOOKS_LIKE_TRACE = re.compile(r"\.json(\.(gz|zst|zstd|bz2|xz))?$", re.IGNORECASE)
_PACKED = re.compile(r"\.(gz|tgz|zst|zstd|tzst|bz2|tbz2?|xz|txz|zip)$", re.IGNORECASE)
_SETTLED_NS = 2_000_000_000
"""A file that changed more recently may change again without its time showing it."""


@dataclass
class Plan:
    """Tasks to do, and what needs no doing: known captures, and sources that hold none."""

    tasks: list[Task] = field(default_factory=list)
    done: list[Outcome] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """Bytes of the tasks together."""
        return sum(task.size_bytes for task in self.tasks)


@dataclass(frozen=True)
class _Entry:
    """One source and the labels that its list gives it."""

    text: str
    labels: Mapping[str, str]


def plan(
    sources: Sequence[str],
    ledger: Ledger | None,
    *,
    labels: Mapping[str, str] | None = None,
    neff_cache: Sequence[str] = (),
) -> Plan:
    """Find the captures of ``sources`` and drop those that the ledger knows.

    A source is a directory of any depth, a file, a glob, ``s3://bucket/prefix``, or a list: ``@FILE``, or a file that
    ends in .txt, .list, .lst or .tsv, with one source per line (relative to the list), tab-separated labels
    (``KEY=VALUE``) behind it, and ``#`` before remarks. A source that holds nothing is a failed outcome.

    Returns:
        Tasks by size, largest first, so that the last ones to run are small.
    """
    made = Plan()
    seen: set[tuple[str, ...]] = set()
    caches = tuple(os.path.abspath(n) for n in neff_cache)  # noqa: PTH100 - a link's own name counts
    for entry in _entries(sources, made.done):
        merged = tuple(sorted({**(labels or {}), **entry.labels}.items()))
        found = False
        try:
            for task in _tasks(entry.text, merged, caches):
                found = True
                if isinstance(task, Outcome):
                    made.done.append(task)
                    continue
                if task.paths in seen:
                    continue
                seen.add(task.paths)
                known = ledger.knows(task.key) if ledger else None
                if known:
                    made.done.append(Outcome(task.name, "known", known, attempts=0))
                else:
                    made.tasks.append(task)
            if not found:
                raise DiscoveryError("nothing that tracekit can read", hint=f"expected {EXPECTED}")
        except TracekitError as error:
            made.done.append(Outcome(entry.text, "failed", problem=error.problem, hint=error.hint or None))
        except OSError as error:
            made.done.append(Outcome(entry.text, "failed", problem=error.strerror or str(error)))
    made.tasks.sort(key=lambda t: (-t.size_bytes, t.name))
    return made


def _entries(sources: Iterable[str], lost: list[Outcome]) -> Iterator[_Entry]:
    for source in sources:
        if source.startswith("@") or (source.endswith(_LISTS) and Path(source).is_file()):
            try:
                yield from _listed(Path(source.removeprefix("@")))
            except (OSError, UnicodeDecodeError) as error:
                problem = getattr(error, "strerror", None) or str(error)
                lost.append(Outcome(source, "failed", problem=problem, hint="name a text file, one source per line"))
            except DiscoveryError as error:
                lost.append(Outcome(source, "failed", problem=error.problem, hint=error.hint))
        else:
            yield from (_Entry(text, {}) for text in _globbed(source))


def _listed(path: Path) -> Iterator[_Entry]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        text, *pairs = line.rstrip("\r").split("\t")
        wrong = next((pair for pair in pairs if not pair.partition("=")[0] or "=" not in pair), None)
        if wrong is not None:
            raise DiscoveryError(f"line {number}: {wrong!r} is no label", hint="write SOURCE<tab>KEY=VALUE")
        labels = dict(pair.split("=", 1) for pair in pairs)
        place = text if remote.is_url(text) else str(path.parent / text)
        yield from (_Entry(found, labels) for found in _globbed(place))


def _globbed(text: str) -> list[str]:
    """Paths that a pattern matches; the text itself where it is no pattern, or matches nothing."""
    if remote.is_url(text) or not glob.has_magic(text) or os.path.lexists(text):
        return [text]
    return sorted(glob.glob(text, recursive=True)) or [text]  # noqa: PTH207 - absolute patterns


def _tasks(source: str, labels: tuple[tuple[str, str], ...], caches: tuple[str, ...]) -> Iterator[Task | Outcome]:
    if remote.is_url(source):
        for found in remote.captures(source):
            key = _key([(o.url, o.size_bytes, o.version) for o in found.objects], labels, caches)
            parts = tuple((o.url, o.size_bytes) for o in found.objects)
            name = found.urls[0] if len(found.urls) == 1 else f"{source.rstrip('/')}: {found.name}"
            size, packed = _sizes(parts)
            yield Task(name, found.urls, size, key, labels, caches, parts, packed)
        return
    taken: set[str] = set()
    for capture in captures(Path(source)):
        taken.update(path for path, _, _ in _files(capture.paths))
        yield _local_task(capture, labels, caches)
    for path, size, _ in sorted(_files([Path(source)])):
        if path not in taken and _LOOKS_LIKE_TRACE.search(path):
            problem = _damage(path, size)
            if problem:
                yield Outcome(path, "failed", problem=problem, hint="copy it again, or take the trace again")


def _damage(path: str, size_bytes: int) -> str | None:
    """Why a file that is called a trace is none at all; None if it is some other, sound JSON."""
    kind = recognise(Path(path), Path(path).name, size_bytes)
    reason = kind.reason or ""
    return reason if kind.role == "other" and re.search(r"0 bytes|damaged|not JSON|cannot be read", reason) else None


def _local_task(capture: Capture, labels: tuple[tuple[str, str], ...], caches: tuple[str, ...]) -> Task:
    files = sorted(_files(capture.paths))
    newest = max((changed for _, _, changed in files), default=0)
    settled = time.time_ns() - newest > _SETTLED_NS
    key = _key([(p, size, str(changed)) for p, size, changed in files], labels, caches) if settled else None
    paths = tuple(str(p) for p in capture.paths)
    name = paths[0] if len(paths) == 1 else f"{os.path.commonpath(paths)}: {capture.name}"
    size, packed = _sizes((p, size) for p, size, _ in files)
    return Task(name, paths, size, key, labels, caches, packed_bytes=packed)


def _sizes(files: Iterable[tuple[str, int]]) -> tuple[int, int]:
    """Bytes of files together, and of those that are compressed."""
    listed = list(files)
    return sum(size for _, size in listed), sum(size for name, size in listed if _PACKED.search(name))


def _files(paths: Iterable[Path]) -> Iterator[tuple[str, int, int]]:
    """Path, size and time of every file of a capture; what cannot be looked at is left to the reader."""
    for path in paths:
        places = [path] if not path.is_dir() else [Path(d, n) for d, _, names in os.walk(path) for n in names]
        for place in places:
            try:
                facts = place.stat()
            except OSError:
                continue
            yield str(place), facts.st_size, facts.st_mtime_ns


def _key(files: Iterable[tuple[str, int, str]], labels: tuple[tuple[str, str], ...], caches: tuple[str, ...]) -> str:
    return xxhash.xxh3_128_hexdigest(repr((list(files), labels, caches)).encode("utf-8", "surrogateescape"))
