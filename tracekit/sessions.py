"""Which captured process each file belongs to, as far as directories, file names and manifests tell.

A directory ``<instance>_pid_<pid>``, at any depth, is a process; a directory below it whose name is a time is one
capture of it. A framework trace outside of such a directory is a session of its own. Files of the runtime go to the
process they name, or to the only session of their directory; else the reader decides (``Sink.session_of``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tracekit.copies import Identity, copies, seems_equal
from tracekit.recognise import is_archive_name
from tracekit.sources.artifacts import parse_name
from tracekit.sources.base import Artifact, Session
from tracekit.sources.capture_manifest import CaptureManifest, read_manifest
from tracekit.walk import Found, Remark, stem_of_archive

_PROCESS_DIR = re.compile(r"^(?P<instance>.+)_pid_(?P<pid>\d{1,18})$")
_TIME_DIR = re.compile(r"^\d[\dTZ_:.+-]{3,39}$")
_RANK = re.compile(r"(?:^|[^A-Za-z0-9])rank[-_= ]?(\d{1,9})(?!\d)", re.IGNORECASE)
_RANK_DIR = re.compile(r"rank[-_= ]?\d{1,9}$", re.IGNORECASE)
_PID = re.compile(r"(?:^|[^A-Za-z0-9])pid[-_= ]?(\d{1,18})(?!\d)", re.IGNORECASE)
_TENSORBOARD = re.compile(r"^(?P<host>.+)_(?P<pid>\d{1,18})\.\d+(?:\.pt\.trace)?\.json(?:\.\w+)?$")
_TRACE_SUFFIX = re.compile(r"(\.pt\.trace)?\.(json|trace|txt)(\.(gz|zst|zstd|bz2|xz))?$|\.(gz|zst|zstd|bz2|xz)$")

Place = tuple[str, ...]
"""A directory: its parts relative to the root."""


def trace_stem(name: str) -> str:
    """File name of a trace without ``.gz``, ``.json`` and ``.pt.trace``."""
    return _TRACE_SUFFIX.sub("", name) or name


def is_process_name(name: str) -> bool:
    """Whether a directory name is ``<instance>_pid_<pid>``."""
    return _PROCESS_DIR.match(name) is not None


def rank_in(name: str) -> int | None:
    """Rank that a file or directory name spells: ``rank3``, ``rank-3``, ``rank_3``."""
    found = _RANK.search(name)
    rank = int(found[1]) if found else None
    return rank if rank is not None and rank < 2**31 else None


@dataclass(frozen=True)
class Process:
    """A process directory, and the capture in it."""

    place: Place
    instance_id: str
    process_id: int
    time: str | None
    path: Place
    """``place``, and the directory of the capture's time below it."""

    @property
    def name(self) -> str:
        """``<instance>_pid_<pid>``."""
        return f"{self.instance_id}_pid_{self.process_id}"


def process_of(place: Place, context: Place = ()) -> Process | None:
    """The innermost process directory that ``place`` is or lies in.

    Args:
        place: a directory relative to the root.
        context: names of the directories above the root.
    """
    full = (*context, *place)
    for index in range(len(full) - 1, -1, -1):
        found = _PROCESS_DIR.match(stem_of_archive(full[index]))
        if found:
            below = full[index + 1] if index + 1 < len(full) else ""
            time = below if _TIME_DIR.match(below) else None
            kept = max(index + 1 - len(context), 0)
            path = place[: max(index + 2 - len(context), 0)] if time else place[:kept]
            return Process(place[:kept], found["instance"], int(found["pid"]), time, path)
    return None


@dataclass(frozen=True)
class Assigned:
    """Files with their sessions."""

    artifacts: tuple[Artifact, ...]
    sessions: tuple[Session, ...]
    remarks: tuple[Remark, ...]


