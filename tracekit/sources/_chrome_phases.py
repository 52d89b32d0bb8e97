"""What becomes of an event by its phase (``ph``): a row, a flow, samples, a fact of a thread, half of a pair."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import compress
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import astuple

from tracekit.sources._chrome_columns import (
    LIMIT_NS,
    Coded,
    Ints,
    Mask,
    Text,
    coded,
    coded_letters,
    dictionary,
    ids,
    joined,
    nanoseconds,
)
from tracekit.sources._chrome_events import ABSENT, NOTHING, Event, NotStrict, Report
from tracekit.sources._chrome_exported import sample_facts
from tracekit.sources._chrome_result import Mark, Result, ThreadFact
from tracekit.sources._chrome_rows import EventColumns, event_batch, merged
from tracekit.sources._chrome_samples import Sample, memory_samples, sample_batch, series_of

Positions: TypeAlias = Callable[[], Sequence[int]]
FLOW_PHASES = ("start", "step", "end")
MARKS = frozenset("BEbneSTpF")
"""Phases that are halves of an event, or points of an asynchronous one."""
_LIMIT_US = LIMIT_NS // 1000


class Columns:
    """Events as one array or sequence per field of ``Event``."""

    def __init__(self, events: Sequence[Event], event_id: Ints, positions: Positions) -> None:
        ph, name, cat, pid, tid, self._ts, self._dur, self._args, self._id, bp, _ = zip(
            *map(astuple, events), strict=True
        )
        count = len(events)
        self._chosen: list[bool] | None = None
        self._positions = positions
        self.event_id = event_id
        self.phase, self.name, self.category = coded_letters(ph), coded(name), coded(cat)
        try:
            self.pid: Ints = np.fromiter(pid, np.int64, count)
            self.tid: Ints = np.fromiter(tid, np.int64, count)
        except OverflowError as error:
            raise NotStrict("a process or thread beyond 2^63") from error
        self._bp = bp

    def __len__(self) -> int:
        return len(self.event_id)

    def where(self, mask: Mask) -> Columns:
        """The events where the mask is set; may be asked of all events only, not of a choice."""
        if mask.all():
            return self
        chosen = copy(self)
        chosen._chosen = mask.tolist()
        chosen.event_id, chosen.pid, chosen.tid = self.event_id[mask], self.pid[mask], self.tid[mask]
        chosen.phase, chosen.name = self.phase.where(mask), self.name.where(mask)
        chosen.category = self.category.where(mask)
        return chosen

    def _of(self, values: Sequence[Any]) -> Sequence[Any]:
        return values if self._chosen is None else list(compress(values, self._chosen))

    def times(self) -> Text:
        """``ts`` as JSON text."""
        return self._of(self._ts)

    def durations(self) -> Text:
        """``dur`` as JSON text."""
        return self._of(self._dur)

    def args(self) -> Text:
        """``args`` as JSON text."""
        return self._of(self._args)

    def identities(self) -> Text:
        """``id`` as JSON text."""
        return self._of(self._id)

    def has_identities(self) -> bool:
        """Whether any ``id`` is there; the default is one object, which makes this cheap."""
        texts = self._of(self._id)
        return texts.count(NOTHING) < len(texts) and any(map(len, texts))

    def positions(self) -> Sequence[int]:
        """Byte offset of each in the file; they may have to be found first."""
        return self._of(self._positions())

    def bindings(self) -> Sequence[str | None]:
        """``bp``."""
        return self._of(self._bp)

    def names(self) -> list[str]:
        """``name``, decoded."""
        return [str(self.name.values[code]) for code in self.name.codes.tolist()]

    def categories(self) -> list[str | None]:
        """``cat``, decoded."""
        return [self.category.values[code] for code in self.category.codes.tolist()]

    def phases(self) -> list[str]:
        """``ph``, decoded."""
        return [str(self.phase.values[code]) for code in self.phase.codes.tolist()]

    def is_phase(self, letters: str) -> Mask:
        """Which events have one of these phases."""
        return np.array([str(value) in letters for value in self.phase.values])[self.phase.codes]


@dataclass(frozen=True)
class Setting:
    """What the routes need to know of the piece."""

    base_ns: int
    strict: bool


def sort_events(
    result: Result,
    events: Sequence[Event],
    positions: Positions,
    base_ns: int,
    event_id: Ints | None = None,
    *,
    strict: bool,
) -> None:
    """Sort events into ``result`` by phase.

    Args:
        result: takes rows, flows, samples, facts, marks and counts.
        events: every event of the piece, in file order.
        positions: gives the byte offset of each, when something is to be told of any.
        base_ns: added to every time.
        event_id: id of each; by default they count from the start of the piece.
        strict: whether anything unusual is for the tolerant path.

    Raises:
        NotStrict: only if ``strict``: some event needs the tolerant path.
    """
    result.event_count = len(events)
    if not events:
        return
    timed = None if strict else _timed(events, positions(), result.report)
    in_order = np.arange(result.start, result.start + len(events))
    columns = Columns(events, in_order if event_id is None else event_id, positions)
    _count(result, columns.phase, columns.category)
    setting = Setting(base_ns, strict)
    routes = coded([ROUTES.get(str(letter), "other") for letter in columns.phase.values])
    of_event = routes.codes[columns.phase.codes]
    for code, name in enumerate(routes.values):
        mask = of_event == code if timed is None else (of_event == code) & timed
        if mask.any():
            _ROUTES[str(name)](result, columns.where(mask), setting)


def _count(result: Result, letters: Coded, categories: Coded) -> None:
    width = len(categories.values)
    counts = np.bincount(letters.codes.astype(np.int64) * width + categories.codes)
    for code in np.flatnonzero(counts).tolist():
        letter = str(letters.values[code // width])
        result.counts.append((letter, categories.values[code % width], int(counts[code])))


def add_templated(result: Result, rows: EventColumns, base_ns: int) -> None:
    """Add complete events that were read by their template, in order of their ids.

    Raises:
        NotStrict: if a value needs the tolerant path.
    """
    result.event_count += len(rows.event_id)
    letters = Coded(["X"], np.zeros(len(rows.event_id), np.int32))
    _count(result, letters, rows.category)
    rows.start_ns, rows.end_ns = rows.start_ns + base_ns, rows.end_ns + base_ns
    result.events = merged([result.events, event_batch(rows, result.report, strict=True)])


def _timed(events: Sequence[Event], positions: Sequence[int], report: Report) -> Mask:
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
    if setting.strict and columns.has_identities():
        raise NotStrict("an id that belongs to the attributes")
    start = nanoseconds(columns.times(), strict=setting.strict)
    complete = columns.is_phase("X")
    spans = columns.durations() if complete.all() else list(compress(columns.durations(), complete.tolist()))
    duration = np.zeros(len(start), np.int64)
    duration[complete] = nanoseconds(spans, strict=setting.strict)
    if (duration < 0).any():
        backwards = list(compress(columns.positions(), (duration < 0).tolist()))
        result.report.add_each("negative_duration", backwards, "`dur` is negative; the event ends where it starts")
        duration = np.maximum(duration, 0)
    start = start + setting.base_ns
    rows = EventColumns(
        columns.event_id,
        (~complete).astype(np.int32),
        columns.name,
        columns.category,
        columns.pid,
        columns.tid,
        start,
        start + duration,
        joined(columns.args(), strict=setting.strict),
    )
    places = () if setting.strict else columns.positions()
    result.events = event_batch(rows, result.report, strict=setting.strict, positions=places)
    if not complete.all() and "[memory]" in columns.name.values:
        memory = ~complete & (columns.name.codes == columns.name.values.index("[memory]"))
        texts = rows.attrs.texts(np.flatnonzero(memory))
        _add_samples(result, memory_samples(texts, columns.pid[memory], start[memory]))


def _flows(result: Result, columns: Columns, setting: Setting) -> None:
    """``s``, ``t`` and ``f`` become rows of ``tables.FLOWS``."""
    identities = columns.identities()
    if not all(map(len, identities)):
        if setting.strict:
            raise NotStrict("a flow without id")
        missing = [place for place, text in zip(columns.positions(), identities, strict=True) if not len(text)]
        result.report.add_each("flow_without_id", missing, "a flow event without `id`")
    named = np.fromiter(map(len, identities), np.int64, len(identities)) > 0
    phases = np.array(["stf".find(str(letter)) for letter in columns.phase.values], np.int32)
    bind = coded(columns.bindings())
    binds = [None if value is None else value == "e" for value in bind.values]
    batch = pa.RecordBatch.from_pydict(
        {
            "flow_id": pa.array(_plain(identities), pa.large_string()),
            "category": dictionary(columns.category.codes, columns.category.values),
            "name": dictionary(columns.name.codes, columns.name.values),
            "phase": dictionary(phases[columns.phase.codes], FLOW_PHASES),
            "process_id": ids(columns.pid),
            "thread_id": ids(columns.tid),
            "at_ns": nanoseconds(columns.times(), strict=setting.strict) + setting.base_ns,
            "binds_enclosing": pa.array(binds, pa.bool_()).take(pa.array(bind.codes)),
        }
    )
    result.flows = batch if named.all() else batch.filter(pa.array(named))


def _plain(texts: Sequence[bytes]) -> list[str]:
    """JSON scalars as text: strings lose their quotes."""
    joined = b"\n".join(texts)
    if b"\\" in joined or not joined.isascii():
        return [str(msgspec.json.decode(t)) if bytes(t)[:1] == b'"' else bytes(t).decode() for t in texts]
    return joined.replace(b'"', b"").decode().split("\n")


def _add_samples(result: Result, samples: list[Sample]) -> None:
    if samples:
        batch = sample_batch(samples)
        result.samples = batch if result.samples is None else pa.concat_batches([result.samples, batch])


def _counters(result: Result, columns: Columns, setting: Setting) -> None:
    """``C`` becomes one sample per numeric series; an ``id`` makes counters of one name distinct."""
    at_ns = nanoseconds(columns.times(), strict=setting.strict) + setting.base_ns
    samples: list[Sample] = []
    without: list[int] = []
    named = zip(columns.names(), columns.categories(), columns.identities(), strict=True)
    rows = zip(named, columns.pid.tolist(), columns.args(), at_ns.tolist(), strict=True)
    for row, ((name, category, identity), pid, args, at) in enumerate(rows):
        series, rest = series_of(bytes(args))
        facts = sample_facts(category)
        if facts is not None and set(series) == {"value"}:
            samples.append((name, facts[0], pid, at, series["value"], facts[1], None))
            continue
        counter = f"{name}[{_plain([identity])[0]}]" if len(identity) else name
        if not series:
            without.append(row)
        samples += [(f"{counter}/{key}", ABSENT, pid, at, value, None, rest) for key, value in series.items()]
    _add_samples(result, samples)
    if without:
        places = columns.positions()
        reason = "a counter without a number in `args`"
        result.report.add_each("counter_without_value", [places[row] for row in without], reason)


class _Meta(msgspec.Struct, gc=False):
    name: str | None = None
    labels: str | None = None
    sort_index: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None


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
    rows = zip(columns.names(), columns.pid.tolist(), columns.tid.tolist(), columns.args(), strict=True)
    for row, (name, pid, tid, args) in enumerate(rows):
        if name not in _META:
            reason = f"metadata event `{name}` has no place"
            result.report.add("metadata_ignored", columns.positions()[row], reason)
            continue
        try:
            value = getattr(_meta.decode(args if len(args) else b"{}"), _META[name])
        except (msgspec.DecodeError, TypeError):
            value = None
        if value is None:
            reason = f"metadata event `{name}` without its value"
            result.report.add("metadata_ignored", columns.positions()[row], reason)
            continue
        result.threads.append(ThreadFact(pid, tid, name, value))


def _marks(result: Result, columns: Columns, setting: Setting) -> None:
    """Halves of events wait for their other half, which may be in another piece."""
    at_ns = nanoseconds(columns.times(), strict=setting.strict) + setting.base_ns
    rows = zip(
        columns.event_id.tolist(),
        columns.phases(),
        columns.names(),
        columns.categories(),
        columns.pid.tolist(),
        columns.tid.tolist(),
        at_ns.tolist(),
        map(_utf8, columns.identities()),
        map(_utf8, columns.args()),
        columns.positions(),
        strict=True,
    )
    result.marks += map(Mark._make, rows)


def _utf8(text: bytes) -> str:
    try:
        return bytes(text).decode()
    except UnicodeDecodeError as error:
        raise NotStrict("invalid UTF-8") from error


def _other(result: Result, columns: Columns, setting: Setting) -> None:
    """Object, sample, memory-dump and clock phases have no table; they are counted and noted."""
    places: dict[str, list[int]] = defaultdict(list)
    for letter, position in zip(columns.phases(), columns.positions(), strict=True):
        places[letter].append(position)
    for letter, positions in places.items():
        result.report.add_each("unsupported_phase", positions, f"phase `{letter}` has no place in the tables")


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
