"""What becomes of an event by its phase (``ph``): a row, a flow, samples, a fact of a thread, half of a pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec.structs import astuple

from tracekit.sources._chrome_args import NotStrict
from tracekit.sources._chrome_events import ABSENT, Event, Report, whole_number
from tracekit.sources._chrome_rows import (
    LIMIT_NS,
    PHASES,
    Coded,
    EventColumns,
    Ints,
    coded,
    dictionary,
    event_batch,
    ids,
    nanoseconds,
    small,
)

FLOW_PHASES = ("start", "step", "end")
MARKS = frozenset("BEbneSTpF")
"""Phases that are halves of an event, or points of an asynchronous one."""
_LIMIT_US = LIMIT_NS // 1000


class Mark(NamedTuple):
    """Half of an event (``B``, ``E``, ``b``, ``e`` …) on its way to be paired."""

    event_id: int
    phase: str
    name: str
    category: str | None
    pid: int
    tid: int
    at_ns: int
    key: str
    """Id of an asynchronous event, as JSON."""
    args: str


class ThreadFact(NamedTuple):
    """A metadata event."""

    pid: int
    tid: int
    name: str
    value: str | int


@dataclass
class Result:
    """What one piece of the file holds."""

    start: int
    state: str = "whole"
    """As in ``Walk.state``."""
    stop: int = 0
    """Byte offset in the file that belongs to ``state``."""
    event_count: int = 0
    events: pa.RecordBatch | None = None
    flows: pa.RecordBatch | None = None
    samples: pa.RecordBatch | None = None
    marks: list[Mark] = field(default_factory=list)
    threads: list[ThreadFact] = field(default_factory=list)
    counts: list[tuple[str, str | None, int]] = field(default_factory=list)
    report: Report = field(default_factory=Report)


class Columns(dict[str, Sequence[object]]):
    """Events as one sequence per field of ``Event``, plus ``event_id``."""

    @classmethod
    def of(cls, events: Sequence[Event], first_id: int) -> Columns:
        """Columns of events whose ids count up from ``first_id``."""
        columns = cls(zip(Event.__struct_fields__, zip(*map(astuple, events), strict=True), strict=True))
        columns["event_id"] = range(first_id, first_id + len(events))
        return columns

    def where(self, mask: npt.NDArray[np.bool_]) -> Columns:
        """The events where the mask is set."""
        if mask.all():
            return self
        chosen = mask.tolist()
        return Columns({name: list(compress(values, chosen)) for name, values in self.items()})

    def integers(self, name: str) -> Ints:
        """A field as an array."""
        return np.fromiter(self[name], np.int64, len(self[name]))


@dataclass(frozen=True)
class Setting:
    """What the routes need to know of the piece."""

    base_ns: int
    strict: bool
    position: int
    """Byte offset of the piece."""


def sort_events(result: Result, events: Sequence[Event], positions: Sequence[int] | None, base_ns: int) -> None:
    """Sort events into ``result`` by phase.

    Args:
        result: takes rows, flows, samples, facts, marks and counts.
        events: every event of the piece, in file order.
        positions: byte offset of each, on the tolerant path; None on the strict one.
        base_ns: added to every time.

    Raises:
        NotStrict: only on the strict path: some event needs the tolerant one.
    """
    result.event_count = len(events)
    if not events:
        return
    columns = Columns.of(events, result.start)
    letters = coded(columns["ph"])  # type: ignore[arg-type]
    _count(result, letters, coded(columns["cat"]))  # type: ignore[arg-type]
    setting = Setting(base_ns, positions is None, result.start)
    if positions is not None:
        timed = _timed(events, positions, result.report)
        columns, letters = Columns.of(events, result.start).where(timed), Coded(letters.values, letters.codes[timed])
    routes = coded([ROUTES.get(str(letter), "other") for letter in letters.values])
    of_event = routes.codes[letters.codes]
    for code, name in enumerate(routes.values):
        mask = of_event == code
        if mask.any():
            _ROUTES[str(name)](result, columns.where(mask), setting)


def _count(result: Result, letters: Coded, categories: Coded) -> None:
    width = len(categories.values)
    counts = np.bincount(letters.codes.astype(np.int64) * width + categories.codes)
    for code in np.flatnonzero(counts).tolist():
        letter = str(letters.values[code // width])
        result.counts.append((letter, categories.values[code % width], int(counts[code])))


def _timed(events: Sequence[Event], positions: Sequence[int], report: Report) -> npt.NDArray[np.bool_]:
    """Which events have the times that their phase needs; missing durations become zero."""
    kept = np.ones(len(events), np.bool_)
    for row, (event, position) in enumerate(zip(events, positions, strict=True)):
        if event.ph == "M":
            continue
        if not event.ts:
            report.add("missing_time", position, "no usable `ts`")
            kept[row] = False
        elif _too_large(event.ts):
            report.add("time_out_of_range", position, "`ts` is not a time between 1970 and 2096")
            kept[row] = False
        elif event.ph == "X" and (not event.dur or _too_large(event.dur)):
            report.add("missing_duration", position, "no usable `dur`; taken as 0")
            event.dur = msgspec.Raw(b"0")
    return kept


def _too_large(text: msgspec.Raw) -> bool:
    return len(text) > 15 and abs(int(bytes(text).partition(b".")[0])) >= _LIMIT_US


def _rows(result: Result, columns: Columns, setting: Setting) -> None:
    """Complete and instant events become rows; instants named ``[memory]`` become samples as well."""
    if setting.strict and any(columns["id"]):
        raise NotStrict("an id that belongs to the attributes")
    instant = np.fromiter(map("X".__ne__, columns["ph"]), np.bool_, len(columns["ph"]))
    start = nanoseconds(columns["ts"], strict=setting.strict)  # type: ignore[arg-type]
    duration = np.zeros(len(start), np.int64)
    spans = columns.where(~instant)["dur"] if not instant.all() else []
    duration[~instant] = nanoseconds(spans, strict=setting.strict)  # type: ignore[arg-type]
    if (duration < 0).any():
        count = int((duration < 0).sum())
        reason = "`dur` is negative; the event ends where it starts"
        result.report.add("negative_duration", setting.position, reason, count)
        duration = np.maximum(duration, 0)
    start += setting.base_ns
    rows = EventColumns(
        columns.integers("event_id"),
        instant.astype(np.int32),
        columns["name"],  # type: ignore[arg-type]
        columns["cat"],  # type: ignore[arg-type]
        columns.integers("pid"),
        columns.integers("tid"),
        start,
        start + duration,
        columns["args"],  # type: ignore[arg-type]
    )
    result.events = event_batch(rows, result.report, strict=setting.strict)
    if instant.any():
        memory = instant & np.fromiter(map("[memory]".__eq__, columns["name"]), np.bool_, len(start))
        if memory.any():
            _add_samples(result, _memory_samples(columns.where(memory), start[memory]))


def _flows(result: Result, columns: Columns, setting: Setting) -> None:
    """``s``, ``t`` and ``f`` become rows of ``tables.FLOWS``."""
    named = np.fromiter(map(bool, columns["id"]), np.bool_, len(columns["id"]))
    if not named.all():
        missing = len(named) - int(named.sum())
        result.report.add("flow_without_id", setting.position, "a flow event without `id`", missing)
        columns = columns.where(named)
        if not named.any():
            return
    phase = np.fromiter(map("stf".index, columns["ph"]), np.int32, len(columns["ph"]))  # type: ignore[arg-type]
    name, category, bind = (coded(columns[n]) for n in ("name", "cat", "bp"))  # type: ignore[arg-type]
    binds = [None if v is None else v == "e" for v in bind.values]
    result.flows = pa.RecordBatch.from_pydict(
        {
            "flow_id": pa.array(_plain(columns["id"]), pa.large_string()),  # type: ignore[arg-type]
            "category": dictionary(category.codes, category.values),
            "name": dictionary(name.codes, name.values),
            "phase": dictionary(phase, FLOW_PHASES),
            "process_id": ids(columns.integers("pid")),
            "thread_id": ids(columns.integers("tid")),
            "at_ns": nanoseconds(columns["ts"], strict=setting.strict) + setting.base_ns,  # type: ignore[arg-type]
            "binds_enclosing": pa.array(binds, pa.bool_()).take(pa.array(bind.codes)),
        }
    )


def _plain(texts: Sequence[bytes]) -> list[str]:
    """JSON scalars as text: strings lose their quotes."""
    joined = b"\n".join(texts)
    if b"\\" in joined or not joined.isascii():
        return [str(msgspec.json.decode(t)) if bytes(t)[:1] == b'"' else bytes(t).decode() for t in texts]
    return joined.replace(b'"', b"").decode().split("\n")


class _Memory(msgspec.Struct, gc=False):
    allocated: float | None = msgspec.field(name="Total Allocated", default=None)
    reserved: float | None = msgspec.field(name="Total Reserved", default=None)
    device: int | None = msgspec.field(name="Device Id", default=None)
    device_type: int | None = msgspec.field(name="Device Type", default=None)


_memory = msgspec.json.Decoder(_Memory, strict=False)
Sample = tuple[str, int, int, int, float, str | None, str | None]
"""Counter, core, pid, time in ns, value, unit, attributes."""


def _memory_samples(columns: Columns, at_ns: Ints) -> list[Sample]:
    """Allocator totals of PyTorch's ``[memory]`` instants; a device type of 0 is the CPU."""
    samples: list[Sample] = []
    for args, pid, at in zip(columns["args"], columns["pid"], at_ns.tolist(), strict=True):
        try:
            found = _memory.decode(args)  # type: ignore[arg-type]
        except (msgspec.DecodeError, TypeError):
            continue
        core = found.device if found.device_type and found.device is not None else ABSENT
        for series, value in (("Total Allocated", found.allocated), ("Total Reserved", found.reserved)):
            if value is not None:
                samples.append((f"[memory]/{series}", core, int(str(pid)), at, value, "B", None))
    return samples


