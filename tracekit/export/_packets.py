"""Packets of a Perfetto trace: descriptors one by one, events in batches.

Format: ``protos/perfetto/trace/*.proto`` of Perfetto, whose field numbers are the constants here. A sequence has a
clock of its own that counts up from packet to packet, and numbers for texts that repeat (``InternedData``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import polars as pl

from tracekit.export import _wire as wire
from tracekit.export._wire import Cells, Ints, Mask, Ragged

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
"""``TrackEvent.Type``."""

_PACKET = 1
_CLOCK_SNAPSHOT, _TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _INTERNED, _FLAGS = 6, 8, 10, 11, 12, 13
_CLOCK_ID, _DEFAULTS, _DESCRIPTOR = 58, 59, 60
_CLEARED, _NEEDS_STATE = 1, 2
_REALTIME, _BOOTTIME, _COUNTING = 1, 6, 64
_CATEGORIES, _ANNOTATION, _TYPE, _NAME, _TRACK, _FLOW, _DOUBLE = 3, 4, 9, 10, 11, 47, 44
_UINT, _INT, _TEXT = 3, 4, 17
_EXPLICIT_ORDER, _MERGE_BY_KEY = 3, 3
_UNITS = {"B": 3, "ns": 1, "count": 2}
TEXTS = {"category": 1, "name": 2, "key": 3, "value": 29}
"""Kind of repeating text → its field in ``InternedData``."""


def packet(*fields: bytes) -> bytes:
    """A packet of the trace from its fields."""
    return wire.text(_PACKET, b"".join(fields))


def process_track(uuid: int, process_id: int, label: str) -> bytes:
    """The track of a process, whose children keep their order."""
    process = wire.number(1, process_id) + wire.text(6, label)
    fields = wire.number(1, uuid) + wire.text(3, process) + wire.number(11, _EXPLICIT_ORDER)
    return packet(wire.text(_DESCRIPTOR, fields), wire.number(_SEQUENCE, 1))


def group_track(uuid: int, parent: int, name: str, order: int) -> bytes:
    """A track that has only children, in order."""
    fields = _child(uuid, parent, name, order) + wire.number(11, _EXPLICIT_ORDER)
    return packet(wire.text(_DESCRIPTOR, fields), wire.number(_SEQUENCE, 1))


def span_track(uuid: int, parent: int, name: str, order: int) -> bytes:
    """A track of spans; sub-tracks of one track have its ``order`` and are shown as one."""
    merge = wire.number(15, _MERGE_BY_KEY) + wire.text(16, f"{parent}-{order}")
    return packet(wire.text(_DESCRIPTOR, _child(uuid, parent, name, order) + merge), wire.number(_SEQUENCE, 1))


def counter_track(uuid: int, parent: int, name: str, order: int, unit: str | None) -> bytes:
    """A track of values."""
    known = _UNITS.get(unit or "")
    described = wire.number(3, known) if known else wire.text(6, unit) if unit else b""
    fields = _child(uuid, parent, name, order) + wire.text(8, described)
    return packet(wire.text(_DESCRIPTOR, fields), wire.number(_SEQUENCE, 1))


def _child(uuid: int, parent: int, name: str, order: int) -> bytes:
    return wire.number(1, uuid) + wire.number(5, parent) + wire.text(2, name) + wire.number(12, order)


@dataclass(frozen=True)
class Note:
    """A debug annotation of a batch: its key, and a value per row where ``where`` is set."""

    key: str
    values: Ints | wire.Unsigned
    where: Mask
    is_text: bool = False
    """The values are numbers of texts."""


@dataclass(frozen=True)
class Batch:
    """Track events in order of time; arrays of one length."""

    at_ns: Ints
    kind: Ints
    """``BEGIN``, ``END``, ``INSTANT`` or ``COUNTER``."""
    track: Ints
    name: Ints | None = None
    """Numbers of names; like categories, notes and flows only of rows that begin something."""
    categories: Sequence[Ints] = ()
    """Numbers of categories; 0 is none."""
    notes: Sequence[Note] = ()
    flows: Ragged | None = None
    value: npt.NDArray[np.float64] | None = None


@dataclass
class PacketSequence:
    """A run of packets with a clock and texts of its own."""

    number: int
    base_ns: int
    _last_ns: int = field(init=False)
    _known: dict[str, Mask] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._last_ns = self.base_ns

    def opening(self) -> bytes:
        """The packets before any other: everything known is forgotten, and the clocks stand at ``base_ns``."""
        start = wire.number(_TIMESTAMP, self.base_ns) + wire.number(_CLOCK_ID, _BOOTTIME)
        defaults = wire.text(_DEFAULTS, wire.number(_CLOCK_ID, _COUNTING))
        reset = packet(start, wire.number(_SEQUENCE, self.number), wire.number(_FLAGS, _CLEARED), defaults)
        plain = [wire.text(1, wire.number(1, c) + wire.number(2, self.base_ns)) for c in (_BOOTTIME, _REALTIME)]
        counting = wire.number(1, _COUNTING) + wire.number(2, self.base_ns) + wire.number(3, 1) + wire.number(4, 1)
        snapshot = b"".join([*plain, wire.text(1, counting)]) + wire.number(2, _BOOTTIME)
        return reset + packet(start, wire.text(_CLOCK_SNAPSHOT, snapshot), wire.number(_SEQUENCE, self.number))

    def introduce(self, out: BinaryIO, kind: str, used: Ints, texts: pl.Series) -> None:
        """Write the texts with these numbers (from 1 on, into ``texts``) that have not been written yet."""
        known = self._known.setdefault(kind, np.zeros(len(texts), np.bool_))
        is_used = np.zeros(len(texts) + 1, np.bool_)
        is_used[used] = True
        fresh = np.flatnonzero(is_used[1:] & ~known)
        if not len(fresh):
            return
        known[fresh] = True
        entries = wire.numbers(1, fresh + 1).ragged() + wire.texts(2, texts.gather(fresh))
        interned = wire.messages(TEXTS[kind], entries).data.tobytes()
        tail = wire.number(_SEQUENCE, self.number) + wire.number(_FLAGS, _NEEDS_STATE)
        out.write(packet(wire.text(_INTERNED, interned), tail))

    def write(self, out: BinaryIO, batch: Batch) -> None:
        """Write a batch; its texts must have been introduced, and no row may be before the last one written."""
        rows = len(batch.at_ns)
        passed = np.diff(batch.at_ns, prepend=self._last_ns)
        self._last_ns = int(batch.at_ns[-1])
        flows = batch.flows or Ragged(np.empty(0, np.uint8), np.zeros(rows, np.int64))
        track_event = wire.message(_TRACK_EVENT, _track_event(batch, rows), more=flows.sizes)
        fixed = wire.number(_SEQUENCE, self.number) + wire.number(_FLAGS, _NEEDS_STATE)
        content = [wire.numbers(_TIMESTAMP, passed), wire.constant(fixed, rows), track_event]
        whole = wire.message(_PACKET, content, more=flows.sizes).ragged()
        out.write((whole + flows if len(flows.data) else whole).data.tobytes())


def _track_event(batch: Batch, rows: int) -> list[Cells]:
    """The fields of ``TrackEvent``, all but the flows."""
    parts = [wire.numbers(_TYPE, batch.kind), wire.numbers(_TRACK, batch.track)]
    begins = batch.kind != END
    if batch.name is not None:
        parts.append(wire.numbers(_NAME, batch.name, begins))
    parts += [wire.numbers(_CATEGORIES, numbers, begins & (numbers > 0)) for numbers in batch.categories]
    for number, note in enumerate(batch.notes, 1):
        where = begins & note.where
        if where.any():
            value = _TEXT if note.is_text else _UINT if note.values.dtype == np.uint64 else _INT
            name = wire.constant(wire.number(1, number), rows, where)
            parts.append(wire.message(_ANNOTATION, [name, wire.numbers(value, note.values, where)], where))
    if batch.value is not None:
        parts.append(wire.doubles(_DOUBLE, batch.value))
    return parts


def flow_fields(flow_ids: wire.Unsigned, counts: Ints) -> Ragged:
    """The field ``flow_ids`` of rows that have ``counts`` of them, one row's behind the other's."""
    every = wire.fixed(_FLOW, flow_ids).ragged()
    return Ragged(every.data, counts * (len(every.data) // max(1, len(flow_ids))))
