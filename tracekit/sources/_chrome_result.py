"""What a piece of a trace gives: the result that worker processes send."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from tracekit.sources._chrome_events import Report


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
    position: int
    """Byte offset in the file."""


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
