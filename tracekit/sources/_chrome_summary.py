"""What a whole trace says besides its events: notes, counts, threads and facts about the session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from tracekit import tables
from tracekit.sources._chrome_categories import device_of
from tracekit.sources._chrome_events import ABSENT, Report
from tracekit.sources._chrome_header import HeaderFacts
from tracekit.sources._chrome_result import Result, ThreadFact
from tracekit.sources.base import Severity, Sink


class _Wording(NamedTuple):
    severity: Severity
    text: str
    hint: str | None = None


_AGAIN = "take the trace again, and let the profiler finish writing it"
NOTES: Mapping[str, _Wording] = {
    "damaged_event": _Wording("warning", "event(s) lost to damage in the file", _AGAIN),
    "cut_file": _Wording("warning", "event(s) lost: the file ends too soon", _AGAIN),
    "damaged_gzip": _Wording("warning", "what the compressed data still holds is read", "copy the file again"),
    "repaired_event": _Wording("info", "event(s) repaired"),
    "missing_time": _Wording("warning", "event(s) lost: no time"),
    "time_out_of_range": _Wording("warning", "event(s) lost: impossible time"),
    "no_phase": _Wording("warning", "element(s) lost: not an event"),
    "not_an_event": _Wording("warning", "element(s) lost: not an event"),
    "unsupported_phase": _Wording("info", "event(s) of a phase that the tables do not hold"),
    "flow_without_id": _Wording("warning", "flow event(s) lost: no id"),
    "counter_without_value": _Wording("warning", "counter event(s) lost: no number"),
    "unmatched_end": _Wording("warning", "event(s) lost: an end without a beginning"),
    "unfinished_event": _Wording("warning", "event(s) without an end, drawn out to the end of the trace"),
    "missing_duration": _Wording("warning", "event(s) without a duration, taken as 0"),
    "negative_duration": _Wording("warning", "event(s) with a negative duration, taken as 0"),
    "id_overflow": _Wording("warning", "id(s) too large for their column, which stay in `attrs_json` alone"),
    "args_not_object": _Wording("info", "event(s) whose `args` is not an object"),
    "metadata_ignored": _Wording("info", "metadata event(s) that the tables do not hold"),
    "stray_bracket": _Wording("warning", "a closing bracket between two events was ignored", _AGAIN),
    "open_array": _Wording("info", "the event array has no closing bracket"),
    "damaged_header": _Wording("warning", "the header is damaged"),
    "base_ignored": _Wording("warning", "`baseTimeNanoseconds` was not added"),
    "no_events": _Wording("warning", "the trace has no events", "check what was profiled"),
}
"""Every note the reader can make."""

_FIELDS = {
    "process_name": "process_name",
    "process_labels": "process_labels",
    "process_sort_index": "process_sort_index",
    "thread_name": "thread_name",
    "thread_sort_index": "thread_sort_index",
}


class Summary:
    """Gathers over the pieces of a trace, and tells the sink at the end."""

    def __init__(self) -> None:
        self.report = Report()
        self.counts: Counter[tuple[str, str | None]] = Counter()
        self.event_count = 0
        self.last_ns = 0
        self._threads: dict[tuple[int, int], dict[str, str | int]] = {}

    def take(self, result: Result) -> None:
        """Add what one piece says."""
        self.event_count += result.event_count
        for phase, category, count in result.counts:
            self.counts[phase, category] += count
        self.report.merge(result.report)
        for fact in result.threads:
            self._take_thread(fact)

    def _take_thread(self, fact: ThreadFact) -> None:
        thread = ABSENT if fact.name.startswith("process_") else fact.tid
        self._threads.setdefault((fact.pid, thread), {})[_FIELDS[fact.name]] = fact.value

    def tell(self, sink: Sink, header: HeaderFacts) -> None:
        """Give the sink threads, counts, notes and facts."""
        threads = self._thread_rows()
        if not threads.is_empty():
            sink.side("threads", threads)
        for (phase, category), count in sorted(self.counts.items(), key=lambda item: (item[0][0], item[0][1] or "")):
            sink.count(phase, category, count)
        for loss in self.report.losses.values():
            wording = NOTES[loss.code]
            where = "; ".join(f"byte {p}: {reason}" if p >= 0 else reason for p, reason in loss.first)
            more = " …" if loss.events > len(loss.first) else ""
            counted = f"{loss.events} " if "(s)" in wording.text else ""
            message = f"{counted}{wording.text} ({where}{more})" if where else wording.text
            sink.note(wording.severity, loss.code, message, hint=wording.hint, event_count=loss.events)
        if header.left_out:
            reason = ", ".join(header.left_out)
            sink.note("info", "header_left_out", f"members of the header too large to keep: {reason}")
        device = device_of({c for _, c in self.counts if c}, is_amd=header.is_amd)
        sink.facts(
            rank=header.rank,
            world_size=header.world_size,
            host_name=header.host_name,
            device=device,
            capture_json=header.json if header.json != "{}" else None,
        )

    def _thread_rows(self) -> pl.DataFrame:
        for (pid, tid), (process, thread) in self.report.labels.items():
            row = self._threads.setdefault((pid, tid), {})
            if process is not None:
                row["process_label"] = process
            if thread is not None:
                row["thread_label"] = thread
        rows = sorted(self._threads.items())
        data: dict[str, list[object]] = {name: [] for name in tables.THREADS.names if name != "session"}
        for (pid, tid), row in rows:
            values = {"process_id": None if pid == ABSENT else pid, "thread_id": None if tid == ABSENT else tid, **row}
            for name, column in data.items():
                column.append(values.get(name))
        return pl.DataFrame(data, schema={name: tables.THREADS[name].dtype for name in data})
