"""What an export is, and how its output gets its name only when it is whole."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tracekit.errors import TracekitError
from tracekit.metrics.base import Inputs

Progress = Callable[[str, int, int], None]
"""Told what is written, and how many of how many rows are done."""

BATCH_ROWS = 65_536


class ExportError(TracekitError):
    """An export cannot be written."""


@dataclass(frozen=True)
class Export:
    """One format.

    ``write`` writes the tables to a new path (a file, or a directory that exists and is empty) and returns remarks for
    the user. ``is_directory`` says which of the two it needs for these tables.
    """

    name: str
    doc: str
    suffix: str
    """Ending of a file; a directory has the profile's name alone."""
    write: Callable[[Inputs, Path, Progress], list[str]]
    is_directory: Callable[[Inputs], bool]


def always(_: Inputs) -> bool:
    """Of exports that always need a directory."""
    return True


def never(_: Inputs) -> bool:
    """Of exports that are always one file."""
    return False


def batches(frame: pl.LazyFrame, label: str, progress: Progress, rows: int = BATCH_ROWS) -> Iterator[pl.DataFrame]:
    """The rows of ``frame`` in order, in frames of about ``rows``; memory stays bounded by a few of them.

    Args:
        frame: a query whose row count is cheap, such as a scan.
        label: what ``progress`` is told is being written.
        progress: told after every batch.
        rows: rows of a batch.
    """
    total = int(frame.select(pl.len()).collect().item())
    done = 0
    progress(label, 0, total)
    if not total:
        return
    for batch in frame.collect_batches(chunk_size=rows, maintain_order=True):
        yield batch
        done += batch.height
        progress(label, min(done, total), total)


@contextmanager
def beside(target: Path, *, directory: bool) -> Iterator[Path]:
    """A path next to ``target`` to write to; it takes the target's name at the end, and goes if anything fails.

    Raises:
        ExportError: if ``target`` is of the other kind, or a directory that holds anything but an earlier export.
    """
    _check(target, directory=directory)
    target.parent.mkdir(parents=True, exist_ok=True)
    mark = f"{os.getpid()}-{secrets.token_hex(4)}"
    part = target.with_name(f".{target.name}.{mark}.part")
    try:
        if directory:
            part.mkdir()
        yield part
        if directory and target.exists():
            old = target.with_name(f".{target.name}.{mark}.old")
            target.rename(old)
            part.rename(target)
            shutil.rmtree(old)
        else:
            part.replace(target)
    finally:
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)


MARKER = ".tracekit-export"
"""File in every exported directory; one without it is never replaced."""


def _check(target: Path, *, directory: bool) -> None:
    if not directory:
        if target.is_dir():
            raise ExportError(f"{target}: is a directory", hint="name a file with -o")
        return
    if target.exists() and not target.is_dir():
        raise ExportError(f"{target}: is a file", hint="this export needs a directory: name one with -o")
    if target.is_dir() and any(target.iterdir()) and not (target / MARKER).is_file():
        raise ExportError(f"{target}: holds other files", hint="name a new or empty directory with -o")


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a directory."""
    if path.is_file():
        return path.stat().st_size
    return sum(found.stat().st_size for found in path.rglob("*") if found.is_file())