def assign(files: Sequence[Found], context: Place) -> Assigned:
    """Name the sessions and give every file the one it belongs to.

    Args:
        files: what the walk found, sorted by label.
        context: names of the directories above the root.
    """
    book = _Book(files, context)
    book.processes()
    book.copies()
    book.traces()
    book.manifests()
    named = book.named()
    artifacts = tuple(book.artifact(found, named) for found in files)
    sessions = sorted(named.values(), key=lambda session: session.session)
    said = [replace(r, session=named[key].session if key else None) for key, r in book.remarks]
    return Assigned(artifacts, tuple(sessions), tuple(said))


class _Book:
    """The account of who belongs where while it is being found out. Sessions have keys until they have names."""

    def __init__(self, files: Sequence[Found], context: Place) -> None:
        self._files = files
        self._context = context
        self._sessions: dict[Place, Session] = {}
        self._of_file: dict[str, Place] = {}
        self._process: dict[str, Process] = {}
        self._duplicates: dict[str, str] = {}
        self._by_place: dict[Place, list[Found]] = defaultdict(list)
        for found in files:
            self._by_place[found.parts[:-1]].append(found)
        self._pids: dict[int | None, list[Place]] | None = None
        self.remarks: list[tuple[Place | None, Remark]] = []

    def processes(self) -> None:
        """One session per process directory, or per capture time where a process has several."""
        for found in self._files:
            process = process_of(found.parts[:-1], self._context)
            if process is not None:
                self._process[found.label] = process
        self._merge_places()
        times: dict[Place, set[str]] = defaultdict(set)
        for process in self._process.values():
            times[process.place] |= {process.time} if process.time else set()
        for label, process in self._process.items():
            several = len(times[process.place]) > 1
            if several and process.time is None:
                continue
            key = (*process.place, "", process.time or "") if several else (*process.place, "")
            self._of_file[label] = key
            self._sessions.setdefault(key, _process_session(process, several=several))

    def _merge_places(self) -> None:
        """One capture found at two places (a directory and its tarball, or halves of it) is one process.

        Only if instance, process and time are the same, and so is every file that both places hold.
        """
        places: dict[tuple[str, str], dict[Place, dict[Place, Found]]] = defaultdict(dict)
        for found in self._files:
            process = self._process.get(found.label)
            if process is not None and process.time:
                same = places[process.name, process.time].setdefault(process.place, {})
                same[found.parts[len(process.place) :]] = found
        for held in places.values():
            first, *others = sorted(held, key=lambda place: (any(map(is_archive_name, place)), place))
            for other in others:
                common = [rest for rest in held[other] if rest in held[first]]
                if all(seems_equal(held[first][rest], held[other][rest]) for rest in common):
                    self._move(held[other], first, held[first])

    def _move(self, files: Mapping[Place, Found], place: Place, there: Mapping[Place, Found]) -> None:
        for rest, found in files.items():
            own = self._process[found.label]
            self._process[found.label] = replace(own, place=place, path=(*place, *own.path[len(own.place) :]))
            if rest in there:
                self._duplicates[found.label] = f"copy of {there[rest].label}, which is read"

    def copies(self) -> None:
        """A file that is byte for byte another one is read once, unless names say they tell of different processes."""
        readable = [f for f in self._files if f.kind.format and f.label not in self._duplicates]
        for label, first in copies(sorted(readable, key=self._standing), self._identity).items():
            self._duplicates[label] = f"copy of {first.label}, which is read"

    def _standing(self, found: Found) -> tuple[bool, bool, bool, str]:
        """Which of two copies is read: the one in a process directory, out of no archive, called ``trace.json``."""
        packed = any(map(is_archive_name, found.parts[:-1]))
        return (found.label not in self._process, packed, not found.name.startswith("trace."), found.label)

    def _identity(self, found: Found) -> Identity:
        """Process directory, process and rank, as far as names tell."""
        process = self._process.get(found.label)
        process_id = process.process_id if process else _pid_in(found.name)
        return (process.name if process else None, process_id, self._rank(found))

    def traces(self) -> None:
        """One session per framework trace that has none; a second one of a process gets its own."""
        self._drop_twins()
        owners: dict[Place, str] = {}
        traces = [f for f in self._files if f.kind.format == "kineto" and f.label not in self._duplicates]
        for found in sorted(traces, key=lambda f: (not f.name.startswith("trace."), f.label)):
            key = self._of_file.get(found.label)
            if key is not None and owners.setdefault(key, found.label) == found.label:
                continue
            base = self._sessions[key].session + "/" if key is not None else ""
            own = (*found.parts, "trace")
            self._of_file[found.label] = own
            session = self._trace_session(found)
            self._sessions[own] = replace(session, session=base + session.session)

    def _drop_twins(self) -> None:
        """``trace.json`` beside ``trace.json.gz`` is one trace: the plain file is read unless it is empty."""
        by_stem: dict[Place, list[Found]] = defaultdict(list)
        for found in self._files:
            if found.kind.role == "trace":
                stem = re.sub(r"\.(gz|zst|zstd|bz2|xz)$", "", found.name)
                place = (*found.parts[:-1], stem)
                by_stem[place].append(found)
        for twins in by_stem.values():
            best = min(twins, key=lambda f: (f.kind.format is None, len(f.name), f.label))
            for found in twins:
                if found is not best:
                    self._duplicates[found.label] = f"packed copy of {best.name}, which is read"

    def _trace_session(self, found: Found) -> Session:
        tensorboard = _TENSORBOARD.match(found.name)
        process = self._process.get(found.label)
        process_id = int(tensorboard["pid"]) if tensorboard else None
        return Session(
            trace_stem(found.name),
            found.label,
            instance_id=process.instance_id if process else None,
            process_id=process.process_id if process else process_id or _pid_in(found.name) or found.process_id,
            rank=self._rank(found),
            host_name=tensorboard["host"] if tensorboard else None,
        )

    def _rank(self, found: Found) -> int | None:
        """Rank in the file name, else in the nearest directory that spells one."""
        rank = rank_in(found.name)
        for part in reversed((*self._context, *found.parts[:-1])):
            if rank is not None:
                break
            rank = rank_in(part) if _RANK_DIR.search(part) else None
        return rank

    def manifests(self) -> None:
        """Add the facts of each ``capture.json`` to the session of its directory."""
        for found in self._files:
            if found.kind.role != "manifest":
                continue
            manifest = read_manifest(found.path)
            if isinstance(manifest, str):
                hint = "the trace beside it is read without it"
                self.remarks.append((None, Remark("warning", "bad_manifest", found.label, manifest, hint)))
                continue
            key = self._session_beside(found) or self._manifest_session(found, manifest)
            self._of_file[found.label] = key
            self._sessions[key] = _with_facts(self._sessions[key], manifest)
            for note in manifest.notes:
                remark = Remark(note.severity, note.code, found.label, note.message, note.hint)
                self.remarks.append((key, remark))

    def _session_beside(self, found: Found) -> Place | None:
        """Session of a file: of its process directory, else the only one of its own directory."""
        key = self._of_file.get(found.label)
        if key is not None or found.label in self._process:
            return key
        beside = {
            self._of_file[other.label]
            for other in self._by_place[found.parts[:-1]]
            if other.kind.format == "kineto" and other.label in self._of_file
        }
        return next(iter(beside)) if len(beside) == 1 else None

    def _manifest_session(self, found: Found, manifest: CaptureManifest) -> Place:
        """A session for a manifest that has no trace beside it, such as of a capture that was killed."""
        name = (manifest.name or "").split("/")[0]
        if not _PROCESS_DIR.match(name):
            place = found.parts[-2] if len(found.parts) > 1 else trace_stem(found.name)
            name = f"{manifest.instance_id}_pid_{manifest.process_id}" if manifest.instance_id else place
        key = (*found.parts[:-1], "manifest")
        self._sessions[key] = Session(name, "/".join(found.parts[:-1]) or ".")
        return key

    def artifact(self, found: Found, sessions: Mapping[Place, Session]) -> Artifact:
        """The file with everything that is known about it."""
        key = self._session_key(found)
        named = parse_name(found.name)
        process = self._process.get(found.label)
        session = sessions[key] if key else None
        process_id = process.process_id if process else _pid_in(found.name)
        problem = found.problem or self._duplicates.get(found.label)
        return Artifact(
            path=found.path,
            label=found.label,
            role=found.kind.role,
            format=None if found.label in self._duplicates else found.kind.format,
            session=session.session if session else None,
            instance_id=process.instance_id if process else session.instance_id if session else None,
            process_id=session.process_id if process_id is None and session else process_id,
            model_hash=named.model_hash if named else None,
            core_index=named.core_index if named else None,
            rank=named.rank if named and named.rank is not None else self._rank(found),
            size_bytes=found.size_bytes,
            problem=problem,
        )

    def _session_key(self, found: Found) -> Place | None:
        key = self._of_file.get(found.label)
        if key is not None or found.label in self._process:
            return key
        if found.label in self._duplicates or found.kind.role in ("other", "device_table", "memory_snapshot"):
            return None
        if found.kind.format in ("explorer", "system_json"):
            return None
        pid = _pid_in(found.name)
        if pid is not None:
            same = self._by_pid().get(pid, [])
            if len(same) == 1:
                return same[0]
        beside = self._session_beside(found)
        if beside and pid not in (None, self._sessions[beside].process_id):
            return None
        return beside

    def _by_pid(self) -> dict[int | None, list[Place]]:
        """Sessions by process; asked for once all of them are known."""
        if self._pids is None:
            self._pids = defaultdict(list)
            for key, session in self._sessions.items():
                self._pids[session.process_id].append(key)
        return self._pids

    def named(self) -> dict[Place, Session]:
        """Sessions by key, with names that are unique: those that collide get their directories in front."""
        names = _unique({key: (s.session, s.path) for key, s in self._sessions.items()})
        return {key: replace(session, session=names[key]) for key, session in self._sessions.items()}


