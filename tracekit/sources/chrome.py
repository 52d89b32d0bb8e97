"""Reader of Chrome traces as PyTorch's Kineto (and other tools) write them: JSON, plain or gzip.

Format: formats.md §2 of the project's documentation; "Trace Event Format" of Chromium; Kineto's
``output_json.cpp``. The file is cut into pieces at a separator learnt from its own head. A piece that does not
decode as it is goes event by event; a cut that was wrong shows as a piece that ends inside an event, which is then
continued. Which (lane, kind) a category has stands in ``_chrome_categories.CATEGORIES``.
"""

from __future__ import annotations

import multiprocessing
import os
import re
from collections import deque
from contextlib import ExitStack, suppress

import pyarrow.compute as pc
from msgspec.structs import replace

from tracekit.errors import SourceError
from tracekit.sources._chrome_bytes import TraceBytes, open_bytes
from tracekit.sources._chrome_header import base_time, find_head, header_facts
from tracekit.sources._chrome_pairs import Pairs
from tracekit.sources._chrome_piece import Piece
from tracekit.sources._chrome_plan import LONGEST, PIECE, Plan
from tracekit.sources._chrome_result import Result
from tracekit.sources._chrome_rows import merged
from tracekit.sources._chrome_split import Head, next_event
from tracekit.sources._chrome_summary import Summary
from tracekit.sources._chrome_worker import Inline, Pending, Pool, Workers
from tracekit.sources.base import Artifact, Sink, Source

_SMALL = 12 * PIECE
"""Traces below this size are read in this process: two workers take longer to start than to read them."""
_MOST_WORKERS = 4
_ID_LIMIT = 2**40
_LOOK = 256
_STRAY = re.compile(rb"\][ \t\r\n,}\]]*\{")
"""A closing bracket that does not close the event array: what follows is neither a member nor the end."""


def read(artifact: Artifact, sink: Sink) -> None:
    """Read one Chrome trace into ``sink``.

    Every event that is intact is given; what is damaged, cut, incomplete or unknown is counted in a note with its
    byte position. Times are exact integer nanoseconds. Rows and ids do not depend on the number of processes.

    Raises:
        SourceError: if the file cannot be opened, is no Chrome trace, or holds no intact event.
    """
    read_with(artifact, sink, worker_count())


def worker_count() -> int:
    """How many processes may help: none where this one is itself one of many, or has a single core."""
    if multiprocessing.current_process().daemon:
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_WORKERS) if cores > 1 else 0


def read_with(artifact: Artifact, sink: Sink, workers: int) -> None:
    """``read`` with a given number of worker processes, 0 for none."""
    data = open_bytes(artifact.path)
    try:
        with ExitStack() as stack:
            pool: Pool = Inline()
            if workers and data.reaches(_SMALL):
                # Where no process can be started (no interpreter of our own, no more processes), this one reads.
                with suppress(OSError, TypeError, ValueError):
                    pool = stack.enter_context(Workers(workers, data.fileno))
            _Reading(artifact, sink, data, pool).run()
    finally:
        data.close()


