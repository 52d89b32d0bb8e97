"""From files to one stored profile."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import xxhash

from tracekit import archive as store
from tracekit import clock, links, tables
from tracekit._version import __version__
from tracekit.discover import Discovery, artifact_rows, discover
from tracekit.errors import ArchiveError, NewerVersionError, SourceError
from tracekit.runs import label_text
from tracekit.sink import FRAMEWORK_LANES, ArtifactSink, Staging
from tracekit.sources import SOURCES, source
from tracekit.sources.base import Artifact

Progress = Callable[[str, int, int], None]
"""Called with the stage, bytes done and bytes in all (both of the files as they lie on disk)."""

_HASH_BLOCK = 4 << 20


@dataclass(frozen=True)
class IngestResult:
    """What an ingest did.

    ``was_stored`` is true when the archive held this input already and nothing was written.
    """

    profile_id: str
    path: Path
    was_stored: bool
    read_bytes: int
    event_count: int
    content_id: str
    warning_count: int = 0
    """Notes of the profile that are errors or warnings: what was lost, or does not fit."""
    first_warning: str | None = None
    """The gravest of them, in one line."""


@dataclass(frozen=True)
class _Counts:
    """Rows by table, and events by phase and category of each file."""

    tables: dict[str, int]
    by_source: dict[str, dict[str, int]]


@dataclass(frozen=True)
class _Input:
    """One readable file, with its place in the reading order and its content hash."""

    ordinal: int
    artifact: Artifact
    content_hash: str


def ingest(
    sources: Sequence[str | os.PathLike[str]],
    archive: str | os.PathLike[str],
    *,
    profile_id: str | None = None,
    force: bool = False,
    neff_cache: Sequence[str | os.PathLike[str]] = (),
    labels: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> IngestResult:
    """Read captures and store them as one profile.

    Input whose content is stored already is left alone, so that running it again costs a hash of the
    files; the same input gives the same bytes. A stored profile whose manifest cannot be read, or whose files
    are missing or have other sizes, is replaced.

    Args:
        sources: files, directories or archives (.tar, .tar.gz, .tar.zst, .zip) of one capture.
        archive: directory that holds profiles; made if it is not there.
        profile_id: name in the archive; by default the input's name and a hash of its content.
        force: read and write again even if stored, or if the name is that of other input.
        neff_cache: directories to look for NEFFs that the capture does not hold.
        labels: the user's own labels, added to those of the capture.
        progress: called while reading.

    Raises:
        DiscoveryError: if there is nothing that tracekit can read.
        SourceError: if no file could be read at all.
        ArchiveError: if the archive cannot be written, the name is none (letters, digits, ``.``, ``_``, ``-``), or
            is that of a profile of other input.
    """
    root = Path(archive)
    if profile_id is not None:
        store.check_name(profile_id)
    with tempfile.TemporaryDirectory(prefix="tracekit-") as workdir:
        found = discover([Path(s) for s in sources], workdir=Path(workdir), neff_cache=[Path(n) for n in neff_cache])
        inputs = _inputs(found.artifacts, progress)
        content = _content_id(found.artifacts, inputs, labels)
        name = profile_id or f"{store.slug(found.name)}-{content[:10]}"
        stored = None if force else _stored(root, name, content)
        if stored:
            if _device_tables(found):
                store.remember_origin(root, name, found.root)
            return stored
        staging = store.new_staging(root, name)
        try:
            counts = _write(found, inputs, staging, labels or {}, progress)
            size = sum(i.artifact.size_bytes for i in inputs)
            store.write_manifest(staging, _manifest(name, content, found, inputs, counts))
            path = store.publish(staging, root, name)
            if _device_tables(found):
                store.remember_origin(root, name, found.root)
        except SourceError as error:
            raise _of_label(error, inputs, Path(workdir)) from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return IngestResult(name, path, False, size, counts.tables["events"], content, *_warnings(path))


def _inputs(artifacts: Sequence[Artifact], progress: Progress | None) -> list[_Input]:
    """Readable files in reading order: by the rank of their format, then by label."""
    readable = sorted(
        (a for a in artifacts if a.format in SOURCES),
        key=lambda a: (SOURCES[a.format or ""].rank, a.label),
    )
    total = sum(a.size_bytes for a in readable)
    done = 0
    inputs = []
    for ordinal, artifact in enumerate(readable):
        if progress:
            progress("hash", done, total)
        inputs.append(_Input(ordinal, artifact, _hash(artifact.path)))
        done += artifact.size_bytes
    return inputs


def _hash(path: Path) -> str:
    """Content hash of a file; of a file that cannot be opened, the empty hash (the reader reports it)."""
    digest = xxhash.xxh3_128()
    try:
        with path.open("rb", buffering=0) as file:
            while block := file.read(_HASH_BLOCK):
                digest.update(block)
    except OSError:
        return ""
    return digest.hexdigest()


def _content_id(artifacts: Sequence[Artifact], inputs: Sequence[_Input], labels: Mapping[str, str] | None) -> str:
    hashes = {i.artifact.label: i.content_hash for i in inputs}
    digest = xxhash.xxh3_128()
    for artifact in sorted(artifacts, key=lambda a: a.label):
        line = f"{artifact.label}\0{artifact.size_bytes}\0{hashes.get(artifact.label, '')}\0{artifact.session}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))
    digest.update(repr(sorted((labels or {}).items())).encode())
    return digest.hexdigest()


def _stored(archive: Path, profile_id: str, content: str) -> IngestResult | None:
    """The profile of that name, if it holds this input and nothing shows that it is damaged or of an older version.

    Raises:
        ArchiveError: if it holds another input.
    """
    path = store.profile_path(archive, profile_id)
    try:
        manifest = store.read_manifest(path)
    except NewerVersionError:
        raise
    except ArchiveError:
        return None
    if manifest.get("content_id") != content:
        problem = f"{archive}: there is a profile {profile_id} already, of another input"
        raise ArchiveError(problem, hint="choose another --id, or replace it with --force")
    counts = manifest.get("tables")
    if not isinstance(counts, dict) or not isinstance(counts.get("events"), int) or not store.is_intact(path, manifest):
        return None
    return IngestResult(profile_id, path, True, 0, counts["events"], content, *_warnings(path))


def _warnings(profile: Path) -> tuple[int, str | None]:
    """How many notes of a profile are errors or warnings, and the gravest."""
    grave = pl.col("severity").replace_strict({"error": 0, "warning": 1}, default=None, return_dtype=pl.Int64)
    notes = store.scan_file(profile, "notes").with_columns(_grave=grave).filter(pl.col("_grave").is_not_null())
    found = notes.sort("_grave", pl.col("event_count").fill_null(0) * -1, maintain_order=True).collect()
    if found.is_empty():
        return 0, None
    path, message = found.select("path", "message").row(0)
    return found.height, message if path in (None, ".") else f"{path}: {message}"


def _write(
    found: Discovery, inputs: Sequence[_Input], directory: Path, labels: Mapping[str, str], progress: Progress | None
) -> _Counts:
    """Read every input into ``directory``, derive links and chains, and count rows."""
    total = sum(i.artifact.size_bytes for i in inputs)
    done = 0

    def advance(read_bytes: int) -> None:
        nonlocal done
        done += read_bytes
        if progress:
            progress("read", min(done, total), total)

    staging = Staging(directory, found.sessions, advance)
    staging.notes.append(found.notes)
    counts = _Counts({}, _read_all(inputs, staging))
    staging.close()
    if progress:
        progress("link", total, total)
    return replace(counts, tables=staging.counts() | _derive(found, staging, labels))


def _read_all(inputs: Sequence[_Input], staging: Staging) -> dict[str, dict[str, int]]:
    """Read the inputs in order and count their events by phase and category.

    Framework rows that another format repeats are read only where the session has no trace of its own
    that can be read.

    Raises:
        SourceError: if no input could be read; the first problem of several.
    """
    traced = frozenset(i.artifact.session for i in inputs if i.artifact.format == "kineto")
    counted: dict[str, dict[str, int]] = {}
    failed: dict[str, SourceError] = {}
    for item in inputs:
        sink = ArtifactSink(staging, item.artifact, item.ordinal, traced=traced)
        error = _read(item, sink)
        if error:
            failed[item.artifact.label] = error
        counted[item.artifact.label] = sink.counts_by_phase()
    if inputs and len(failed) == len(inputs):
        raise next(iter(failed.values()))
    lost = {i.artifact.session for i in inputs if i.artifact.format == "kineto" and i.artifact.label in failed}
    for item in inputs if lost else ():
        if item.artifact.format == "explorer" and item.artifact.label not in failed:
            _read(item, ArtifactSink(staging, item.artifact, item.ordinal, traced=traced - lost, only=FRAMEWORK_LANES))
    return counted


def _read(item: _Input, sink: ArtifactSink) -> SourceError | None:
    try:
        source(item.artifact.format or "").read(item.artifact, sink)
    except SourceError as error:
        sink.note("error", "unreadable_file", error.reason, hint=error.hint or None)
        return error
    finally:
        sink.finish()
    return None


def _of_label(error: SourceError, inputs: Sequence[_Input], workdir: Path) -> SourceError:
    """The error by the label of its file, if that was unpacked for reading only: its path means nothing to the user."""
    labels = {i.artifact.path: i.artifact.label for i in inputs if i.artifact.path.is_relative_to(workdir)}
    return SourceError(Path(labels[error.path]), error.reason, hint=error.hint) if error.path in labels else error


def _derive(found: Discovery, staging: Staging, labels: Mapping[str, str]) -> dict[str, int]:
    """Write the tables that follow from the events: sessions on one clock, links, chains, notes, artifacts."""
    events = store.scan_file(staging.directory, "events")
    flows = store.scan_file(staging.directory, "flows")
    aligned = clock.align(events, _labelled(staging.session_rows(), labels))
    linked = links.build(events, flows, aligned.sessions.lazy())
    notes = pl.concat([staging.note_rows(), aligned.notes, linked.notes])
    frames = {
        tables.SESSIONS: aligned.sessions,
        tables.LINKS: linked.links,
        tables.CHAINS: linked.chains,
        tables.NOTES: notes,
        tables.ARTIFACTS: artifact_rows(found.artifacts),
    }
    return {table.name: staging.write_frame(table, frame) for table, frame in frames.items()}


def _labelled(sessions: pl.DataFrame, labels: Mapping[str, str]) -> pl.DataFrame:
    """Sessions with ``labels`` added to those of the capture; the given ones win."""
    if not labels:
        return sessions
    merged = [
        label_text((json.loads(text) if text else {}) | dict(labels)) for text in sessions["labels_json"].to_list()
    ]
    return sessions.with_columns(labels_json=pl.Series(merged, dtype=pl.String))


def _manifest(
    profile_id: str, content: str, found: Discovery, inputs: Sequence[_Input], counts: _Counts
) -> dict[str, object]:
    hashes = {i.artifact.label: i for i in inputs}
    files = [
        {
            "path": artifact.label,
            "size_bytes": artifact.size_bytes,
            "format": artifact.format,
            "xxh3_128": hashes[artifact.label].content_hash if artifact.label in hashes else None,
            "ordinal": hashes[artifact.label].ordinal if artifact.label in hashes else None,
            "events": counts.by_source.get(artifact.label, {}),
        }
        for artifact in sorted(found.artifacts, key=lambda a: a.label)
    ]
    manifest: dict[str, object] = {
        "schema_version": tables.SCHEMA_VERSION,
        "tracekit_version": __version__,
        "profile": profile_id,
        "name": found.name,
        "content_id": content,
        "sources": files,
        "ignored": [{"path": label, "reason": reason} for label, reason in found.ignored],
        "tables": counts.tables,
    }
    device_tables = _device_tables(found)
    return manifest | ({"device_tables": device_tables} if device_tables else {})


def _device_tables(found: Discovery) -> dict[str, list[str]]:
    """Neuron Explorer's device tables by name, relative to the capture: they are queried in place, never copied."""
    tables_by_name: dict[str, list[str]] = {}
    for artifact in sorted(found.artifacts, key=lambda a: a.label):
        if artifact.role == "device_table" and not artifact.problem:
            name = re.sub(r"_\d+$", "", artifact.path.stem)
            tables_by_name.setdefault(name, []).append(artifact.label)
    return tables_by_name
