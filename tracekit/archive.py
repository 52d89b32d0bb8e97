"""Tables ⇄ Parquet: ``<archive>/profile=<id>/<table>.parquet`` and a ``manifest.json``.

A profile is written into a hidden directory of the archive and renamed when it is
whole, so that what carries a profile's name is complete at any moment. The bytes
depend on the input alone: no dates, no host names, rows in a fixed order.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import platform
import re
import secrets
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias, cast

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from tracekit import tables
from tracekit.errors import AGAIN_HINT, ArchiveError, NewerVersionError
from tracekit.tables import SCHEMA_VERSION, TABLES, Table

Manifest = Mapping[str, object]
Rows: TypeAlias = pa.Table | pa.RecordBatch | pl.DataFrame

MANIFEST = "manifest.json"
STAGING_PREFIX = ".staging-"
REPLACED_PREFIX = ".replaced-"
REMOVED_PREFIX = ".removed-"
ORIGINS = ".origins"
PROFILE_PREFIX = "profile="

_ROW_GROUP_ROWS = 131_072
_ROW_GROUP_BYTES = 48 << 20
_REPEATING = {"session", "name", "category", "model_id", "counter", "unit", "execution_name"}
_DICTIONARY = _REPEATING | {c.name for table in TABLES.values() for c in table.columns if c.values}
_DELTA = {"event_id", "start_ns", "end_ns", "at_ns", "chain_id", "from_id", "to_id"}
_NO_STATISTICS = {"attrs_json", "capture_json", "versions_json", "message", "hint"}


class TableWriter:
    """Write one table as a stream of row groups of bounded size.

    Rows keep their order. Text with few values may come dictionary-encoded; readers
    of the file see plain text either way.
    """

    def __init__(self, table: Table, path: Path, *, level: int = 1) -> None:
        self.row_count = 0
        self._schema = _encoded_schema(table)
        names = set(table.names)
        self._writer = pq.ParquetWriter(
            path,
            self._schema,
            compression="zstd",
            compression_level=level,
            use_dictionary=sorted(names & _DICTIONARY),
            column_encoding={name: "DELTA_BINARY_PACKED" for name in table.names if name in _DELTA},
            write_statistics=[name for name in table.names if name not in _NO_STATISTICS],
            store_schema=False,
        )
        described = table.arrow_schema()
        self._writer.add_key_value_metadata(
            {
                "ARROW:schema": base64.b64encode(described.serialize().to_pybytes()).decode(),
                **{k.decode(): v.decode() for k, v in (described.metadata or {}).items()},
            }
        )
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._pending_bytes = 0

    def write(self, rows: Rows) -> None:
        """Append rows; columns may be in any order, nullable ones may be left out."""
        batch = _encoded(rows, self._schema)
        if not batch.num_rows:
            return
        self.row_count += batch.num_rows
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self._pending_bytes += batch.nbytes
        if self._pending_rows >= _ROW_GROUP_ROWS or self._pending_bytes >= _ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Write what is pending and the footer."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._pending_rows:
            group = pa.concat_tables(self._pending).unify_dictionaries()
            self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
            # Twice the size that makes it full, so that the rows beyond it make no small group of their own.
            self._writer.write_table(group, row_group_size=2 * _ROW_GROUP_ROWS)


def _encoded_schema(table: Table) -> pa.Schema:
    plain = table.arrow_schema()
    text = pa.dictionary(pa.int32(), pa.large_string())
    return pa.schema(
        [f.with_type(text) if f.name in _DICTIONARY and pa.types.is_large_string(f.type) else f for f in plain]
    )


def _encoded(rows: Rows, schema: pa.Schema) -> pa.Table:
    """Rows in the columns, order and types of ``schema``."""
    if isinstance(rows, pl.DataFrame):
        rows = rows.to_arrow()
    have = set(rows.schema.names)
    columns = [
        _typed(rows.column(field.name), field.type) if field.name in have else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _typed(column: pa.ChunkedArray | pa.Array, dtype: pa.DataType) -> pa.ChunkedArray | pa.Array:
    if column.type == dtype:
        return column
    if pa.types.is_dictionary(dtype):
        if pa.types.is_dictionary(column.type):
            column = pc.cast(column, pa.large_string())
        return pc.dictionary_encode(pc.cast(column, pa.large_string()))
    return pc.cast(column, dtype)


def write_table(table: Table, frame: pl.DataFrame, path: Path) -> int:
    """Write ``frame`` as ``table``, sorted by its key, and return the number of rows.

    Raises:
        SchemaError: if the frame does not fit the table.
    """
    ordered = table.conform(frame).sort(table.key, nulls_last=False, maintain_order=True)
    writer = TableWriter(table, path)
    writer.write(ordered)
    writer.close()
    return ordered.height


def new_staging(archive: Path, profile_id: str) -> Path:
    """A fresh hidden directory in ``archive`` to write a profile into.

    Raises:
        ArchiveError: if the archive cannot be created or written.
    """
    path = hidden_path(archive, STAGING_PREFIX, profile_id)
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise ArchiveError(
            f"{archive}: cannot write an archive here: {error.strerror}", hint="choose another directory with -o"
        ) from error
    return path


def hidden_path(archive: Path, prefix: str, profile_id: str) -> Path:
    """A new name in ``archive`` that readers pass over and that tells whose it is (see ``upkeep.clean``)."""
    return archive / f"{prefix}{profile_id}-{machine_id()}.{os.getpid()}-{secrets.token_hex(4)}"


@functools.cache
def machine_id() -> str:
    """Short hash of what process ids are unique in: the boot of a machine, and the container."""
    facts = [platform.node()]
    for place in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        path = Path(place)
        try:
            facts.append(str(path.readlink()) if path.is_symlink() else path.read_text())
        except OSError:
            continue
    return xxhash.xxh3_64_hexdigest("\0".join(facts).encode())[:8]


def publish(staging: Path, archive: Path, profile_id: str) -> Path:
    """Give a finished staging directory its name, replacing a profile of the same name.

    Safe when several processes publish the same profile: the last one wins and
    each state that a reader can see is whole.
    """
    target = profile_path(archive, profile_id)
    _flush_to_disk(staging)
    for _ in range(16):
        try:
            staging.rename(target)
        except OSError:
            if not target.is_dir():
                raise
            discarded = hidden_path(archive, REPLACED_PREFIX, profile_id)
            try:
                target.rename(discarded)
            except FileNotFoundError:
                continue
            shutil.rmtree(discarded, ignore_errors=True)
        else:
            return target
    raise ArchiveError(f"{target}: another process keeps replacing this profile", hint="try again")


def _flush_to_disk(directory: Path) -> None:
    for path in sorted(directory.iterdir()):
        with path.open("rb") as file:
            os.fsync(file.fileno())


def remember_origin(archive: Path, profile_id: str, root: Path) -> None:
    """Note where a capture lies on this machine, beside the profiles: a profile itself holds no such path."""
    folder = archive / ORIGINS
    folder.mkdir(exist_ok=True)
    note = folder / f"{profile_id}.{os.getpid()}.tmp"
    note.write_text(str(root), encoding="utf-8", errors="surrogateescape")
    note.replace(folder / profile_id)


def origin(profile: Path, profile_id: str) -> Path | None:
    """Where the capture of a stored profile lay when it was last ingested; None if that is not known."""
    try:
        text = (profile.parent / ORIGINS / profile_id).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    return Path(text)


def profile_path(archive: Path, profile_id: str) -> Path:
    """Directory of a profile in an archive."""
    return archive / f"{PROFILE_PREFIX}{profile_id}"


def profile_ids(archive: Path) -> list[str]:
    """Ids of the whole profiles in an archive, sorted."""
    return sorted(
        path.name.removeprefix(PROFILE_PREFIX)
        for path in archive.glob(f"{PROFILE_PREFIX}*")
        if (path / MANIFEST).is_file()
    )


def is_archive(path: Path) -> bool:
    """Whether ``path`` is a directory with at least one whole profile in it."""
    return path.is_dir() and any((p / MANIFEST).is_file() for p in path.glob(f"{PROFILE_PREFIX}*"))


def is_profile(path: Path) -> bool:
    """Whether ``path`` is the directory of one stored profile."""
    return path.is_dir() and (path / MANIFEST).is_file() and (path / "events.parquet").is_file()


def slug(text: str) -> str:
    """``text`` as a part of a file name: letters, digits, ``.``, ``_`` and ``-`` only."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:64] or "profile"