def _process_session(process: Process, *, several: bool) -> Session:
    name = f"{process.name}/{process.time}" if several else process.name
    path = "/".join(process.path) or "."
    return Session(name, path, instance_id=process.instance_id, process_id=process.process_id)


def _pid_in(name: str) -> int | None:
    found = _PID.search(name)
    return int(found[1]) if found else None


def _with_facts(session: Session, manifest: CaptureManifest) -> Session:
    """The session with what the manifest knows; what directories and names say stays."""
    names = ("instance_id", "process_id", "rank", "world_size", "host_name", "instance_type")
    missing = {name: getattr(manifest, name) for name in names if getattr(session, name) is None}
    texts = {name: getattr(manifest, name) for name in ("versions_json", "labels_json", "capture_json")}
    return replace(session, **missing, **texts)


def _unique(wanted: Mapping[Place, tuple[str, str]]) -> dict[Place, str]:
    """A name for each key: the wanted one, with as many parent directories in front as make it unique."""
    names = {key: name for key, (name, _) in wanted.items()}
    parents = {key: path.split("/")[:-1] for key, (_, path) in wanted.items()}
    while True:
        twins: dict[str, list[Place]] = defaultdict(list)
        for key, name in names.items():
            twins[name].append(key)
        clashing = [key for keys in twins.values() if len(keys) > 1 for key in keys]
        if not clashing:
            return names
        if not any(parents[key] for key in clashing):
            break
        for key in clashing:
            if parents[key]:
                names[key] = f"{parents[key].pop()}/{names[key]}"
    taken = set(names.values())
    for keys in twins.values():
        for number, key in enumerate(keys[1:], start=2):
            while (name := f"{names[key]}~{number}") in taken:
                number += 1  # noqa: PLW2901
            names[key] = name
            taken.add(name)
    return names
