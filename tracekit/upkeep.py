"""Looking after an archive on a file system: check, clean, remove, rename, relabel, compact, migrate.

A profile is never changed in place: a changed copy takes its name in one step, so that readers and a crash at any
moment see whole profiles only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tracekit import archive as store
from tracekit import tables
from tracekit.errors import AGAIN_HINT, ArchiveError, SchemaError
from tracekit.runs import label_text
from tracekit.tables import Column, Table

PROBLEMS = Table(
    name="problems",
    doc="What is wrong with stored profiles.",
    key=("profile", "file"),
    columns=(
        Column("profile", pl.String(), "Name in the archive."),
        Column("file", pl.String(), "File of the profile.", nullable=True),
        Column("problem", pl.String(), "What is wrong with it."),
        Column("hint", pl.String(), "What to do about it."),
    ),
)

CHANGED = "its content has changed since it was written"
_OWNER = re.compile(r"-([0-9a-f]{8})\.(\d+)-[0-9a-f]{8}$")
_ABANDONED_S = 24 * 3600
"""Age from which an unfinished directory of another machine counts as abandoned, in seconds."""
_COMPACT_LEVEL = 12
"""Zstandard level of compacted profiles: a tenth smaller than what an ingest writes, at a tenth of its speed."""


def clean(archive: Path) -> list[str]:
    """Remove what dead processes left behind; names of what was removed.

    A directory belongs to the process in its name: it stays while that process lives, and if that ran on another
    machine, for a day after its last change. A profile that was being replaced when its process died gets its
    name back.
    """
    removed = []
    for prefix in (store.STAGING_PREFIX, store.REPLACED_PREFIX, store.REMOVED_PREFIX):
        for path in sorted(archive.glob(f"{prefix}*")):
            if _is_in_use(path):
                continue
            if prefix != store.REPLACED_PREFIX or not _restored(path, archive):
                shutil.rmtree(path, ignore_errors=True)
            removed.append(path.name)
    return removed


def _is_in_use(path: Path) -> bool:
    owner = _OWNER.search(path.name)
    if owner and owner.group(1) == store.machine_id():
        return _is_alive(int(owner.group(2)))
    try:
        newest = max(p.stat().st_mtime for p in (path, *path.iterdir()))
    except OSError:
        return True
    return time.time() - newest < _ABANDONED_S


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended and nobody has taken note yet: containers have parents that never do."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return facts.rpartition(b")")[2].split()[:1] in ([b"Z"], [b"X"])


def _restored(path: Path, archive: Path) -> bool:
    """Give a replaced profile its name back, if its replacement never came."""
    try:
        target = store.profile_path(archive, str(store.read_manifest(path)["profile"]))
        if target.parent != archive:
            return False
        path.rename(target)
    except (ArchiveError, OSError, KeyError):
        return False
    return True


def verify(archive: Path, profile_id: str, *, contents: bool = True) -> list[dict[str, str | None]]:
    """Check one profile; rows of ``PROBLEMS``, none if it is sound.

    Args:
        archive: the archive.
        profile_id: the profile.
        contents: compare the files' hashes with the manifest's, which reads everything; else sizes, layout
            and row counts only.
    """
    directory = store.profile_path(archive, profile_id)
    try:
        manifest = store.read_manifest(directory)
    except ArchiveError as error:
        return [_problem(profile_id, store.MANIFEST, error.problem, error.hint)]
    found = []
    if manifest.get("profile") != profile_id:
        found.append(_problem(profile_id, store.MANIFEST, f"is of profile {manifest.get('profile')!r}", AGAIN_HINT))
    for table in tables.TABLES.values():
        problem = _table_problem(directory / f"{table.name}.parquet", table, manifest, contents)
        if problem:
            found.append(_problem(profile_id, f"{table.name}.parquet", problem, AGAIN_HINT))
    return found


def _problem(profile_id: str, file: str, problem: str, hint: str) -> dict[str, str | None]:
    return {"profile": profile_id, "file": file, "problem": problem, "hint": hint}


def _table_problem(path: Path, table: Table, manifest: store.Manifest, contents: bool) -> str | None:
    files = store.stored_facts(manifest)
    counts = cast(Mapping[str, int], manifest.get("tables", {}))
    try:
        size = path.stat().st_size
        if path.name in files and size != files[path.name].get("size_bytes"):
            return f"has {size} bytes instead of {files[path.name].get('size_bytes')}"
        with pq.ParquetFile(path) as file:
            rows, schema = file.metadata.num_rows, file.schema_arrow
        if contents and _has_changed(path, files):
            return CHANGED
    except FileNotFoundError:
        return "missing"
    except (OSError, pa.ArrowException) as error:
        return f"cannot be read: {str(error).partition(chr(10))[0]}"
    if schema.names != list(table.names):
        return "has other columns than this version's table"
    if rows != counts.get(table.name):
        return f"has {rows} rows instead of {counts.get(table.name)}"
    return None


def headless(archive: Path) -> list[dict[str, str | None]]:
    """Rows of ``PROBLEMS`` for directories that are named like profiles but hold no manifest: nothing reads them."""
    found = sorted(archive.glob(f"{store.PROFILE_PREFIX}*"))
    names = [p.name.removeprefix(store.PROFILE_PREFIX) for p in found if p.is_dir()]
    known = set(store.profile_ids(archive))
    hint = f"{AGAIN_HINT}, or delete the directory"
    return [
        _problem(name, store.MANIFEST, "missing, so this is no profile", hint) for name in names if name not in known
    ]


def remove(archive: Path, profile_id: str) -> None:
    """Remove a profile: in one step for readers, then its files."""
    hidden = store.hidden_path(archive, store.REMOVED_PREFIX, profile_id)
    _existing(archive, profile_id).rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def rename(archive: Path, profile_id: str, new_id: str) -> None:
    """Give a profile another name.

    Raises:
        ArchiveError: if there is no such profile, the name is taken, or is none (letters, digits, ``.``, ``_``, ``-``).
    """
    store.check_name(new_id)
    if store.profile_path(archive, new_id).exists():
        raise ArchiveError(f"{archive}: there is a profile {new_id} already", hint="choose another name")
    _changed(archive, profile_id, new_id, {}, {"profile": new_id})
    remove(archive, profile_id)


def relabel(archive: Path, profile_id: str, labels: Mapping[str, str | None]) -> None:
    """Set labels of all sessions of a profile; a label whose value is None is removed.

    The profile stays the one of its capture: ingesting that again changes nothing.
    """

    def write(path: Path) -> None:
        frame = store.scan_file(_existing(archive, profile_id), "sessions").collect()
        store.write_table(tables.SESSIONS, labelled(frame, labels), path)

    _changed(archive, profile_id, profile_id, {"sessions.parquet": write}, {})


def labelled(sessions: pl.DataFrame, labels: Mapping[str, str | None]) -> pl.DataFrame:
    """``tables.SESSIONS`` with labels set or (None) removed; without any left, null."""

    def merged(text: str | None) -> str | None:
        facts = (json.loads(text) if text else {}) | dict(labels)
        kept = {k: v for k, v in facts.items() if v is not None}
        return label_text(kept) if kept else None

    texts = [merged(text) for text in sessions["labels_json"].to_list()]
    return sessions.with_columns(labels_json=pl.Series(texts, dtype=pl.String))


def compact(archive: Path, profile_id: str) -> tuple[int, int]:
    """Rewrite a profile with the strongest compression that is still read as quickly; bytes before and after.

    Rows and their order stay. A profile that was compacted already is left alone.
    """
    directory = _existing(archive, profile_id)
    before = stored_bytes(directory)
    if store.read_manifest(directory).get("compacted"):
        return before, before

    def rewriter(table: Table) -> Callable[[Path], None]:
        def write(path: Path) -> None:
            writer = store.TableWriter(table, path, level=_COMPACT_LEVEL)
            with pq.ParquetFile(directory / f"{table.name}.parquet") as file:
                for batch in file.iter_batches():
                    writer.write(batch)
            writer.close()

        return write

    writers = {f"{table.name}.parquet": rewriter(table) for table in tables.TABLES.values()}
    _changed(archive, profile_id, profile_id, writers, {"compacted": True})
    return before, stored_bytes(directory)


def migrate(archive: Path, profile_id: str) -> bool:
    """Bring a profile to this version's schema; whether anything had to be done.

    Raises:
        ArchiveError: if it cannot be brought there: no older schema than this one was ever published, so a profile
            with another one has to be ingested again, or read with a newer tracekit.
    """
    store.read_manifest(_existing(archive, profile_id))
    return False


def stored_bytes(directory: Path) -> int:
    """Size of a profile's files together."""
    return sum(p.stat().st_size for p in directory.iterdir() if p.is_file())


