"""How long every event took, by name: an index beside the profiles, for questions about one name over many of them.

Events lie in order of time, so that one operator of a thousand profiles is spread over all of their bytes. Here they
lie by lane, name and profile, in row groups whose statistics tell which names are inside, and a question about one
name reads little. The index is derived: it may be deleted, covers profiles of the content it was made of only, and
what it does not cover is taken from the events.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from tracekit import archive as store
from tracekit.errors import ArchiveError
from tracekit.tables import EVENTS, Column, Table

DURATIONS = Table(
    name="durations",
    doc="Length of every primary event but instants; quick to ask for one name over a whole archive.",
    key=("lane", "name", "profile", "session", "duration_ns"),
    columns=(
        Column("profile", pl.String(), "Name in the archive."),
        EVENTS["session"],
        EVENTS["lane"],
        EVENTS["kind"],
        EVENTS["name"],
        Column("duration_ns", pl.Int64(), "End minus start.", unit="ns"),
    ),
)

INDEX = ".index"
_COVERED = b"tracekit.profiles"
_ROW_GROUP_ROWS = 65_536
_ABANDONED_S = 3600
"""Age from which an unfinished file counts as left by a dead process."""
_PROFILES_AT_ONCE = 100
"""Profiles of one file of the index; bounds the memory that making it takes."""


def durations(events: pl.LazyFrame) -> pl.LazyFrame:
    """``DURATIONS`` of events with a ``profile`` column, in no order."""
    is_span = pl.col("is_primary") & pl.col("phase").ne_missing("instant")
    length = (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns")
    return events.filter(is_span).select("profile", "session", "lane", "kind", "name", length)


def build(archive: Path) -> int:
    """Index the profiles that are not yet; how many were added."""
    folder = archive / INDEX
    contents = _contents(archive, store.profile_ids(archive))
    covered: set[str] = set()
    for path, profiles in _segments(archive):
        live = {i for i, content in profiles.items() if contents.get(i) == content}
        covered |= live
        if not live:
            path.unlink(missing_ok=True)
    missing = sorted(set(contents) - covered)
    for unfinished in folder.glob(".*.tmp"):
        if time.time() - unfinished.stat().st_mtime > _ABANDONED_S:
            unfinished.unlink(missing_ok=True)
    for at in range(0, len(missing), _PROFILES_AT_ONCE):
        folder.mkdir(exist_ok=True)
        _write(archive, {i: contents[i] for i in missing[at : at + _PROFILES_AT_ONCE]})
    return len(missing)


def _write(archive: Path, profiles: Mapping[str, str]) -> None:
    events = store.scan([store.profile_path(archive, i) for i in profiles], "events")
    rows = durations(events).sort(DURATIONS.key).collect(engine="streaming").to_arrow()
    rows = rows.replace_schema_metadata({_COVERED: json.dumps(dict(profiles)).encode()})
    name = xxhash.xxh3_64_hexdigest(repr(sorted(profiles.items())).encode())
    unfinished = archive / INDEX / f".{name}.{os.getpid()}.tmp"
    pq.write_table(
        rows,
        unfinished,
        row_group_size=_ROW_GROUP_ROWS,
        compression="zstd",
        use_dictionary=["profile", "session", "lane", "kind", "name"],
        column_encoding={"duration_ns": "DELTA_BINARY_PACKED"},
    )
    unfinished.replace(archive / INDEX / f"durations-{name}.parquet")


def table(archive: Path, ids: Iterable[str]) -> pl.LazyFrame:
    """``DURATIONS`` of profiles: from the index as far as it goes, of the others from their events."""
    waiting = _contents(archive, ids)
    frames = []
    for path, profiles in _segments(archive):
        here = sorted(i for i, content in profiles.items() if waiting.get(i) == content)
        if here:
            frame = pl.scan_parquet(path, glob=False).select(DURATIONS.names)
            frames.append(frame if len(here) == len(profiles) else frame.filter(pl.col("profile").is_in(here)))
            waiting = {i: content for i, content in waiting.items() if i not in set(here)}
    if waiting or not frames:
        frames.append(durations(store.scan([store.profile_path(archive, i) for i in waiting], "events")))
    return pl.concat(frames)


def _segments(archive: Path) -> list[tuple[Path, dict[str, str]]]:
    """Files of the index, and the content of the profiles that each covers; unreadable ones are passed over."""
    found = []
    for path in sorted((archive / INDEX).glob("durations-*.parquet")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            metadata = pq.read_schema(path).metadata or {}
            found.append((path, dict(json.loads(metadata[_COVERED]))))
    return found


def _contents(archive: Path, ids: Iterable[str]) -> dict[str, str]:
    """Profile → content id; what is damaged has none that matches."""
    contents = {}
    for profile_id in ids:
        try:
            manifest = store.read_manifest(store.profile_path(archive, profile_id))
        except ArchiveError:
            continue
        contents[profile_id] = str(manifest.get("content_id"))
    return contents
