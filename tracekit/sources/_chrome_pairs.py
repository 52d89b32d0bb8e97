"""Events whose start and end stand apart in the file: ``B``/``E`` and the asynchronous phases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tracekit.sources._chrome_columns import coded, joined
from tracekit.sources._chrome_events import Report
from tracekit.sources._chrome_result import Mark
from tracekit.sources._chrome_rows import PHASES, EventColumns, event_batch

_BEGINS, _ENDS, _POINTS = frozenset("BbS"), frozenset("EeF"), frozenset("nTp")
_SYNCHRONOUS = frozenset("BE")
Key = tuple[object, ...]
Span = tuple[Mark, int, int]
"""The beginning, the event id and the end time of a finished event."""


class Pairs:
    """Beginnings that wait for their end. ``B``/``E`` nest per thread, asynchronous events per category and id."""

    def __init__(self, report: Report) -> None:
        self._open: defaultdict[Key, list[Mark]] = defaultdict(list)
        self._report = report

    def take(self, marks: Sequence[Mark]) -> pa.RecordBatch | None:
        """Rows of the events that ``marks`` complete; a pair has the event id of its end."""
        spans: list[Span] = []
        for mark in marks:
            if mark.phase in _BEGINS:
                self._open[_key(mark)].append(mark)
            elif mark.phase in _ENDS:
                self._close(mark, spans)
            else:
                spans.append((mark, mark.event_id, mark.at_ns))
        return self._batch(spans)

    def _close(self, mark: Mark, spans: list[Span]) -> None:
        key = _key(mark)
        waiting = self._open.get(key)
        if not waiting:
            reason = f"`{mark.phase}` without its beginning; the event is lost"
            self._report.add("unmatched_end", mark.position, reason)
            return
        begun = waiting.pop()
        if not waiting:
            del self._open[key]
        spans.append((_joined(begun, mark), mark.event_id, mark.at_ns))

    def finish(self, next_id: int, last_ns: int) -> pa.RecordBatch | None:
        """Rows of the events that never ended: they last until the end of the trace, as viewers draw them."""
        rest = sorted((mark for marks in self._open.values() for mark in marks), key=lambda m: m.event_id)
        self._open.clear()
        last_ns = max([last_ns, *(mark.at_ns for mark in rest)])
        for mark in rest:
            reason = f"`{mark.phase}` without its end; the event lasts until the end of the trace"
            self._report.add("unfinished_event", mark.position, reason)
        return self._batch([(mark, next_id + i, last_ns) for i, mark in enumerate(rest)])

    def _batch(self, spans: list[Span]) -> pa.RecordBatch | None:
        if not spans:
            return None
        spans.sort(key=lambda span: span[1])
        marks = [mark for mark, _, _ in spans]
        backwards = [mark.position for mark, _, end in spans if end < mark.at_ns]
        reason = "ends before it starts; the event ends where it starts"
        self._report.add_each("negative_duration", backwards, reason)
        phases = [PHASES.index("begin_end" if m.phase in _SYNCHRONOUS else "async") for m in marks]
        rows = EventColumns(
            np.array([event_id for _, event_id, _ in spans], np.int64),
            np.array(phases, np.int32),
            coded([m.name for m in marks]),
            coded([m.category for m in marks]),
            np.array([m.pid for m in marks], np.int64),
            np.array([m.tid for m in marks], np.int64),
            np.array([m.at_ns for m in marks], np.int64),
            np.array([max(end, m.at_ns) for m, _, end in spans], np.int64),
            joined([m.args.encode() for m in marks], strict=False),
        )
        return event_batch(rows, self._report, strict=False)


def _key(mark: Mark) -> Key:
    if mark.phase in _SYNCHRONOUS:
        return (mark.pid, mark.tid)
    return (mark.category, mark.key) if mark.phase in "be" else (mark.category, mark.key, mark.name)


def _joined(begun: Mark, ended: Mark) -> Mark:
    """The beginning with the attributes of both halves; the beginning's win, and its name unless it has none."""
    args = begun.args or ended.args
    if begun.args and ended.args:
        first, second = begun.args.strip(), ended.args.strip()
        inner = [text[1:-1].strip() for text in (second, first)]
        args = "{" + ",".join(text for text in inner if text) + "}"
    return begun._replace(args=args, name=begun.name or ended.name)
