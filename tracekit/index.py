"""Derived tables beside the profiles: files in ``<archive>/.index/``, each made of some profiles of known content.

An index saves work and decides nothing. It may be deleted at any time; what it does not cover, because a profile is
new or was changed or a file is damaged, is taken from the profile itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from tracekit import archive as store
from tracekit.errors import VERIFY_HINT, ArchiveError

FOLDER = ".index"
PROFILES_AT_ONCE = 100
"""Profiles of one file; bounds what is lost when making one is interrupted."""
_COVERED = b"tracekit.profiles"
_VERSION = b"tracekit.index_version"
_ABANDONED_S = 3600
"""Age from which an unfinished file counts as left by a dead process."""

Metadata: TypeAlias = Mapping[bytes, bytes]
Writer: TypeAlias = Callable[[list[str], Path, Metadata], None]
"""Writes a table of profiles to a Parquet file whose schema carries the metadata."""


def build(archive: Path, name: str, write: Writer, *, version: str = "") -> int:
    """Index the profiles that are not yet; how many were added.

    Args:
        archive: the archive.
        name: of the table.
        write: makes one file.
        version: of the rule that makes the rows; files of another one are replaced.

    Raises:
        ArchiveError: if a profile cannot be indexed; after all others were.
    """
    folder = archive / FOLDER
    current = contents(archive, store.profile_ids(archive))
    covered: set[str] = set()
    for path, profiles in _segments(archive, name, version):
        live = {i for i, content in profiles.items() if current.get(i) == content}
        covered |= live
        if not live:
            path.unlink(missing_ok=True)
    _clear(folder)
    missing = sorted(set(current) - covered)
    problems: list[ArchiveError] = []
    for at in range(0, len(missing), PROFILES_AT_ONCE):
        folder.mkdir(exist_ok=True)
        ids = missing[at : at + PROFILES_AT_ONCE]
        problems += _write_sound(folder, name, {i: current[i] for i in ids}, write, version)
    if problems:
        more = f" (and {len(problems) - 1:,} more)" if len(problems) > 1 else ""
        raise ArchiveError(f"not indexed: {problems[0].problem}{more}", hint=problems[0].hint)
    return len(missing)


def _write_sound(
    folder: Path, name: str, profiles: Mapping[str, str], write: Writer, version: str
) -> list[ArchiveError]:
    """Write one file, or where a profile is damaged, files of those that are not; what is wrong with the damaged."""
    try:
        _write(folder, name, profiles, write, version)
    except (ArchiveError, pl.exceptions.PolarsError, pa.ArrowException) as error:
        ids = list(profiles)
        if len(ids) == 1:
            known = error if isinstance(error, ArchiveError) else None
            return [known or ArchiveError(f"{ids[0]}: {str(error).partition(chr(10))[0]}", hint=VERIFY_HINT)]
        halves = (ids[: len(ids) // 2], ids[len(ids) // 2 :])
        return [p for h in halves for p in _write_sound(folder, name, {i: profiles[i] for i in h}, write, version)]
    return []


def _write(folder: Path, name: str, profiles: Mapping[str, str], write: Writer, version: str) -> None:
    key = xxhash.xxh3_64_hexdigest(repr((sorted(profiles.items()), version)).encode())
    unfinished = folder / f".{key}.{os.getpid()}.tmp"
    try:
        write(list(profiles), unfinished, {_COVERED: json.dumps(dict(profiles)).encode(), _VERSION: version.encode()})
        unfinished.replace(folder / f"{name}-{key}.parquet")
    finally:
        unfinished.unlink(missing_ok=True)


def _clear(folder: Path) -> None:
    for unfinished in folder.glob(".*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - unfinished.stat().st_mtime > _ABANDONED_S:
                unfinished.unlink()


def names(archive: Path) -> set[str]:
    """Tables that any file of the index holds."""
    return {path.name.rpartition("-")[0] for path in (archive / FOLDER).glob("*-*.parquet")}


def covered(
    archive: Path, name: str, profiles: Mapping[str, str], *, version: str = ""
) -> tuple[list[pl.LazyFrame], list[str]]:
    """A table as far as the index holds it, and the profiles of which it does not.

    Args:
        archive: the archive.
        name: of the table.
        profiles: profile → content, see ``contents``.
        version: as of ``build``.
    """
    waiting = dict(profiles)
    frames = []
    for path, held in _segments(archive, name, version):
        here = sorted(i for i, content in held.items() if waiting.get(i) == content)
        if here:
            frame = pl.scan_parquet(path, glob=False)
            frames.append(frame if len(here) == len(held) else frame.filter(pl.col("profile").is_in(here)))
            waiting = {i: content for i, content in waiting.items() if i not in set(here)}
    return frames, list(waiting)


def _segments(archive: Path, name: str, version: str) -> Iterator[tuple[Path, dict[str, str]]]:
    """Files of a table, and the content of the profiles that each covers.

    Unreadable ones are passed over; those of another version cover nothing.
    """
    for path in sorted((archive / FOLDER).glob(f"{name}-*.parquet")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            metadata = pq.read_schema(path).metadata or {}
            profiles = dict(json.loads(metadata[_COVERED]))
            yield path, profiles if metadata.get(_VERSION, b"").decode() == version else {}


def contents(archive: Path, ids: Iterable[str]) -> dict[str, str]:
    """Profile → content id; what is damaged is left out."""
    found = {}
    for profile_id in ids:
        try:
            manifest = store.read_manifest(store.profile_path(archive, profile_id))
        except ArchiveError:
            continue
        found[profile_id] = str(manifest.get("content_id"))
    return found