class _Reading:
    """One trace on its way from bytes to the sink."""

    def __init__(self, artifact: Artifact, sink: Sink, data: TraceBytes, pool: Pool) -> None:
        self._artifact = artifact
        self._sink = sink
        self._data = data
        self._pool = pool
        self._summary = Summary()
        self._report = self._summary.report
        self._pairs = Pairs(self._report)
        self._base_ns: int | None = None
        self._told = 0
        self._last_ns = -_ID_LIMIT
        self._end_id = 0

    def run(self) -> None:
        """Read header, events and what follows them, and tell the sink."""
        head = find_head(self._data, 0)
        if head.array_start is None:
            raise self._unreadable(head)
        members = list(head.members)
        while head.array_start is not None:
            if not head.complete:
                self._report.add("damaged_header", head.stop, "not JSON", 0)
            end = self._read_array(head, head.array_start)
            if end is None:
                break
            head = find_head(self._data, end, inside=True)
            members += head.members
            if head.array_start is None and not head.complete:
                self._report.add("damaged_header", head.stop, "the file ends inside it, or it is not JSON", 0)
                head.array_start, head.complete = self._event_behind(head.stop), True
        self._finish(members)

    def _event_behind(self, position: int) -> int | None:
        """Start of an event that stands behind a damaged header, as after a bracket that damage put in."""
        text = self._data.read(position, position + PIECE).decode("latin-1")
        start = next_event(text, 0, whole=True)
        return position + start if start < len(text) else None

    def _read_array(self, head: Head, start: int) -> int | None:
        """Read one event array; gives the position after its bracket, or None if the file ends before."""
        end = self._read_part(head, start)
        while end is not None and _STRAY.match(self._data.read(end - 1, end + _LOOK)):
            self._report.add("stray_bracket", end - 1, "another event follows it", 0)
            end = self._read_part(head, end)
        return end

    def _read_part(self, head: Head, start: int) -> int | None:
        """Read an event array up to its next closing bracket."""
        if self._base_ns is None:
            self._base_ns = base_time(self._data, head, start)
        self._data.forget(start)
        plan = Plan(self._data, start, self._base_ns)
        in_flight = self._pool.in_flight if plan.is_sure else 1
        waiting: deque[tuple[Piece, Pending]] = deque()
        while True:
            while len(waiting) < in_flight and (piece := plan.next_piece()) is not None:
                waiting.append((piece, self._submit(piece)))
            if not waiting:
                break
            piece, pending = waiting.popleft()
            result = pending.result()
            self._take(result)
            if result.state == "closed":
                return result.stop + 1
            if result.state == "incomplete":
                following = waiting.popleft()[0] if waiting else plan.next_piece()
                if following is None and not self._goes_on(result.stop, piece.stop):
                    self._report.add("cut_file", result.stop, "the file ends inside an event")
                    return None
                following = following or replace(piece, force=True)
                is_long = following.stop - result.stop > LONGEST
                joined = Piece(result.stop, following.stop, self._base_ns, is_long or following.force)
                waiting.appendleft((joined, self._submit(joined)))
        self._report.add("open_array", self._end_id, "the file ends where another event may follow", 0)
        return None

    def _goes_on(self, start: int, stop: int) -> bool:
        """Whether a whole event stands behind the start of one that does not end: then damage swallowed it."""
        text = self._data.read(start, stop).decode("latin-1")
        return next_event(text, 1, whole=True) < len(text)

    def _submit(self, piece: Piece) -> Pending:
        if piece.stop >= _ID_LIMIT:
            raise SourceError(self._artifact.path, "the trace is larger than 1 TiB", hint="split it")
        body = None if self._pool.reads_itself else self._data.read(piece.start, piece.stop)
        return self._pool.submit(piece, body)

    def _take(self, result: Result) -> None:
        """Give the sink what one piece holds."""
        self._end_id = result.stop
        self._summary.take(result)
        rows = merged([result.events, self._pairs.take(result.marks)])
        if rows is not None:
            self._last_ns = max(self._last_ns, pc.max(rows["end_ns"]).as_py())
            self._sink.events(rows)
        if result.flows is not None:
            self._sink.side("flows", result.flows)
        if result.samples is not None:
            self._sink.side("samples", result.samples)
        self._data.forget(result.stop)
        self._progress()

    def _progress(self) -> None:
        consumed = self._data.consumed
        if consumed > self._told:
            self._sink.progress(consumed - self._told)
            self._told = consumed

    def _finish(self, members: list[tuple[bytes, bytes]]) -> None:
        rest = self._pairs.finish(self._end_id, self._last_ns)
        if rest is not None:
            self._sink.events(rest)
        if self._data.problem:
            self._report.add("damaged_gzip", self._end_id, self._data.problem, 0)
        if not self._summary.event_count:
            self._check_empty()
        header = header_facts(members)
        if header.odd_base:
            self._report.add("base_ignored", -1, f"{header.odd_base} is no whole number of ns from 1970 to 2096", 0)
        elif header.base_ns and header.base_ns != self._base_ns:
            why = "the times are absolute without it" if not self._base_ns else f"{self._base_ns} stands before it"
            self._report.add("base_ignored", -1, f"it is {header.base_ns}, but {why}", 0)
        self._summary.tell(self._sink, header)
        self._sink.progress(max(0, self._data.size - self._told))

    def _check_empty(self) -> None:
        """A trace without events is fine if it is sound, and unreadable otherwise."""
        for loss in self._report.losses.values():
            position, reason = loss.first[0]
            problem = f"holds no intact event (byte {position}: {reason})"
            raise SourceError(self._artifact.path, problem, hint="take the trace again")
        self._report.add("no_events", -1, "the event array is empty", 0)

    def _unreadable(self, head: Head) -> SourceError:
        start = self._data.read(0, 64).lstrip(b"\xef\xbb\xbf \t\r\n")
        hint = "name a Chrome trace: JSON with a `traceEvents` array"
        if not start:
            return SourceError(self._artifact.path, "the file is empty", hint=hint)
        if start[:1] != b"{":
            return SourceError(self._artifact.path, "is not JSON", hint=hint)
        if self._data.problem or not head.complete:
            return SourceError(
                self._artifact.path, f"is cut or damaged at byte {head.stop}, before any event", hint=hint
            )
        return SourceError(self._artifact.path, "has no `traceEvents`", hint=hint)


SOURCE = Source(
    name="kineto",
    doc="Chrome trace JSON of torch.profiler (Kineto) and other tools, plain or gzip.",
    grade="T",
    rank=50,
    read=read,
)