def write_manifest(directory: Path, manifest: Manifest, *, kept: Manifest = MappingProxyType({})) -> None:
    """Write the manifest as readable JSON with a fixed key order, with size and hash of each table's file.

    Args:
        directory: of the profile.
        manifest: what is known besides.
        kept: size and hash of files that were not written now: they stay what they were when they were.
    """
    files = {p.name: kept.get(p.name) or file_facts(p) for p in sorted(directory.glob("*.parquet"))}
    whole = {**manifest, "files": files} if files else manifest
    text = json.dumps(whole, indent=1, sort_keys=True, ensure_ascii=False)
    (directory / MANIFEST).write_text(text + "\n", encoding="utf-8")


def file_facts(path: Path) -> dict[str, int | str]:
    """Size and content hash of a file, as the manifest holds them."""
    digest = xxhash.xxh3_128()
    with path.open("rb", buffering=0) as file:
        while block := file.read(4 << 20):
            digest.update(block)
        return {"size_bytes": file.tell(), "xxh3_128": digest.hexdigest()}


def check_name(name: str) -> None:
    """Refuse what cannot name a profile.

    Raises:
        ArchiveError: if it is anything but letters, digits, ``.``, ``_`` and ``-``.
    """
    if slug(name) != name:
        raise ArchiveError(
            f"{name!r} is no name for a profile", hint="up to 64 letters, digits, dots, dashes and underscores"
        )


