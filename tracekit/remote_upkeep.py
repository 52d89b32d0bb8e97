"""Looking after an archive in object storage: check, remove, relabel, rename, compact.

Objects cannot be renamed, and only one can be exchanged at a time. So a change is first laid down whole below a hidden
name, its manifest last, and then copied over file by file, the manifest last again. A reader in between sees old and
new files that hold the same rows, but for labels, which lie in one file. What a crash leaves unfinished is finished by
``recover``, which every change and ``tracekit archive verify`` begin with.

Changes of one profile by several processes at once are not ordered; what the last one leaves may have to be repeated.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import polars as pl
import pyarrow as pa
import xxhash

from tracekit import archive as store
from tracekit import tables, upkeep
from tracekit.errors import AGAIN_HINT, ArchiveError
from tracekit.recognise import printable
from tracekit.remote import (
    add_ledger_entry,
    copy,
    delete,
    download,
    filesystem,
    ledger_entries,
    local_path,
    objects,
    profile_ids,
    read_manifest,
    remove_ledger_entry,
    send,
    tried,
)
from tracekit.remote_archive import RemoteProfile

_ABANDONED_S = 24 * 3600
"""Age from which an unfinished change counts as left by a dead process."""


def remove(archive_url: str, profile_id: str) -> None:
    """Remove a profile: its manifest first, so that it stops counting at once."""
    target = f"{archive_url.rstrip('/')}/{store.PROFILE_PREFIX}{profile_id}"
    delete(sorted((o.url for o in objects(target)), key=lambda u: (not u.endswith(store.MANIFEST), u)))


def verify(archive_url: str, profile_id: str, *, contents: bool = True) -> list[dict[str, str | None]]:
    """Check one profile as ``upkeep.verify`` does, by the sizes and hashes in its manifest."""
    fs = filesystem()
    target = f"{archive_url.rstrip('/')}/{store.PROFILE_PREFIX}{profile_id}"
    hint = AGAIN_HINT
    try:
        manifest = RemoteProfile(target).manifest
    except ArchiveError as error:
        return [{"profile": profile_id, "file": store.MANIFEST, "problem": error.problem, "hint": error.hint or hint}]
    there = {o.url.rsplit("/", 1)[1]: o for o in objects(target)}
    known = store.stored_facts(manifest)
    found: list[dict[str, str | None]] = []
    for name in [f"{table}.parquet" for table in tables.TABLES]:
        problem = None
        if name not in there:
            problem = "missing"
        elif there[name].size_bytes != known.get(name, {}).get("size_bytes"):
            problem = f"has {there[name].size_bytes} bytes instead of {known.get(name, {}).get('size_bytes')}"
        elif contents:
            body = cast(bytes, tried(there[name].url, lambda u=there[name].url: fs.cat_file(u)))  # type: ignore[misc]
            if xxhash.xxh3_128_hexdigest(body) != known[name].get("xxh3_128"):
                problem = upkeep.CHANGED
        if problem:
            found.append({"profile": profile_id, "file": name, "problem": problem, "hint": hint})
    return found


def relabel(archive_url: str, profile_id: str, labels: Mapping[str, str | None]) -> None:
    """As ``upkeep.relabel``: reads and writes the sessions only."""
    manifest, target = _existing(archive_url, profile_id)
    with tempfile.TemporaryDirectory(prefix="tracekit-label-") as folder:
        path = Path(folder) / "sessions.parquet"
        url = f"{target}/{path.name}"
        download([(o.url, o.size_bytes) for o in objects(url)], Path(folder))
        copied = local_path(url, Path(folder))
        try:
            upkeep.check_file(copied, store.stored_facts(manifest), url)
            frame = pl.read_parquet(copied)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise _damaged(url, error) from error
        store.write_table(tables.SESSIONS, upkeep.labelled(frame, labels), path)
        files = {**store.stored_facts(manifest), path.name: store.file_facts(path)}
        _exchange(archive_url, profile_id, [path], {**manifest, "files": files})


def compact(archive_url: str, profile_id: str) -> tuple[int, int]:
    """As ``upkeep.compact``, on a copy that is downloaded for it."""
    manifest, target = _existing(archive_url, profile_id)
    there = objects(target)
    before = sum(o.size_bytes for o in there)
    if manifest.get("compacted"):
        return before, before
    with tempfile.TemporaryDirectory(prefix="tracekit-compact-") as folder:
        download([(o.url, o.size_bytes) for o in there], Path(folder))
        directory = local_path(target, Path(folder))
        try:
            upkeep.compact(directory.parent, profile_id)
        except ArchiveError as error:
            problem = error.problem.replace(str(directory), printable(target))
            raise ArchiveError(problem, hint=error.hint) from error
        except (OSError, pa.ArrowException) as error:
            raise _damaged(target, error) from error
        changed = store.read_manifest(directory)
        _exchange(archive_url, profile_id, sorted(directory.glob("*.parquet")), changed)
        return before, upkeep.stored_bytes(directory)


def migrate(archive_url: str, profile_id: str) -> bool:
    """As ``upkeep.migrate``."""
    _existing(archive_url, profile_id)
    return False


def rename(archive_url: str, profile_id: str, new_id: str) -> None:
    """As ``upkeep.rename``: the copy with the new name is whole before the old one goes.

    A crash in between leaves both; the same command then finishes.
    """
    store.check_name(new_id)
    manifest, target = _existing(archive_url, profile_id)
    changed = {**manifest, "profile": new_id}
    goal = f"{archive_url.rstrip('/')}/{store.PROFILE_PREFIX}{new_id}"
    if new_id not in profile_ids(archive_url):
        for found in objects(target):
            name = found.url.rsplit("/", 1)[1]
            if name != store.MANIFEST:
                copy(found.url, f"{goal}/{name}")
        with tempfile.TemporaryDirectory() as folder:
            store.write_manifest(Path(folder), changed)
            send(Path(folder) / store.MANIFEST, f"{goal}/{store.MANIFEST}")
    elif RemoteProfile(goal).manifest != changed:
        raise ArchiveError(f"{printable(archive_url)}: there is a profile {new_id} already", hint="choose another name")
    for key, known in ledger_entries(archive_url).items():
        if known == profile_id:
            add_ledger_entry(archive_url, key, new_id)
            remove_ledger_entry(archive_url, key, profile_id)
    remove(archive_url, profile_id)


def recover(archive_url: str) -> list[str]:
    """Finish changes that a crash interrupted, and remove what is left of those that cannot be; their names."""
    root = archive_url.rstrip("/")
    unfinished: dict[str, dict[str, float]] = {}
    for found in objects(root):
        folder, _, name = found.url.removeprefix(f"{root}/").partition("/")
        if folder.startswith(store.STAGING_PREFIX) and name:
            unfinished.setdefault(folder, {})[name] = found.modified_s
    done = []
    for folder, names in unfinished.items():
        if store.MANIFEST in names:
            _finish(root, folder, sorted(names))
        elif time.time() - max(names.values()) < _ABANDONED_S:
            continue
        delete([f"{root}/{folder}/{name}" for name in names])
        done.append(folder)
    return done


def _existing(archive_url: str, profile_id: str) -> tuple[store.Manifest, str]:
    """Manifest and URL of a profile, after unfinished changes are finished."""
    recover(archive_url)
    target = f"{archive_url.rstrip('/')}/{store.PROFILE_PREFIX}{profile_id}"
    text = read_manifest(filesystem(), target)
    if text is None:
        hint = "`tracekit archive ls` lists them"
        raise ArchiveError(f"{printable(archive_url)}: no profile {profile_id!r}", hint=hint)
    return store.parse_manifest(text, printable(target)), target


def _exchange(archive_url: str, profile_id: str, paths: Sequence[Path], manifest: store.Manifest) -> None:
    """Lay down changed files and the new manifest under a hidden name, and take them from there."""
    root = archive_url.rstrip("/")
    folder = store.hidden_path(Path(), store.STAGING_PREFIX, profile_id).name
    for path in paths:
        send(path, f"{root}/{folder}/{path.name}")
    with tempfile.TemporaryDirectory() as place:
        store.write_manifest(Path(place), manifest)
        send(Path(place) / store.MANIFEST, f"{root}/{folder}/{store.MANIFEST}")
    names = [*(path.name for path in paths), store.MANIFEST]
    _finish(root, folder, names)
    delete([f"{root}/{folder}/{name}" for name in reversed(names)])


def _finish(root: str, folder: str, names: Sequence[str]) -> None:
    """Copy a change that is whole over its profile, if that is still the one that was changed."""
    changed = RemoteProfile(f"{root}/{folder}").manifest
    target = f"{root}/{store.PROFILE_PREFIX}{changed['profile']}"
    current = read_manifest(filesystem(), target)
    if current is not None and json.loads(current).get("content_id") == changed["content_id"]:
        for name in sorted(names, key=lambda n: (n == store.MANIFEST, n)):
            copy(f"{root}/{folder}/{name}", f"{target}/{name}")


def _damaged(url: str, error: BaseException) -> ArchiveError:
    problem = str(error).partition("\n")[0]
    return ArchiveError(f"{printable(url)}: damaged: {problem}", hint=AGAIN_HINT)