def _counters(result: Result, columns: Columns, setting: Setting) -> None:
    """``C`` becomes one sample per numeric series; an ``id`` makes counters of one name distinct."""
    at_ns = nanoseconds(columns["ts"], strict=setting.strict) + setting.base_ns  # type: ignore[arg-type]
    samples: list[Sample] = []
    rows = zip(*(columns[n] for n in ("name", "id", "pid", "args")), at_ns.tolist(), strict=True)
    for name, identity, pid, args, at in rows:
        counter = f"{name}[{_plain([identity])[0]}]" if identity else str(name)
        series, rest = _series(bytes(args))
        if not series:
            result.report.add("counter_without_value", setting.position, "a counter without a number in `args`")
        samples += [(f"{counter}/{key}", ABSENT, pid, at, value, None, rest) for key, value in series.items()]
    _add_samples(result, samples)


def _series(args: bytes) -> tuple[dict[str, float], str | None]:
    """Numbers of a counter by series, and all its ``args`` if there is more in them than numbers."""
    try:
        values = msgspec.json.decode(args) if args else {}
    except msgspec.DecodeError:
        return {}, None
    if not isinstance(values, Mapping):
        return {}, None
    series: dict[str, float] = {}
    for key, value in values.items():
        try:
            series[str(key)] = float(value)
        except (TypeError, ValueError, OverflowError):
            continue
    return series, args.decode() if len(series) < len(values) else None