def _existing(archive: Path, profile_id: str) -> Path:
    path = store.profile_path(archive, profile_id)
    if profile_id not in store.profile_ids(archive):
        raise ArchiveError(f"{archive}: no profile {profile_id!r}", hint="`tracekit archive ls` lists them")
    return path


def _changed(
    archive: Path,
    profile_id: str,
    new_id: str,
    writers: Mapping[str, Callable[[Path], None]],
    facts: Mapping[str, object],
) -> None:
    """Publish a copy of a profile with some files written anew and some facts of its manifest changed.

    Raises:
        ArchiveError: if a file to be written anew is not what was stored: the copy would hide that.
    """
    directory = _existing(archive, profile_id)
    manifest = store.read_manifest(directory)
    known = store.stored_facts(manifest)
    for name in writers:
        check_file(directory / name, known)
    staging = store.new_staging(archive, new_id)
    try:
        for path in sorted(directory.iterdir()):
            if path.name in writers:
                writers[path.name](staging / path.name)
            elif path.name != store.MANIFEST and path.is_file():
                _link(path, staging / path.name)
        kept = {name: of_file for name, of_file in known.items() if name not in writers}
        store.write_manifest(staging, {**manifest, **facts}, kept=kept)
        store.publish(staging, archive, new_id)
    except (pa.ArrowException, SchemaError, pl.exceptions.PolarsError) as error:
        problem = str(error).partition("\n")[0]
        raise ArchiveError(f"{directory}: damaged: {problem}", hint=AGAIN_HINT) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def check_file(path: Path, known: Mapping[str, Mapping[str, object]], place: str = "") -> None:
    """Refuse a file that is not what was stored.

    Args:
        path: the file.
        known: size and hash of each file, from the manifest.
        place: what to call it; by default the path.

    Raises:
        ArchiveError: if it is missing or has changed.
    """
    try:
        has_changed = _has_changed(path, known)
    except FileNotFoundError as error:
        raise ArchiveError(f"{place or path}: missing", hint=AGAIN_HINT) from error
    if has_changed:
        raise ArchiveError(f"{place or path}: damaged: {CHANGED}", hint=AGAIN_HINT)


def _has_changed(path: Path, known: Mapping[str, Mapping[str, object]]) -> bool:
    return path.name in known and store.file_facts(path) != known[path.name]


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
