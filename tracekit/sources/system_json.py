"""Neuron Explorer's and neuron-profile's JSON export of a system profile (grade D, partly C).

``--output-format json`` writes one object with ``trace_event`` (older: ``trace_events``), ``mem_usage``,
``cpu_util``, ``device_mem_usage`` and ``system_profile_metadata``, often hundreds of MB on one line. Times are
absolute Unix ns; numbers may be text. Framework rows have type 99999 and group ``framework-<tid>``.
"""

from __future__ import annotations

import polars as pl

from tracekit.errors import SourceError
from tracekit.sources._json_chunks import JsonChunks, Part
from tracekit.sources._neuron_events import (
    FRAMEWORK_SUFFIX,
    HARDWARE_NAMES,
    SYNC_POINT,
    framework_place,
    int64,
    integer,
)
from tracekit.sources._neuron_rows import Batch, Emitter, FrameworkRows, no_collection
from tracekit.sources._neuron_samples import sample_frames
from tracekit.sources.base import Artifact, Sink, Source

EVENT_KEYS = ("trace_event", "trace_events")
USAGE_KEYS = ("mem_usage", "cpu_util", "device_mem_usage")
METADATA_KEYS = ("system_profile_metadata", "metadata")
_FRAMEWORK_TYPE = 99999
_FRAMEWORK_GROUP = "framework-"
_HINT = "export the profile again; Parquet (neuron-explorer view --ingest-only) is the supported format"


def read(artifact: Artifact, sink: Sink) -> None:
    """Give the rows of one JSON export to the sink.

    Raises:
        SourceError: if the file is empty or no JSON.
    """
    if artifact.path.stat().st_size == 0:
        raise SourceError(artifact.path, "JSON file is 0 bytes", hint=_HINT)
    chunks = JsonChunks(artifact.path, sink.progress, lists=(*EVENT_KEYS, *USAGE_KEYS))
    reader = _Reader(artifact, sink)
    keys, lists = set(), set()
    with no_collection():
        for part in chunks:
            keys.add(part.key)
            lists |= {part.key} if part.is_list else set()
            reader.take(part)
    if not lists.intersection((*EVENT_KEYS, *USAGE_KEYS)):
        found = ", ".join(sorted(str(key) for key in keys)) or "nothing"
        sink.note("warning", "no_events", f"no trace_event list in the file (found: {found})", hint=_HINT)
    reader.note()
    chunks.damage.note(sink, hint=_HINT)


SOURCE = Source(name="system_json", doc="Neuron system profile as JSON", grade="D", rank=20, read=read)


class _Reader:
    """Turns members of the export into rows; counts what it leaves out."""

    def __init__(self, artifact: Artifact, sink: Sink) -> None:
        self._sink = sink
        self._emitter = Emitter(sink, process_id=artifact.process_id)
        self._framework = FrameworkRows(artifact, sink)
        self._seen = self._bad = self._negative = self._sync_points = 0
        self._before_bad = 0

    def take(self, part: Part) -> None:
        """Read one piece of a member; members nobody described are left out."""
        if part.key in EVENT_KEYS:
            self._events(part.rows)
        elif part.key in USAGE_KEYS:
            self._usage(part.key, part.rows)
        elif part.key in METADATA_KEYS and isinstance(part.value, dict):
            facts = ", ".join(f"{name} {value}" for name, value in part.value.items())
            self._sink.note("info", "profile_metadata", facts or "empty metadata")

    def _events(self, rows: list[object]) -> None:
        batch = Batch()
        for row in rows:
            if not isinstance(row, dict) or not self._event(batch, row):
                self._before_bad = self._before_bad if self._bad else self._seen
                self._bad += 1
            self._seen += 1
        framework = len(batch.places) - batch.places.count(None)
        hardware = sum(name in HARDWARE_NAMES for name in batch.names)
        for origin, count in (
            ("framework", framework),
            ("neuron_hw", hardware),
            ("neuron_rt", len(batch) - framework - hardware),
        ):
            if count:
                self._sink.count("X", origin, count)
        self._emitter.give(batch)

    def _event(self, batch: Batch, row: dict[str, object]) -> bool:
        """Add one event; False if it has no name or time."""
        name, start, duration = row.pop("name", None), int64(row.pop("timestamp", None)), row.pop("duration", None)
        if not isinstance(name, str) or start is None:
            return False
        if name == SYNC_POINT:
            self._sync_points += 1
            return True
        length = integer(duration) or 0
        if length < 0:
            self._negative += 1
        instance_id, process_id = row.pop("instance_id", None), int64(row.pop("process_id", None))
        process = (instance_id if isinstance(instance_id, str) else None, process_id)
        end = min(start + max(length, 0), 2**63 - 1)
        if not _is_framework(name, row):
            batch.add(name, start, end, row, process)
        elif self._framework.wanted(*process):
            plain = name.removesuffix(FRAMEWORK_SUFFIX)
            batch.add(plain, start, end, row, process, framework_place(plain, row))
        else:
            self._framework.skipped += 1
        return True

    def _usage(self, key: str, rows: list[object]) -> None:
        frame = pl.DataFrame([row for row in rows if isinstance(row, dict)], infer_schema_length=None, strict=False)
        if frame.is_empty():
            return
        frames = sample_frames(frame, key)
        if frames is None:
            message = f"{frame.height} {key} rows have no timestamp and are skipped"
            self._sink.note("info", "missing_time", message, event_count=frame.height)
            return
        for (instance_id, process_id), samples in frames:
            session = None if process_id is None else self._sink.session_of(instance_id, process_id)
            self._sink.side("samples", samples, session=session)

    def note(self) -> None:
        """Say what was left out or changed."""
        if self._bad:
            message = (
                f"{self._bad} events without a name or a time are skipped, the first behind {self._before_bad} others"
            )
            self._sink.note("warning", "missing_time", message, event_count=self._bad)
        if self._negative:
            message = f"{self._negative} events have a negative duration; their end is their start"
            self._sink.note("warning", "negative_duration", message, event_count=self._negative)
        if self._sync_points:
            message = f"{self._sync_points} clock sync points are not activities and give no rows"
            self._sink.note("info", "sync_points", message, event_count=self._sync_points)
        self._framework.note()
        self._emitter.finish()


def _is_framework(name: str, row: dict[str, object]) -> bool:
    group = row.get("group")
    return (
        integer(row.get("type")) == _FRAMEWORK_TYPE
        or (isinstance(group, str) and group.startswith(_FRAMEWORK_GROUP))
        or name.endswith(FRAMEWORK_SUFFIX)
    )
