"""Metrics of many profiles as one table: computed profile after profile into a file, so that memory stays that of one.

Results with the default scope and options can be kept in the archive's index (``tracekit archive index --metric``);
others last as long as the process.
"""

from __future__ import annotations

import atexit
import functools
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

import polars as pl
import pyarrow.parquet as pq

from tracekit import index
from tracekit._version import __version__
from tracekit.errors import VERIFY_HINT, ArchiveError, damage
from tracekit.metrics import METRICS, metric
from tracekit.metrics.base import OptionValue
from tracekit.tables import SCHEMA_VERSION

_ROW_GROUP_ROWS = 65_536


class Measurable(Protocol):
    """A profile."""

    @property
    def id(self) -> str:
        """Its name in the archive."""

    def metric(self, name: str, *, scope: str | int = ..., **options: OptionValue) -> pl.LazyFrame:
        """One of its metrics."""


def write(
    name: str,
    profiles: Iterable[Measurable],
    path: Path,
    *,
    scope: str | int = "steps",
    options: Mapping[str, OptionValue] | None = None,
    metadata: index.Metadata | None = None,
) -> None:
    """Write a metric of profiles, with ``profile`` first, to a Parquet file.

    Raises:
        TracekitError: if there is no such metric, option or step, or a profile is damaged.
    """
    spec = metric(name).table
    first = pl.lit(None, pl.String).alias("profile")
    schema = spec.empty().select(first, pl.all()).to_arrow().schema.with_metadata(dict(metadata or {}))
    with pq.ParquetWriter(path, schema, compression="zstd", compression_level=1) as writer:
        waiting: list[pl.DataFrame] = []
        for profile in profiles:
            rows = spec.conform(_rows(profile, name, scope, options or {}))
            waiting.append(rows.select(pl.lit(profile.id).alias("profile"), pl.all()))
            if sum(frame.height for frame in waiting) >= _ROW_GROUP_ROWS:
                writer.write_table(pl.concat(waiting).to_arrow().cast(schema))
                waiting = []
        if waiting:
            writer.write_table(pl.concat(waiting).to_arrow().cast(schema))


def _rows(profile: Measurable, name: str, scope: str | int, options: Mapping[str, OptionValue]) -> pl.DataFrame:
    try:
        return profile.metric(name, scope=scope, **options).collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        problem = damage(error)
        if problem is None:
            raise
        raise ArchiveError(f"{profile.id}: damaged: {problem}", hint=VERIFY_HINT) from error


def spool(
    name: str, profiles: Iterable[Measurable], *, scope: str | int, options: Mapping[str, OptionValue]
) -> pl.LazyFrame:
    """``write`` to a file that lasts as long as this process, and read it."""
    path = _folder() / f"{secrets.token_hex(8)}.parquet"
    write(name, profiles, path, scope=scope, options=options)
    return pl.scan_parquet(path, glob=False)


@functools.cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="tracekit-metrics-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def covered(archive: Path, name: str, ids: Iterable[str]) -> tuple[list[pl.LazyFrame], list[str]]:
    """A metric with its default scope and options as far as the archive's index holds it, and the profiles left."""
    wanted = list(ids)
    if _table(name) not in index.names(archive):
        return [], wanted
    contents = index.contents(archive, wanted)
    frames, rest = index.covered(archive, _table(name), contents, version=_version(name))
    left = set(rest)
    return frames, [i for i in wanted if i in left or i not in contents]


def build(archive: Path, name: str, opened: Callable[[str], Measurable]) -> int:
    """Keep a metric of every profile in the archive's index; of how many it was computed now.

    Args:
        archive: the archive.
        name: of the metric.
        opened: gives a profile by its id.

    Raises:
        TracekitError: as of ``write``.
    """

    def written(ids: list[str], path: Path, metadata: index.Metadata) -> None:
        write(name, map(opened, ids), path, metadata=metadata)

    metric(name)
    return index.build(archive, _table(name), written, version=_version(name))


def kept(archive: Path) -> list[str]:
    """Metrics that the archive's index holds, of this version or another."""
    found = index.names(archive)
    return [name for name in METRICS if _table(name) in found]


def _table(name: str) -> str:
    return f"metric-{name}"


def _version(name: str) -> str:
    """What the rows depend on beside the profile: the program and the columns."""
    return f"{__version__}/{SCHEMA_VERSION}/{','.join(METRICS[name].table.names)}"
