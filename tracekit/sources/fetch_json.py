"""What the Neuron runtime's ``nrt_sys_trace_fetch_events`` returns, saved as JSON (grade D, partly C).

``{"events": [{event_type, phase, id, nc_idx, nc_local_id, tracking_id, thread_id, worker_gid, data: {…},
timestamp_ns, nrta_seq_id?}], "data_version": 2}``: starts, stops and instants, hardware ones on the device's
clock. The file is read twice: sync points first, then events, so that memory does not grow with the file.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tracekit.errors import SourceError
from tracekit.sources._json_chunks import JsonChunks
from tracekit.sources._neuron_events import EVENT_TYPES, SYNC_POINT, int64
from tracekit.sources._neuron_rows import no_collection
from tracekit.sources._neuron_spans import PHASES, Clock, Mark, Spans
from tracekit.sources.base import Artifact, Sink, Source

_LISTS = ("events",)
_KEYS = (*_LISTS, None)
_SYNC_TYPES = (SYNC_POINT, EVENT_TYPES.index(SYNC_POINT))
_HINT = "save the events again with nrt_sys_trace_fetch_events, or export with neuron-explorer view --ingest-only"


def read(artifact: Artifact, sink: Sink) -> None:
    """Give the events of one saved fetch to the sink.

    Raises:
        SourceError: if the file is empty or no JSON.
    """
    if artifact.path.stat().st_size == 0:
        raise SourceError(artifact.path, "JSON file is 0 bytes", hint=_HINT)
    with no_collection():
        _read(artifact, sink)


def _read(artifact: Artifact, sink: Sink) -> None:
    progress = _halved(sink.progress)
    spans = Spans(artifact, sink, _clock(JsonChunks(artifact.path, progress, _Glance, _LISTS)))
    chunks = JsonChunks(artifact.path, progress, lists=_LISTS)
    bad, before_bad, seen, keys, lists = 0, 0, 0, set(), set()
    for part in chunks:
        keys.add(part.key)
        lists |= {part.key} if part.is_list else set()
        for row in part.rows if part.key in _KEYS else ():
            mark = _mark(row)
            if mark is None:
                before_bad = before_bad if bad else seen
                bad += 1
            else:
                spans.add(mark)
            seen += 1
    spans.finish()
    if not lists.intersection(_KEYS):
        found = ", ".join(sorted(str(key) for key in keys)) or "nothing"
        sink.note("warning", "no_events", f"no events list in the file (found: {found})", hint=_HINT)
    if bad:
        message = f"{bad} events without a type or a time are skipped, the first behind {before_bad} others"
        sink.note("warning", "missing_time", message, event_count=bad)
    chunks.damage.note(sink, hint=_HINT)


SOURCE = Source(name="fetch_json", doc="Neuron runtime fetch API as JSON", grade="D", rank=30, read=read)


class _Glance(msgspec.Struct):
    """What the first pass needs of a record; the rest is not decoded."""

    event_type: object = None
    timestamp_ns: object = None
    nc_idx: object = None
    data: msgspec.Raw = msgspec.Raw(b"null")


def _clock(chunks: JsonChunks) -> Clock:
    """The sync points of the file."""
    clock = Clock()
    for part in chunks:
        for row in part.rows if part.key in _KEYS else ():
            mark = _mark(_seen(row) if isinstance(row, _Glance) else row)
            if mark is not None and mark.name == SYNC_POINT:
                clock.add(mark)
    clock.close()
    return clock


def _seen(glance: _Glance) -> dict[str, object] | None:
    """A sync point as a record; None for any other event."""
    if glance.event_type not in _SYNC_TYPES:
        return None
    try:
        data = msgspec.json.decode(glance.data)
    except msgspec.DecodeError:
        return None
    return {**msgspec.structs.asdict(glance), "data": data}


def _mark(row: object) -> Mark | None:
    """A record as a mark, or None if it has no type or no time; takes the record apart."""
    if not isinstance(row, dict):
        return None
    name, at_ns = row.pop("event_type", None), int64(row.pop("timestamp_ns", None))
    if isinstance(name, int) and 0 <= name < len(EVENT_TYPES):
        name = EVENT_TYPES[name]
    if not isinstance(name, str) or at_ns is None:
        return None
    phase, data = row.pop("phase", None), row.pop("data", None)
    if isinstance(phase, int):
        phase = PHASES[phase] if 0 <= phase < len(PHASES) else PHASES[0]
    core, tracking = int64(row.pop("nc_idx", None)), int64(row.pop("tracking_id", None))
    attributes = row | data if isinstance(data, dict) else row
    return Mark(name, str(phase), core, tracking, at_ns, attributes)


def _halved(progress: Callable[[int], None]) -> Callable[[int], None]:
    """Progress for a file that is read twice: every byte counts half."""
    seen = 0

    def report(read_bytes: int) -> None:
        nonlocal seen
        progress((seen + read_bytes) // 2 - seen // 2)
        seen += read_bytes

    return report
