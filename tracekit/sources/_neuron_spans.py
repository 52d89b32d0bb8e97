"""From raw marks of the Neuron runtime's trace (start, stop, instant; two clocks) to events on the host clock.

The runtime's own formats (fetch JSON, ``ntrace.pb``) hold marks in a ring buffer. A span is a start and a
stop of the same event with the same tracking id on the same core. Hardware marks carry device time; a sync
point of the core gives ``cpu_ns = sync.cpu_timestamp_ns + (mark.nc_timestamp_ns - sync.nc_timestamp_ns)``,
as the vendor documents it.

An unpaired mark gives no event: its other end is not known, and an instant in its place would count as an
execution of no length. They are counted by name in a note.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from tracekit.sources._neuron_events import (
    HARDWARE_NAMES,
    PHYSICAL_KEYS,
    SYNC_POINT,
    Attributes,
    int64,
    integer,
)
from tracekit.sources._neuron_rows import Batch, Emitter
from tracekit.sources.base import Artifact, Sink

BATCH_ROWS = 1 << 15
START, STOP, INSTANT = "start", "stop", "instant"
PHASES = ("invalid", START, STOP, INSTANT)
"""Names of the numeric phases."""
_COUNTED_AS = {START: "B", STOP: "E", INSTANT: "i"}
_DEVICE_TIME = "nc_timestamp_ns"
_HOST_TIME = "cpu_timestamp_ns"
_HINT = "raise the runtime's trace buffer (events per core), or stop the capture sooner after the region of interest"


class Mark(NamedTuple):
    """One raw record of the trace."""

    name: str
    phase: str
    core: int | None
    tracking: int | None
    at_ns: int
    """Unix ns for software; the device clock for most hardware marks."""
    attributes: Attributes


class Clock:
    """Device clock → host clock, by sync points.

    The sync point of the same core and execution is taken, the one with the same physical core where it
    names one; without one, the nearest in device time of the same core.
    """

    def __init__(self) -> None:
        self._by_core: defaultdict[tuple[int | None, int | None], list[tuple[int, int]]] = defaultdict(list)
        self._by_execution: defaultdict[tuple[int | None, int | None, int], list[tuple[int, int]]] = defaultdict(list)
        self.count = 0
        self.nearest = 0
        """Events placed by a sync point of another execution."""

    def add(self, mark: Mark) -> bool:
        """Take a sync point; False if it lacks one of its two times."""
        device, host = integer(mark.attributes.get(_DEVICE_TIME)), integer(mark.attributes.get(_HOST_TIME))
        if device is None or host is None:
            return False
        execution, physical = integer(mark.attributes.get("exec_id")), _physical(mark.attributes)
        for core in {(mark.core, physical), (mark.core, None)}:
            self._by_core[core].append((device, host - device))
            if execution is not None:
                self._by_execution[core[0], core[1], execution].append((device, host - device))
        self.count += 1
        return True

    def close(self) -> None:
        """Sort the points; no more may come."""
        for points in (*self._by_core.values(), *self._by_execution.values()):
            points.sort()

    def offset(self, core: int | None, physical: int | None, execution: int | None, device_ns: int) -> int | None:
        """What to add to a device time to get host time; None if the core has no sync point."""
        if execution is not None:
            for key in ((core, physical, execution), (core, None, execution)):
                if key in self._by_execution:
                    return _nearest(self._by_execution[key], device_ns)
        for pair in ((core, physical), (core, None)):
            if pair in self._by_core:
                self.nearest += 1
                return _nearest(self._by_core[pair], device_ns)
        return None

    def residual_ns(self) -> int | None:
        """The largest change of the offset between neighbouring sync points of a core: the error to expect.

        None if no core has two.
        """
        steps = [abs(after[1] - before[1]) for points in self._by_core.values() for before, after in pairwise(points)]
        return max(steps, default=None)


def _nearest(points: list[tuple[int, int]], device_ns: int) -> int:
    at = bisect_left(points, (device_ns,))
    near = points[max(at - 1, 0) : at + 1]
    return min(near, key=lambda point: abs(point[0] - device_ns))[1]


def _physical(attributes: Attributes) -> int | None:
    return next((n for key in PHYSICAL_KEYS if (n := integer(attributes.get(key))) is not None), None)


class Spans:
    """Pairs marks, places them on the host clock and gives the events to the sink.

    Args:
        artifact: the file the marks come from.
        sink: where events and notes go.
        clock: the file's sync points, closed.
        asynchronous: name that an event takes when it carries an ``nrta_seq_id``.
    """

    def __init__(
        self, artifact: Artifact, sink: Sink, clock: Clock, asynchronous: Mapping[str, str] | None = None
    ) -> None:
        self._asynchronous = asynchronous or {}
        self._sink = sink
        self._clock = clock
        self._emitter = Emitter(sink, process_id=artifact.process_id)
        self._batch = Batch()
        self._starts: dict[tuple[str, int | None, int], Mark] = {}
        self._early_stops: dict[tuple[str, int | None, int], Mark] = {}
        self._unpaired: Counter[str] = Counter()
        self._unplaced: Counter[str] = Counter()
        self._marks: Counter[tuple[str, str]] = Counter()
        self._negative = self._host_clocked = self._odd_phase = 0

    def add(self, mark: Mark) -> None:
        """Take the next mark of the file; sync points are only counted."""
        self._marks[mark.phase, mark.name] += 1
        if mark.name == SYNC_POINT:
            return
        if mark.phase == INSTANT:
            self._event(mark, None)
        elif mark.phase not in (START, STOP):
            self._odd_phase += 1
        elif mark.tracking is None:
            self._unpaired[f"{mark.name} {mark.phase}"] += 1
        else:
            self._pair(mark, (mark.name, mark.core, mark.tracking))

    def _pair(self, mark: Mark, key: tuple[str, int | None, int]) -> None:
        """A start waits for its stop; a stop that stands before its start in the file waits for that."""
        waiting, own = (self._early_stops, self._starts) if mark.phase == START else (self._starts, self._early_stops)
        other = waiting.pop(key, None)
        if other is not None and (mark.phase == STOP or other.at_ns >= mark.at_ns):
            self._event(*((mark, other) if mark.phase == START else (other, mark)))
            return
        for lost in (other, own.pop(key, None)):
            if lost is not None:
                self._unpaired[f"{lost.name} {lost.phase}"] += 1
        own[key] = mark

    def _event(self, start: Mark, stop: Mark | None) -> None:
        times = self._times(start, stop)
        if times is None:
            self._unplaced[start.name] += 1
            return
        attributes = start.attributes if stop is None else _merged(start.attributes, stop.attributes)
        attributes["nc_idx"] = start.core
        if times[1] < times[0]:
            self._negative += 1
        name = start.name
        if name in self._asynchronous and "nrta_seq_id" in attributes:
            name = self._asynchronous[name]
        self._batch.add(name, times[0], max(times), attributes)
        if len(self._batch) >= BATCH_ROWS:
            self._flush()

    def _times(self, start: Mark, stop: Mark | None) -> tuple[int, int] | None:
        """Start and end on the host clock; None if the core of a hardware event has no sync point."""
        end_ns = start.at_ns if stop is None else stop.at_ns
        if start.name not in HARDWARE_NAMES:
            return start.at_ns, end_ns
        first = integer(start.attributes.get(_DEVICE_TIME))
        last = first if stop is None else integer(stop.attributes.get(_DEVICE_TIME))
        if first is None and last is None:
            self._host_clocked += 1
            return start.at_ns, end_ns
        first, last = start.at_ns if first is None else first, end_ns if last is None else last
        execution = integer(start.attributes.get("exec_id"))
        offset = self._clock.offset(start.core, _physical(start.attributes), execution, first)
        if offset is None or int64(first + offset) is None or int64(last + offset) is None:
            return None
        return first + offset, last + offset

    def _flush(self) -> None:
        self._emitter.give(self._batch)
        self._batch = Batch()

    def finish(self) -> None:
        """Give what is left, and note what could not be used."""
        self._flush()
        for mark in (*self._starts.values(), *self._early_stops.values()):
            self._unpaired[f"{mark.name} {mark.phase}"] += 1
        for (phase, name), count in sorted(self._marks.items()):
            group = "neuron_hw" if name in HARDWARE_NAMES else "neuron_rt"
            self._sink.count(_COUNTED_AS.get(phase, "other"), group, count)
        self._note_clock()
        self._note_lost()
        self._emitter.finish()

    def _note_clock(self) -> None:
        if self._clock.count:
            drift = self._clock.residual_ns()
            told = (
                "no core has two of them, so that the drift of its clock is not known"
                if drift is None
                else f"from one to the next the clocks drift by {drift} ns at most"
            )
            message = f"device time is mapped to host time by {self._clock.count} sync point(s); {told}"
            self._sink.note("info", "clock_sync", message, event_count=self._clock.count)
        if self._clock.nearest:
            message = (
                f"{self._clock.nearest} hardware events have no sync point of their own execution; "
                "the nearest of the core is used"
            )
            self._sink.note("info", "clock_sync_nearest", message, event_count=self._clock.nearest)
        if self._unplaced:
            message = (
                f"hardware events of cores without a sync point cannot be placed in time: {_named(self._unplaced)}"
            )
            hint = "keep timestamp_sync_point events in the capture"
            self._sink.note("warning", "no_sync_point", message, hint=hint, event_count=self._unplaced.total())
        if self._host_clocked:
            message = (
                f"{self._host_clocked} hardware events carry no device time; their timestamp is taken as host time"
            )
            self._sink.note("info", "no_device_time", message, event_count=self._host_clocked)

    def _note_lost(self) -> None:
        if self._unpaired:
            message = f"marks without their other end (overwritten, or still open at the end): {_named(self._unpaired)}"
            self._sink.note("warning", "unpaired_events", message, hint=_HINT, event_count=self._unpaired.total())
        if self._negative:
            message = f"{self._negative} events end before they start; their end is their start"
            self._sink.note("warning", "negative_duration", message, event_count=self._negative)
        if self._odd_phase:
            message = f"{self._odd_phase} marks are neither start, stop nor instant and are skipped"
            self._sink.note("warning", "unknown_phase", message, event_count=self._odd_phase)


def _merged(start: Attributes, stop: Attributes) -> Attributes:
    """Attributes of a span; where start and stop differ, the stop's go under ``stop_<key>``."""
    merged = dict(start)
    for key, value in stop.items():
        if key not in merged:
            merged[key] = value
        elif str(merged[key]) != str(value) and key not in ("id", "thread_id"):
            merged[f"stop_{key}"] = value
    return merged


def _named(counts: Counter[str]) -> str:
    """The commonest names with their counts, for a message."""
    shown = ", ".join(f"{count} {name}" for name, count in counts.most_common(6))
    return shown if len(counts) <= 6 else f"{shown}, …"