def stored_facts(manifest: Manifest) -> Mapping[str, Mapping[str, object]]:
    """Size and hash of each file as a manifest has them."""
    files = manifest.get("files")
    return cast(Mapping[str, Mapping[str, object]], files) if isinstance(files, dict) else {}


def is_intact(directory: Path, manifest: Manifest) -> bool:
    """Whether every table's file is there with the size that the manifest says; reads none of them."""
    known = stored_facts(manifest)
    try:
        sizes = {f"{table}.parquet": (directory / f"{table}.parquet").stat().st_size for table in TABLES}
    except OSError:
        return False
    return all(name not in known or known[name].get("size_bytes") == size for name, size in sizes.items())


def read_manifest(directory: Path) -> Manifest:
    """Read a profile's manifest and check that this version can read the profile.

    Raises:
        ArchiveError: if it is missing, damaged, or of another schema version.
    """
    path = directory / MANIFEST
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ArchiveError(f"{directory}: no {MANIFEST}, so not a stored profile", hint=AGAIN_HINT) from error
    except (OSError, ValueError) as error:
        raise ArchiveError(f"{path}: cannot be read: {error}", hint=AGAIN_HINT) from error
    return parse_manifest(text, str(directory))


def parse_manifest(text: str | bytes, place: str) -> Manifest:
    """The manifest of the profile at ``place``.

    Raises:
        ArchiveError: if it is damaged, or of another schema version.
    """
    path = f"{place}/{MANIFEST}"
    try:
        manifest = json.loads(text)
    except ValueError as error:
        raise ArchiveError(f"{path}: cannot be read: {error}", hint=AGAIN_HINT) from error
    version = manifest.get("schema_version") if isinstance(manifest, dict) else None
    if not isinstance(version, int):
        raise ArchiveError(f"{path}: has no schema version", hint=AGAIN_HINT)
    if version > SCHEMA_VERSION:
        raise NewerVersionError(
            f"{place}: written with schema {version} by tracekit {manifest.get('tracekit_version')}, "
            f"this tracekit reads schema {SCHEMA_VERSION}",
            hint="upgrade tracekit",
        )
    if version < SCHEMA_VERSION:
        raise ArchiveError(
            f"{place}: written with schema {version}, this tracekit reads schema {SCHEMA_VERSION}",
            hint="ingest the capture again",
        )
    return cast(Manifest, manifest)


def scan_file(directory: Path, table: str) -> pl.LazyFrame:
    """One table of a directory that holds a profile or is about to."""
    return pl.scan_parquet(directory / f"{table}.parquet", glob=False)


def scan(directories: Iterable[Path], table: str) -> pl.LazyFrame:
    """One table of one or several stored profiles, with a ``profile`` column first.

    Args:
        directories: profile directories (``…/profile=<id>``).
        table: a name in ``tables.TABLES``.

    Returns:
        ``profile`` and the table's columns, profile after profile.

    Raises:
        ArchiveError: if a file is missing.
    """
    spec = tables.TABLES[table]
    paths = [directory / f"{table}.parquet" for directory in directories]
    for path in paths:
        if not path.is_file():
            raise ArchiveError(f"{path}: missing", hint=f"the profile is damaged; {AGAIN_HINT}")
    if not paths:
        return spec.empty().lazy().select(pl.lit(None, dtype=pl.String).alias("profile"), pl.all())
    frame = pl.scan_parquet(paths, hive_partitioning=True, hive_schema={"profile": pl.String}, glob=False)
    return frame.select("profile", *spec.names)