def _add_samples(result: Result, samples: list[Sample]) -> None:
    if not samples:
        return
    counter, core, pid, at, value, unit, attrs = zip(*samples, strict=True)
    batch = pa.RecordBatch.from_pydict(
        {
            "counter": pa.array(counter, pa.large_string()),
            "core_index": small(np.array(core, np.int64)),
            "process_id": ids(np.array(pid, np.int64)),
            "at_ns": pa.array(at, pa.int64()),
            "value": pa.array(value, pa.float64()),
            "unit": pa.array(unit, pa.large_string()),
            "attrs_json": pa.array(attrs, pa.large_string()),
        }
    )
    if result.samples is not None:
        batch = pa.concat_batches([result.samples, batch])
    result.samples = batch


class _Meta(msgspec.Struct, gc=False):
    name: str | None = None
    labels: str | None = None
    sort_index: int | None = None


_meta = msgspec.json.Decoder(_Meta, strict=False)
_META = {
    "process_name": "name",
    "process_labels": "labels",
    "thread_name": "name",
    "process_sort_index": "sort_index",
    "thread_sort_index": "sort_index",
}


def _metadata(result: Result, columns: Columns, setting: Setting) -> None:
    """``M`` becomes facts of a process or thread."""
    for name, pid, tid, args in zip(*(columns[n] for n in ("name", "pid", "tid", "args")), strict=True):
        if name not in _META:
            result.report.add("metadata_ignored", setting.position, f"metadata event `{name}` has no place")
            continue
        try:
            value = getattr(_meta.decode(args or b"{}"), _META[str(name)])
        except (msgspec.DecodeError, TypeError):
            value = None
        if value is None:
            result.report.add("metadata_ignored", setting.position, f"metadata event `{name}` without its value")
            continue
        result.threads.append(ThreadFact(int(str(pid)), int(str(tid)), str(name), value))


def _marks(result: Result, columns: Columns, setting: Setting) -> None:
    """Halves of events wait for their other half, which may be in another piece."""
    at_ns = nanoseconds(columns["ts"], strict=setting.strict) + setting.base_ns  # type: ignore[arg-type]
    known = (columns[n] for n in ("event_id", "ph", "name", "cat", "pid", "tid"))
    texts = (list(map(_utf8, columns[n])) for n in ("id", "args"))  # type: ignore[arg-type]
    result.marks += map(Mark._make, zip(*known, at_ns.tolist(), *texts, strict=True))


def _utf8(text: bytes) -> str:
    try:
        return bytes(text).decode()
    except UnicodeDecodeError as error:
        raise NotStrict("invalid UTF-8") from error


def _other(result: Result, columns: Columns, setting: Setting) -> None:
    """Object, sample, memory-dump and clock phases have no table; they are counted and noted."""
    letters = coded(columns["ph"])  # type: ignore[arg-type]
    for code, letter in enumerate(letters.values):
        reason = f"phase `{letter}` has no place in the tables"
        result.report.add("unsupported_phase", setting.position, reason, int((letters.codes == code).sum()))


_ROUTES: Mapping[str, Callable[[Result, Columns, Setting], None]] = {
    "row": _rows,
    "flow": _flows,
    "counter": _counters,
    "metadata": _metadata,
    "mark": _marks,
    "other": _other,
}
ROUTES: Mapping[str, str] = {
    **dict.fromkeys("XiI", "row"),
    **dict.fromkeys("stf", "flow"),
    **dict.fromkeys(MARKS, "mark"),
    "C": "counter",
    "M": "metadata",
}
"""Phase → route; anything else goes to ``other``."""

__all__ = ["PHASES", "Columns", "Mark", "Result", "ThreadFact", "sort_events", "whole_number"]
