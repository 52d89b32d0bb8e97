"""Rows of ``tables.EVENTS`` from decoded Chrome events, vectorised per piece of the file.

Worker processes load this module: numpy, pyarrow and msgspec, no polars.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tracekit.sources._chrome_args import Promoted, promoted
from tracekit.sources._chrome_categories import NAMED, lane_and_kind, place
from tracekit.sources._chrome_columns import Coded, Codes, Ints, Joined, Mask, coded, dictionary, ids, small
from tracekit.sources._chrome_events import ABSENT, NotStrict, Report
from tracekit.sources._chrome_exported import ExportedRows, exported_rows, parts
from tracekit.vocabulary import KINDS, LANES

PHASES = ("complete", "instant", "begin_end", "async")
_HARDWARE, _STREAM = LANES.index("hardware"), LANES.index("stream")
_TRANSFERS = np.array([kind in ("copy", "copy_in", "copy_out", "memory") for kind in KINDS])


@dataclass
class EventColumns:
    """Events that become rows of ``tables.EVENTS``, one array or sequence per field."""

    event_id: Ints
    phase: Codes
    """Index into ``PHASES``."""
    name: Coded
    category: Coded
    pid: Ints
    tid: Ints
    start_ns: Ints
    end_ns: Ints
    attrs: Joined


def event_batch(rows: EventColumns, report: Report, *, strict: bool, positions: Sequence[int] = ()) -> pa.RecordBatch:
    """The rows as an Arrow batch with the columns of ``base.EVENT_COLUMNS`` that a Chrome trace can fill.

    Args:
        rows: what becomes rows.
        report: takes values that do not fit.
        strict: whether to give up at a value that needs the tolerant path.
        positions: byte of every row in the file, for the report; empty if it is not known.

    Raises:
        NotStrict: only if ``strict``: a value needs the tolerant path.
    """
    lane, kind = _places(rows.category, rows.name)
    exported = exported_rows(rows.category, rows.attrs, report, strict=strict)
    attrs = rows.attrs if exported is None else exported.attributes(rows.attrs, strict=strict)
    keys = promoted(attrs, rows.category.codes, lane, report, strict=strict, positions=positions)
    columns = {
        "event_id": pa.array(rows.event_id),
        "lane": dictionary(lane, LANES),
        "kind": dictionary(kind, KINDS),
        "phase": dictionary(rows.phase, PHASES),
        "name": dictionary(rows.name.codes, rows.name.values),
        "category": dictionary(rows.category.codes, rows.category.values),
        "process_id": ids(rows.pid),
        "thread_id": ids(rows.tid),
        "start_ns": pa.array(rows.start_ns),
        "end_ns": pa.array(rows.end_ns),
        **_key_columns(rows, keys, lane == _HARDWARE, lane == _STREAM, kind, exported),
        "attrs_json": attrs.column(),
    }
    if exported is not None:
        columns |= _exported_columns(rows, exported)
    return pa.RecordBatch.from_pydict(columns)


def _exported_columns(rows: EventColumns, exported: ExportedRows) -> dict[str, pa.Array]:
    """What rows of an export have besides: how another source spelled them, and which."""
    category, source = parts(rows.category)
    phase = np.where(exported.mask, len(PHASES), rows.phase).astype(np.int32)
    return {
        "phase": dictionary(phase, (*PHASES, None)),
        "category": dictionary(category.codes, category.values),
        "source": dictionary(source.codes, source.values),
    }


def _key_columns(
    rows: EventColumns,
    keys: Promoted,
    on_device: Mask,
    on_stream: Mask,
    kind: Codes,
    exported: ExportedRows | None,
) -> dict[str, pa.Array]:
    """Columns from the promoted keys of ``args``; those that no row fills are left out."""
    columns = {}
    if exported is not None or on_device.any() or on_stream.any():
        stream = np.where(on_device & (keys.stream != ABSENT), keys.stream, rows.tid)
        device = np.where(keys.device == ABSENT, np.where(on_device, rows.pid, ABSENT), keys.device)
        stream = np.where(on_device | on_stream, stream, ABSENT)
        device = np.where(on_device | on_stream, device, ABSENT)
        moved = np.where(on_device & _TRANSFERS[kind], keys.moved, ABSENT)
        if exported is not None:
            exported.fill(keys)
            facts = ((stream, keys.stream), (device, keys.device), (moved, keys.moved))
            stream, device, moved = (np.where(exported.mask, told, usual) for usual, told in facts)
        columns["stream_id"], columns["core_index"], columns["moved_bytes"] = ids(stream), small(device), ids(moved)
    else:
        columns |= {name: _nothing(len(kind), name) for name in ("stream_id", "core_index", "moved_bytes")}
    physical = None if exported is None else exported.physical_core()
    columns["physical_core"] = _nothing(len(kind), "core_index") if physical is None else small(physical)
    columns["external_id"] = ids(keys.external, keys.lowest.get("external"))
    columns["correlation_id"] = ids(keys.correlation, keys.lowest.get("correlation"))
    columns["sequence_id"] = _or_null(keys.sequence, len(kind), pa.uint64())
    columns["execution_id"] = _or_null(keys.execution, len(kind), pa.int64())
    model = coded([None] if keys.model is None else keys.model)
    codes = np.zeros(len(kind), np.int32) if keys.model is None else model.codes
    columns["model_id"] = dictionary(codes, model.values)
    return columns


def _nothing(count: int, name: str) -> pa.Array:
    return pa.nulls(count, pa.int32() if name == "core_index" else pa.int64())


def _places(category: Coded, name: Coded) -> tuple[Codes, Codes]:
    """Lane and kind of every row, as indices into ``LANES`` and ``KINDS``."""
    found = [lane_and_kind(c) for c in category.values]
    lane = np.array([LANES.index(p[0]) for p in found], np.int32)[category.codes]
    kind = np.array([KINDS.index(p[1]) for p in found], np.int32)[category.codes]
    for code, value in enumerate(category.values):
        if value is None or value not in NAMED:
            continue
        rows = np.flatnonzero(category.codes == code)
        names, inverse = np.unique(name.codes[rows], return_inverse=True)
        kinds = [KINDS.index(place(value, name.values[n] or "")[1]) for n in names]
        kind[rows] = np.array(kinds, np.int32)[inverse]
    return lane, kind


def _or_null(values: list[int | None] | None, count: int, dtype: pa.DataType) -> pa.Array:
    if values is None:
        return pa.nulls(count, dtype)
    try:
        return pa.array(values, dtype)
    except (OverflowError, pa.ArrowInvalid) as error:
        raise NotStrict("an id that does not fit") from error


def merged(batches: Sequence[pa.RecordBatch | None]) -> pa.RecordBatch | None:
    """All rows in order of their event id; None if there are none."""
    present = [batch for batch in batches if batch is not None and batch.num_rows]
    if len(present) < 2:
        return present[0] if present else None
    # Only a batch with rows of an export has the column ``source``.
    table = pa.concat_tables([pa.Table.from_batches([batch]) for batch in present], promote_options="default")
    return table.unify_dictionaries().sort_by("event_id").combine_chunks().to_batches()[0]
