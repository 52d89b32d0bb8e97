"""The Neuron runtime's own ``ntrace.pb``, decoded from the wire (grade R).

The layout is taken from a public third-party description and was never checked against a real file, so every
assumption is tested on the file first: which root field holds the events, that event types are known, that
times are plausible, that phases are valid and paired. A majority decides. If the file does not fit, nothing of
it is used, and a note names the vendor's command that exports the same data.

``ntrace_event``: 1 timestamp · 2 data · 3 nd_idx · 4 nc_idx · 5 event_type · 6 hint · 7 duration · 8 thread_id ·
9 id · 10 parent_id · 11 status · 12 attributes map<string,string> · 13 phase · 14 tracking_id · 15 or 16 nrta_seq_id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tracekit.errors import SourceError
from tracekit.sources._neuron_events import EVENT_TYPES, HARDWARE_NAMES, NRTA_SCHEDULE, SYNC_POINT, Attributes
from tracekit.sources._neuron_rows import no_collection
from tracekit.sources._neuron_spans import PHASES, Clock, Mark, Spans
from tracekit.sources._protobuf import Bytes, Mask, Messages, Pieces, Positions, Root, decode
from tracekit.sources.base import Artifact, Sink, Source

BATCH_EVENTS = 1 << 15
TIMESTAMP, TYPE, CORE, THREAD, PHASE, TRACKING, ATTRIBUTES, HINT = 1, 5, 4, 8, 13, 14, 12, 6
_SEQUENCES = (15, 16)
_OTHERS = {2: "data", 3: "nd_idx", 7: "duration", 9: "id", 10: "parent_id", 11: "status"}
_NAMED_NUMBERS = _OTHERS | {THREAD: "thread_id", **dict.fromkeys(_SEQUENCES, "nrta_seq_id")}
_NUMBERS = {TIMESTAMP, TYPE, CORE, THREAD, PHASE, TRACKING, *_SEQUENCES, *_OTHERS}
_CHECKED = {TIMESTAMP, TYPE, CORE, PHASE, TRACKING}
_TEXTS = {ATTRIBUTES, HINT}

_SAMPLE = 2048
_PAIRING_SAMPLE = 1 << 20
_MOST, _MAJORITY = 0.9, 0.5
_EARLIEST_NS, _LATEST_NS = 1_420_070_400_000_000_000, 4_102_444_800_000_000_000
"""2015 and 2100: host times outside are not Unix ns."""
_SYNC_TYPE = EVENT_TYPES.index(SYNC_POINT)
_IS_HARDWARE = np.array([name in HARDWARE_NAMES for name in EVENT_TYPES])
_ASYNCHRONOUS = {"runtime_execute": NRTA_SCHEDULE}
_COMMAND = "neuron-explorer view -d <dir> --ingest-only --data-path <out>"


def read(artifact: Artifact, sink: Sink) -> None:
    """Give the events of one ``ntrace.pb`` to the sink, or a note if it is not laid out as described.

    Raises:
        SourceError: if the file is empty.
    """
    size = artifact.path.stat().st_size
    if size == 0:
        raise SourceError(artifact.path, "system trace is 0 bytes", hint="stop the profiler before the process ends")
    file = _File(np.asarray(np.memmap(artifact.path, dtype=np.uint8, mode="r")))
    problem = file.understand()
    if problem:
        message = f"not laid out as tracekit expects ({problem}); nothing of it is used"
        sink.note("warning", "ntrace_not_understood", message, hint=f"export the same data with: {_COMMAND}")
        sink.progress(size)
        return
    with no_collection():
        _give(file, Spans(artifact, sink, file.clock, _ASYNCHRONOUS), sink)
    file.note(sink)


SOURCE = Source(name="ntrace", doc="Neuron runtime system trace (protobuf)", grade="R", rank=40, read=read)


def _give(file: _File, spans: Spans, sink: Sink) -> None:
    """The second pass: every event to the sink."""
    done = 0
    for messages, _, end in file.batches(_NUMBERS, _TEXTS):
        for mark in file.marks(messages):
            spans.add(mark)
        if len(end):
            sink.progress(int(end[-1]) - done)
            done = int(end[-1])
    sink.progress(len(file.data) - done)
    spans.finish()


@dataclass
class _Evidence:
    """What the first pass over all events found."""

    events: int = 0
    valid: int = 0
    known_types: int = 0
    phased: int = 0
    software: int = 0
    plausible: int = 0
    explicit_zero_core: bool = False
    """Whether the writer spells a core number of 0, so that a missing one means none."""
    covered_bytes: int = 0
    starts: list[Positions] = field(default_factory=list)
    stops: list[Positions] = field(default_factory=list)

    def problem(self, size: int) -> str | None:
        """Why the file is not understood, or None."""
        paired, pairable = self._pairing()
        checks = (
            (self.valid, self.events, _MOST, "events decode"),
            (self.known_types, self.valid, _MOST, "events have a known type"),
            (self.phased, self.valid, _MOST, "events have a valid phase"),
            (self.plausible, self.software, _MOST, "host times lie between 2015 and 2100"),
            (paired, pairable, _MAJORITY, "starts and stops are paired"),
            (self.covered_bytes, size, _MAJORITY, "bytes belong to events"),
        )
        if not self.valid:
            return "no events"
        failed = [f"only {good} of {total} {what}" for good, total, share, what in checks if good < share * total]
        return "; ".join(failed) or None

    def _pairing(self) -> tuple[int, int]:
        """Starts and stops that have their counterpart, and all of them, in the first events."""
        none = np.zeros(0, dtype=np.int64)
        starts, stops = np.concatenate([none, *self.starts]), np.concatenate([none, *self.stops])
        paired = int(np.isin(starts, stops).sum() + np.isin(stops, starts).sum())
        return paired, len(starts) + len(stops)


class _File:
    """The bytes of a trace, read in several passes that keep one batch of events at a time."""

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self.clock = Clock()
        self._root = Root(data)
        self._field = 0
        self._evidence = _Evidence()
        self._interned = 0
        self._bad = 0

    def understand(self) -> str | None:
        """Find the events and test the assumptions about them; the reason if they do not hold."""
        best = self._find_events()
        if best is None:
            return "no repeated field reads as events"
        self._field = best
        for messages, start, end in self.batches(_CHECKED, {ATTRIBUTES}):
            self._collect(messages, start, end)
        self.clock.close()
        return self._evidence.problem(len(self.data))

    def _find_events(self) -> int | None:
        """The root field whose payloads most often read as events, on a sample of each field."""
        samples: dict[int, list[tuple[int, int]]] = {}
        counts: dict[int, int] = {}
        for number, start, end in self._root:
            counts[number] = counts.get(number, 0) + 1
            if counts[number] <= _SAMPLE:
                samples.setdefault(number, []).append((start, end))
        scores = {}
        for number, spans in samples.items():
            start, end = np.array(spans, dtype=np.int64).T
            messages = decode(self.data, start, end, numbers=_CHECKED, texts=_TEXTS)
            share = float(_looks_like_event(messages).mean())
            scores[number] = share * counts[number]
        self._interned = sum(counts.values())
        best = max(scores, key=lambda number: (scores[number], -number), default=None)
        if best is None or scores[best] < _MAJORITY * counts[best]:
            return None
        self._interned -= counts[best]
        return best

    def batches(self, numbers: set[int], texts: set[int]) -> Iterator[tuple[Messages, Positions, Positions]]:
        """The events in file order, decoded batch by batch, with where each stands."""
        spans: list[tuple[int, int]] = []
        for number, start, end in self._root:
            if number != self._field:
                continue
            spans.append((start, end))
            if len(spans) == BATCH_EVENTS:
                yield self._decoded(spans, numbers, texts)
                spans = []
        if spans:
            yield self._decoded(spans, numbers, texts)

    def _decoded(
        self, spans: list[tuple[int, int]], numbers: set[int], texts: set[int]
    ) -> tuple[Messages, Positions, Positions]:
        start, end = np.ascontiguousarray(np.array(spans, dtype=np.int64).T)
        return decode(self.data, start, end, numbers=numbers, texts=texts), start, end

    def _collect(self, messages: Messages, start: Positions, end: Positions) -> None:
        """Add a batch to the evidence, and its sync points to the clock."""
        evidence, valid = self._evidence, messages.valid
        kind, phase, at = (messages.numbers[n][valid] for n in (TYPE, PHASE, TIMESTAMP))
        known = kind < len(EVENT_TYPES)
        software = known & ~_IS_HARDWARE[np.where(known, kind, 0).astype(np.int64)]
        evidence.events += len(valid)
        evidence.valid += int(valid.sum())
        evidence.known_types += int(known.sum())
        evidence.phased += int(((phase > 0) & (phase < len(PHASES))).sum())
        evidence.software += int(software.sum())
        evidence.plausible += int((software & _plausible(at)).sum())
        evidence.covered_bytes += int((end - start)[valid].sum() + 2 * valid.sum())
        core = messages.numbers[CORE]
        evidence.explicit_zero_core |= bool((messages.present[CORE] & (core == 0) & valid).any())
        if evidence.events <= _PAIRING_SAMPLE:
            key = (messages.numbers[TRACKING] * np.uint64(8191) + core)[valid].astype(np.int64)
            evidence.starts.append(key[phase == 1])
            evidence.stops.append(key[phase == 2])
        sync = valid & (messages.numbers[TYPE] == _SYNC_TYPE)
        for mark in self.marks(messages, only=sync):
            self.clock.add(mark)

    def marks(self, messages: Messages, *, only: Mask | None = None) -> Iterator[Mark]:
        """Valid events as marks in file order; counts those that make no sense."""
        numbers = messages.numbers
        kinds, at = numbers[TYPE], numbers[TIMESTAMP]
        known = kinds < len(EVENT_TYPES)
        hardware = _IS_HARDWARE[np.where(known, kinds, 0).astype(np.int64)] & known
        usable = messages.valid & (_plausible(at) | hardware) & (at < 2**63)
        rows = np.flatnonzero(usable if only is None else usable & only)
        if only is None:
            self._bad += int((~usable).sum())
        attributes = self._attributes(messages, rows)
        columns = (numbers[n][rows].tolist() for n in (TYPE, PHASE, CORE, TRACKING, TIMESTAMP))
        has_core = (messages.present[CORE][rows] | (not self._evidence.explicit_zero_core)).tolist()
        for kind, phase, core, tracking, at_ns, cored, attrs in zip(*columns, has_core, attributes, strict=True):
            name = EVENT_TYPES[kind] if kind < len(EVENT_TYPES) else f"event_type_{kind}"
            spelled = PHASES[phase] if phase < len(PHASES) else PHASES[0]
            yield Mark(name, spelled, core if cored else None, tracking or None, at_ns, attrs)

    def _attributes(self, messages: Messages, rows: Positions) -> list[Attributes]:
        """Attributes of the events ``rows``: the map, and the fields without a column of their own."""
        made: list[Attributes] = [{} for _ in range(len(rows))]
        for number, name in _NAMED_NUMBERS.items():
            column = messages.numbers.get(number)
            if column is None:
                continue
            values = column[rows]
            given = np.flatnonzero(values)
            for own, value in zip(given.tolist(), values[given].tolist(), strict=True):
                made[own][name] = value
        place = np.full(len(messages.valid), -1, dtype=np.int64)
        place[rows] = np.arange(len(rows))
        if HINT in messages.pieces:
            hints = _placed(messages.pieces[HINT], place)
            for own, text in zip(hints.owner.tolist(), self._texts(hints), strict=True):
                made[own]["hint"] = text or None
        self._add_map(_placed(messages.pieces[ATTRIBUTES], place), made)
        return made

    def _add_map(self, entries: Pieces, made: list[Attributes]) -> None:
        """Decode the entries of map<string,string> and add them to their events."""
        if not entries.owner.size:
            return
        decoded = decode(self.data, entries.start, entries.end, numbers=set(), texts={1, 2})
        keys, values = decoded.pieces[1], decoded.pieces[2]
        owners = entries.owner.tolist()
        names = dict(zip(keys.owner.tolist(), self._texts(keys), strict=True))
        for entry, text in zip(values.owner.tolist(), self._texts(values), strict=True):
            if entry in names:
                made[owners[entry]][names[entry]] = text

    def _texts(self, pieces: Pieces) -> list[str]:
        """The text of each piece."""
        if not pieces.owner.size:
            return []
        first = int(pieces.start.min())
        near = self.data[first : int(pieces.end.max())].tobytes()
        spans = zip((pieces.start - first).tolist(), (pieces.end - first).tolist(), strict=True)
        return [near[start:end].decode("utf-8", "replace") for start, end in spans]

    def note(self, sink: Sink) -> None:
        """Say how sure this is, and what was left out."""
        message = (
            "the layout of ntrace.pb is a hypothesis (grade R) that this file fits: "
            f"{self._evidence.valid} of {self._evidence.events} events in root field {self._field}, known types, "
            "plausible times, paired phases"
        )
        sink.note("info", "ntrace_grade_r", message, hint=f"for the supported export: {_COMMAND}")
        if self._interned:
            message = f"{self._interned} root fields that are no events (such as interned strings) are not used"
            sink.note("info", "ntrace_other_fields", message, event_count=self._interned)
        if self._bad:
            message = f"{self._bad} events do not decode or lie outside 2015 to 2100 and are skipped"
            sink.note("warning", "bad_events", message, event_count=self._bad)
        if self._root.stopped_at is not None:
            message = f"the file breaks off or is damaged at byte {self._root.stopped_at}; what came before is kept"
            sink.note("warning", "cut_file", message)


def _placed(pieces: Pieces, place: Positions) -> Pieces:
    """The pieces of the messages that have a place, with the place as their owner."""
    owner = place[pieces.owner]
    kept = owner >= 0
    return Pieces(owner[kept], pieces.start[kept], pieces.end[kept])


def _plausible(at: npt.NDArray[np.uint64]) -> Mask:
    return (at >= _EARLIEST_NS) & (at < _LATEST_NS)


def _looks_like_event(messages: Messages) -> Mask:
    """Decodes whole, has a time, a known type and a phase."""
    numbers = messages.numbers
    phase = numbers[PHASE]
    has_time = numbers[TIMESTAMP] > 0
    return messages.valid & has_time & (numbers[TYPE] < len(EVENT_TYPES)) & (phase > 0) & (phase < len(PHASES))
