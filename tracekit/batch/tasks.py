"""One capture to ingest, what came of it, and the function that does it: the same here and on a cluster."""

from __future__ import annotations

import contextlib
import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tracekit import remote
from tracekit.errors import TracekitError
from tracekit.ingestion import ingest

Status = Literal["stored", "known", "failed", "skipped"]
STATUSES = ("stored", "known", "failed", "skipped")
"""stored: written now; known: the archive held it; failed: see the problem; skipped: the batch ended before."""
_LOOK = "`tracekit info` shows all notes of a profile"


@dataclass(frozen=True)
class Task:
    """The inputs of one profile.

    ``paths`` are absolute paths, or URLs; then ``objects`` holds URL and size of every object there. ``key`` is a
    hash of paths, sizes and times of all files; None where a file changed just now, so that times cannot tell
    versions apart.
    """

    name: str
    paths: tuple[str, ...]
    size_bytes: int
    key: str | None
    labels: tuple[tuple[str, str], ...] = ()
    neff_cache: tuple[str, ...] = ()
    objects: tuple[tuple[str, int], ...] = ()
    packed_bytes: int = 0
    """Bytes of ``size_bytes`` that are compressed."""


@dataclass(frozen=True)
class Outcome:
    """What came of one task."""

    name: str
    status: Status
    profile: str | None = None
    read_bytes: int = 0
    event_count: int | None = None
    took_ns: int | None = None
    attempts: int = 1
    problem: str | None = None
    """Why it failed; of a stored one, the gravest of its warnings."""
    hint: str | None = None
    warning_count: int | None = None
    content_id: str | None = field(default=None, compare=False)


def ingest_task(task: Task, archive: str) -> Outcome:
    """Ingest one task; every problem becomes a failed outcome, so that no capture can stop another."""
    begun = time.perf_counter_ns()
    try:
        outcome = _ingest(task, archive)
    except TracekitError as error:
        outcome = failed(task, error.problem, error.hint)
    except MemoryError:
        outcome = failed(task, "not enough memory", "raise --limit-memory, or use a machine with more")
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        outcome = failed(task, f"{place}{error.strerror or error}")
    except Exception as error:  # noqa: BLE001 - a defect met by one capture must not end the batch
        outcome = failed(task, f"{type(error).__name__}: {error}", "please report this, with the capture if you can")
    return Outcome(**{**vars(outcome), "took_ns": time.perf_counter_ns() - begun})


def failed(task: Task, problem: str, hint: str = "") -> Outcome:
    """A failed outcome; the problem is kept to one line, without the name that stands beside it."""
    text = " ".join(problem.removeprefix(f"{task.name}: ").split()) or "unknown"
    return Outcome(task.name, "failed", problem=text, hint=hint or None)


def _ingest(task: Task, archive: str) -> Outcome:
    with contextlib.ExitStack() as stack:
        paths = [Path(p) for p in task.paths]
        if task.objects:
            inbox = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tracekit-in-")))
            remote.download(task.objects, inbox)
            paths = [remote.local_path(url, inbox) for url in task.paths]
        target = Path(archive)
        if remote.is_url(archive):
            target = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tracekit-out-")))
        try:
            done = ingest(paths, target, labels=dict(task.labels), neff_cache=task.neff_cache)
        except TracekitError as error:
            return failed(task, _of_objects(error.problem, task, paths), error.hint)
        status: Status = "known" if done.was_stored else "stored"
        if remote.is_url(archive):
            status = "stored" if remote.upload(done.path, archive) else "known"
    return Outcome(
        task.name,
        status,
        done.profile_id,
        done.read_bytes,
        done.event_count,
        problem=done.first_warning,
        hint=_LOOK if done.warning_count else None,
        warning_count=done.warning_count,
        content_id=done.content_id,
    )


def _of_objects(problem: str, task: Task, paths: Sequence[Path]) -> str:
    """A message with the addresses of objects in the place of their copies."""
    for url, path in zip(task.paths, paths, strict=True) if task.objects else ():
        problem = problem.replace(str(path), url)
    return problem


def work_alone() -> None:
    """Mark this process as one of many: readers start no helpers of their own in it, and it ends with its parent."""
    multiprocessing.current_process().daemon = True
