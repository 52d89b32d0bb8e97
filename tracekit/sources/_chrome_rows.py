"""Columns from decoded Chrome events: the hot path of the reader, vectorised per piece of the file.

Worker processes load this module: numpy, pyarrow and msgspec, no polars.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.sources._chrome_args import NotStrict, promoted
from tracekit.sources._chrome_categories import CATEGORIES, KINDS, LANES, NAMED, OTHER, place
from tracekit.sources._chrome_events import ABSENT, Report

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Text = Sequence[bytes]
"""JSON text per event: ``msgspec.Raw`` or bytes."""

PHASES = ("complete", "instant", "begin_end", "async")
LIMIT_NS = 4 * 10**18
"""Times are kept below this (the year 2096), so that base + start + duration fit Int64."""


@dataclass
class EventColumns:
    """Events that become rows of ``tables.EVENTS``, one list or array per field."""

    event_id: Ints
    phase: Codes
    """Index into ``PHASES``."""
    name: Sequence[str]
    category: Sequence[str | None]
    pid: Ints
    tid: Ints
    start_ns: Ints
    end_ns: Ints
    args: Text


@dataclass
class Coded:
    """Text as codes into the distinct values."""

    values: list[str | None] = field(default_factory=list)
    codes: Codes = field(default_factory=lambda: np.empty(0, np.int32))


class _Interner(dict[str | None, int]):
    def __missing__(self, key: str | None) -> int:
        self[key] = code = len(self)
        return code


def coded(values: Sequence[str | None]) -> Coded:
    """Dictionary-encode; None is a value like any other."""
    known = _Interner()
    codes = np.fromiter(map(known.__getitem__, values), np.int32, len(values))
    return Coded(list(known), codes)


def event_batch(rows: EventColumns, report: Report, *, strict: bool) -> pa.RecordBatch:
    """The rows as an Arrow batch with the columns of ``base.EVENT_COLUMNS`` that a Chrome trace can fill.

    Raises:
        NotStrict: only if ``strict``: a value needs the tolerant path.
    """
    category, name = coded(rows.category), coded(rows.name)
    lane, kind = _places(category, name)
    attrs = text_array(rows.args, strict=strict)
    keys = promoted(rows.args, category.codes, lane, report, strict=strict)
    lane_codes = lane.astype(np.int32)
    on_device, on_stream = lane_codes == LANES.index("hardware"), lane_codes == LANES.index("stream")
    columns = {
        "event_id": pa.array(rows.event_id),
        "lane": dictionary(lane_codes, LANES),
        "kind": dictionary(kind, KINDS),
        "phase": dictionary(rows.phase, PHASES),
        "name": dictionary(name.codes, name.values),
        "category": dictionary(category.codes, category.values),
        "process_id": ids(rows.pid),
        "thread_id": ids(rows.tid),
        "stream_id": ids(
            np.where(on_device & (keys.stream != ABSENT), keys.stream, _if(on_device | on_stream, rows.tid))
        ),
        "core_index": small(
            _if(on_device | on_stream, np.where(keys.device != ABSENT, keys.device, _if(on_device, rows.pid)))
        ),
        "start_ns": pa.array(rows.start_ns),
        "end_ns": pa.array(rows.end_ns),
        "external_id": ids(keys.external),
        "correlation_id": ids(keys.correlation),
        "sequence_id": _or_null(keys.sequence, len(lane), pa.uint64()),
        "execution_id": _or_null(keys.execution, len(lane), pa.int64()),
        "model_id": _model(keys.model, len(lane)),
        "moved_bytes": ids(_if(on_device & _transfers()[kind], keys.moved)),
        "attrs_json": attrs,
    }
    return pa.RecordBatch.from_pydict(columns)


def _transfers() -> npt.NDArray[np.bool_]:
    return np.array([kind in ("copy", "copy_in", "copy_out", "memory") for kind in KINDS])


def _if(mask: npt.NDArray[np.bool_], values: Ints) -> Ints:
    return np.where(mask, values, ABSENT)


def _places(category: Coded, name: Coded) -> tuple[Codes, Codes]:
    """Lane and kind of every row, as indices into ``LANES`` and ``KINDS``."""
    found = [CATEGORIES.get(c or "", OTHER) for c in category.values]
    lane = np.array([LANES.index(p[0]) for p in found], np.int32)[category.codes]
    kind = np.array([KINDS.index(p[1]) for p in found], np.int32)[category.codes]
    for code, value in enumerate(category.values):
        if value not in NAMED:
            continue
        rows = np.flatnonzero(category.codes == code)
        names, inverse = np.unique(name.codes[rows], return_inverse=True)
        kinds = [KINDS.index(place(value, name.values[n] or "")[1]) for n in names]
        kind[rows] = np.array(kinds, np.int32)[inverse]
    return lane, kind


def dictionary(codes: Codes, values: Sequence[str | None]) -> pa.DictionaryArray:
    """A dictionary array; a None among the values becomes null rows."""
    if None in values:
        mask = codes == list(values).index(None)
        indices = pa.array(codes, pa.int32(), mask=mask)
        values = [v or "" for v in values]
    else:
        indices = pa.array(codes, pa.int32())
    return pa.DictionaryArray.from_arrays(indices, pa.array(values, pa.large_string()))


def ids(values: Ints) -> pa.Array:
    missing = values == ABSENT
    return pa.array(values, mask=missing) if missing.any() else pa.array(values)


def small(values: Ints) -> pa.Array:
    missing = (values < -(2**31)) | (values >= 2**31)
    return pa.array(np.where(missing, 0, values).astype(np.int32), mask=missing)


def _or_null(values: list[int | None] | None, count: int, dtype: pa.DataType) -> pa.Array:
    if values is None:
        return pa.nulls(count, dtype)
    try:
        return pa.array(values, dtype)
    except (OverflowError, pa.ArrowInvalid) as error:
        raise NotStrict("an id that does not fit") from error


def _model(values: list[str | None] | None, count: int) -> pa.DictionaryArray:
    if values is None:
        return pa.DictionaryArray.from_arrays(pa.nulls(count, pa.int32()), pa.array([], pa.large_string()))
    text = coded(values)
    return dictionary(text.codes, text.values)


def text_array(texts: Text, *, strict: bool) -> pa.Array:
    """JSON texts as a column; empty ones are null.

    Raises:
        NotStrict: if ``strict`` and one is invalid UTF-8 or not an object.
    """
    count = len(texts)
    data = b"".join(texts)
    lengths = np.fromiter(map(len, texts), np.int64, count)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    filled = lengths > 0
    if strict:
        _check_objects(data, offsets[:-1][filled])
    validity = None if filled.all() else pa.py_buffer(np.packbits(filled, bitorder="little").tobytes())
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.LargeStringArray.from_buffers(count, buffers[1], buffers[2], buffers[0])


def _check_objects(data: bytes, starts: Ints) -> None:
    if len(starts) and not (np.frombuffer(data, np.uint8)[starts] == ord("{")).all():
        raise NotStrict("args is not an object")
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise NotStrict("invalid UTF-8") from error


def nanoseconds(texts: Text, *, strict: bool) -> Ints:
    """Decimal microseconds in text as integer nanoseconds, exact; more than three decimals round half to even.

    Raises:
        NotStrict: if one is beyond ``LIMIT_NS``, or (if ``strict``) is not a number.
    """
    if not len(texts):
        return np.empty(0, np.int64)
    try:
        found = _nanoseconds(b"\n".join(texts), len(texts))
    except pa.ArrowInvalid as error:
        if strict:
            raise NotStrict("a time is not a number") from error
        found = np.array([_exact(bytes(t)) for t in texts], np.int64)
    if max(found.max(), -found.min()) > LIMIT_NS:
        raise NotStrict("a time is out of range")
    return found


def _nanoseconds(joined: bytes, count: int) -> Ints:
    """Parse newline-separated decimals: all with three decimals, all whole, or (slower) mixed."""
    data = np.frombuffer(joined, np.uint8)
    ends = np.append(np.flatnonzero(data == ord("\n")), len(data))
    dots = joined.count(b".")
    if dots == count and len(ends) == count and ends[0] >= 4 and (data[ends - 4] == ord(".")).all():
        return _integers(joined.replace(b".", b""), 1)
    if dots == 0:
        return _integers(joined, 1000)
    text = _strings(joined)
    try:
        fine = text.cast(pa.decimal128(38, 3))
    except pa.ArrowInvalid:
        fine = pc.round(text.cast(pa.decimal128(38, 20)), 3, "half_to_even").cast(pa.decimal128(38, 3))
    words = np.frombuffer(fine.buffers()[1], np.int64)
    low, high = words[::2], words[1::2]
    if (high != low >> 63).any():
        raise pa.ArrowInvalid("a time is out of range")
    return low


def _strings(joined: bytes) -> pa.Array:
    """Newline-separated text as an Arrow column."""
    return pa.array(joined.decode().split("\n"), pa.string())


def _integers(joined: bytes, scale: int) -> Ints:
    found: Ints = _strings(joined).cast(pa.int64()).to_numpy()
    if max(found.max(), -found.min()) > LIMIT_NS // scale:
        raise pa.ArrowInvalid("a time is out of range")
    return found * scale


def _exact(text: bytes) -> int:
    return int((Decimal(text.decode()) * 1000).to_integral_value(ROUND_HALF_EVEN))
