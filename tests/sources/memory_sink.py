"""A sink that keeps everything in memory and checks what a reader promises."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pyarrow as pa

from tracekit import tables
from tracekit.sources.base import EVENT_COLUMNS, Artifact, Rows, Severity, SideTable


@dataclass
class MemorySink:
    """Collects what a reader gives; asserts that event ids rise and that rows fit the stored tables."""

    source: str
    session: str = "session"
    unwanted: frozenset[tuple[str, str]] = frozenset()
    """(session, lane) pairs that a better source has given."""
    event_frames: list[pl.DataFrame] = field(default_factory=list)
    side_frames: list[tuple[str, pl.DataFrame]] = field(default_factory=list)
    notes: list[dict[str, object]] = field(default_factory=list)
    session_facts: dict[str, dict[str, str | int]] = field(default_factory=dict)
    counts: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    read_bytes: int = 0
    largest_batch: int = 0
    _last_id: int = -1

    def events(self, rows: Rows, *, session: str | None = None) -> None:
        frame = _frame(rows)
        if frame.is_empty():
            return
        unknown = set(frame.columns) - set(EVENT_COLUMNS)
        assert not unknown, f"unknown event column(s) {sorted(unknown)}"
        ids = frame["event_id"]
        assert ids.is_sorted() and ids.n_unique() == len(ids), "event ids do not rise"
        first, last = int(ids[0]), int(ids[-1])
        assert self._last_id < first and last < 2**40, "event ids do not rise over the calls"
        self._last_id = last
        stored = tables.EVENTS.conform(
            frame.with_columns(
                session=pl.lit(session or self.session), source=pl.lit(self.source), is_primary=pl.lit(True)
            )
        )
        assert (stored["end_ns"] >= stored["start_ns"]).all(), "an event ends before it starts"
        self.largest_batch = max(self.largest_batch, len(stored))
        self.event_frames.append(stored)

    def side(self, table: SideTable, rows: Rows, *, session: str | None = None) -> None:
        frame = _frame(rows).with_columns(session=pl.lit(session or self.session))
        self.side_frames.append((table, tables.TABLES[table].conform(frame)))

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
        assert severity in tables.SEVERITIES
        self.notes.append(
            {
                "session": session or self.session,
                "severity": severity,
                "code": code,
                "message": message,
                "hint": hint,
                "event_count": event_count,
            }
        )

    def facts(self, *, session: str | None = None, **facts: str | int | None) -> None:
        unknown = set(facts) - set(tables.SESSIONS.names)
        assert not unknown, f"unknown fact(s) {sorted(unknown)}"
        known = self.session_facts.setdefault(session or self.session, {})
        for name, value in facts.items():
            if value is not None:
                known.setdefault(name, value)

    def count(self, phase: str, category: str | None, events: int) -> None:
        self.counts[(phase, category)] += events

    def session_of(self, instance_id: str | None, process_id: int | None) -> str:
        return f"{instance_id}_pid_{process_id}"

    def wants(self, session: str, lane: str) -> bool:
        return (session, lane) not in self.unwanted

    def progress(self, read_bytes: int) -> None:
        assert read_bytes >= 0
        self.read_bytes += read_bytes

    def events_frame(self) -> pl.DataFrame:
        """All events as ``tables.EVENTS``, in the order they were given."""
        return pl.concat(self.event_frames) if self.event_frames else tables.EVENTS.empty()

    def side_frame(self, table: SideTable) -> pl.DataFrame:
        """All rows of a side table, in the order they were given."""
        frames = [frame for name, frame in self.side_frames if name == table]
        return pl.concat(frames) if frames else tables.TABLES[table].empty()

    def note_codes(self) -> list[str]:
        """Codes of the notes, in order."""
        return [str(note["code"]) for note in self.notes]


def _frame(rows: Rows) -> pl.DataFrame:
    if isinstance(rows, pl.DataFrame):
        return rows
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def artifact(path: Path, **facts: object) -> Artifact:
    """An artifact for a file on disk, as discovery would give it."""
    known: dict[str, object] = {"label": path.name, "role": "system", "size_bytes": path.stat().st_size}
    return Artifact(path=path, **(known | facts))  # type: ignore[arg-type]
