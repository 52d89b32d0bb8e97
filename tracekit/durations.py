"""How long every event took, by name: an index beside the profiles, for questions about one name over many of them.

Events lie in order of time, so that one operator of a thousand profiles is spread over all of their bytes. Here they
lie by lane, name and profile, in row groups whose statistics tell which names are inside, and a question about one
name reads little; see ``index``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from tracekit import archive as store
from tracekit import index
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

_ROW_GROUP_ROWS = 65_536


def durations(events: pl.LazyFrame) -> pl.LazyFrame:
    """``DURATIONS`` of events with a ``profile`` column, in no order."""
    is_span = pl.col("is_primary") & pl.col("phase").ne_missing("instant")
    length = (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns")
    return events.filter(is_span).select("profile", "session", "lane", "kind", "name", length)


def build(archive: Path) -> int:
    """Index the profiles that are not yet; how many were added."""

    def write(ids: list[str], path: Path, metadata: index.Metadata) -> None:
        events = store.scan([store.profile_path(archive, i) for i in ids], "events")
        rows = durations(events).sort(DURATIONS.key).collect(engine="streaming").to_arrow()
        pq.write_table(
            rows.replace_schema_metadata(dict(metadata)),
            path,
            row_group_size=_ROW_GROUP_ROWS,
            compression="zstd",
            use_dictionary=["profile", "session", "lane", "kind", "name"],
            column_encoding={"duration_ns": "DELTA_BINARY_PACKED"},
        )

    return index.build(archive, DURATIONS.name, write)


def table(archive: Path, ids: Iterable[str]) -> pl.LazyFrame:
    """``DURATIONS`` of profiles: from the index as far as it goes, of the others from their events."""
    found, rest = index.covered(archive, DURATIONS.name, index.contents(archive, ids))
    frames = [frame.select(DURATIONS.names) for frame in found]
    if rest or not frames:
        frames.append(durations(store.scan([store.profile_path(archive, i) for i in rest], "events")))
    return pl.concat(frames)
