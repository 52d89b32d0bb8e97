"""What a reader gets, what it gives, and how the readers are told apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import polars as pl
import pyarrow as pa

from tracekit import tables

Rows: TypeAlias = pl.DataFrame | pa.RecordBatch | pa.Table
SideTable = Literal["samples", "threads", "flows"]
Severity = Literal["info", "warning", "error"]

EVENT_COLUMNS = tuple(n for n in tables.EVENTS.names if n not in ("session", "is_primary"))
"""What a reader gives of ``tables.EVENTS``; the sink adds the rest. ``source`` is given only by a file that repeats
what another format told (our own export), and null where it does not."""


@dataclass(frozen=True)
class Artifact:
    """A file that discovery found.

    ``path`` is where it can be read now (inside a temporary directory when it came out of an archive);
    ``label`` is its path relative to the profile's root, which is what tables and messages show.
    """

    path: Path
    label: str
    role: str
    format: str | None = None
    session: str | None = None
    instance_id: str | None = None
    process_id: int | None = None
    model_hash: str | None = None
    core_index: int | None = None
    rank: int | None = None
    size_bytes: int = 0
    pair_id: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Session:
    """One captured process, as far as names and manifests tell; fields are those of ``tables.SESSIONS``."""

    session: str
    path: str
    instance_id: str | None = None
    process_id: int | None = None
    rank: int | None = None
    world_size: int | None = None
    host_name: str | None = None
    instance_type: str | None = None
    versions_json: str | None = None
    labels_json: str | None = None
    capture_json: str | None = None


class Sink(Protocol):
    """Where a reader puts what it reads; bound to one artifact."""

    def events(self, rows: Rows, *, session: str | None = None) -> None:
        """Take events in file order.

        Args:
            rows: ``EVENT_COLUMNS`` (nullable ones may be left out); ``event_id`` is the position in the
                file: ≥ 0, < 2**40, strictly rising over all calls for one artifact.
            session: overrides the artifact's session.
        """

    def side(self, table: SideTable, rows: Rows, *, session: str | None = None) -> None:
        """Take rows of a side table, without its ``session`` column."""

    def note(
        self,
        severity: Severity,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        event_count: int | None = None,
        session: str | None = None,
    ) -> None:
        """Record something about the data; the artifact's path is added."""

    def facts(self, *, session: str | None = None, **facts: str | int | None) -> None:
        """Add facts about a session: columns of ``tables.SESSIONS``. The first value of a fact wins."""

    def count(self, phase: str, category: str | None, events: int) -> None:
        """Count events as they stand in the file, by Chrome ``ph`` and ``cat``; goes to the manifest."""

    def session_of(self, instance_id: str | None, process_id: int | None) -> str:
        """Name of the session of a process, for files that describe several; made if there is none yet.

        Of rows that name no process: the only process there can be, else a session of the file's own.
        """

    def wants(self, session: str, lane: str) -> bool:
        """Whether this artifact's rows of a lane are needed: false if a better source has given them."""

    def progress(self, read_bytes: int) -> None:
        """Report that ``read_bytes`` more bytes of the artifact (as it lies on disk) are done."""


@dataclass(frozen=True)
class Source:
    """One format: how to recognise it and how to read it."""

    name: str
    doc: str
    grade: str
    """How sure the format is: D (documented), C (seen in consumer code), T (tested), R (hypothesis)."""
    rank: int
    """Reading order and preference: lower is read first and wins where two describe the same lane."""
    read: Callable[[Artifact, Sink], None]


def column(frame: Mapping[str, pl.DataType], name: str, dtype: pl.DataType) -> pl.Expr:
    """``name`` cast to ``dtype`` (what does not fit becomes null), or null where the frame lacks it."""
    if name not in frame:
        return pl.lit(None, dtype=dtype).alias(name)
    return pl.col(name).cast(dtype, strict=False)
