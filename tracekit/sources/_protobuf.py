"""Protobuf from the wire, many messages at a time, without generated classes.

The wire format is public (protobuf.dev, "Encoding"): a message is a list of (field number, wire type, value).
``decode`` steps through all messages of a batch together, one field per step, as numpy columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}
_MAX_FIELDS = 512
"""Fields in one message; a message with more is not one of ours."""
_SHIFTS = tuple(range(0, 70, 7))


@dataclass
class Pieces:
    """Length-delimited fields: which message each is in, and where its bytes are."""

    owner: Positions
    start: Positions
    end: Positions


@dataclass
class Messages:
    """Columns of a batch of messages; a number that a message does not have is 0 there."""

    valid: Mask
    """Read to its last byte, with the expected wire type in every expected field."""
    numbers: dict[int, npt.NDArray[np.uint64]]
    present: dict[int, Mask]
    pieces: dict[int, Pieces]


class Root:
    """The length-delimited fields of a message too large to decode at once."""

    def __init__(self, data: Bytes) -> None:
        self._data = data.data
        self.stopped_at: int | None = None
        """Where the message breaks off or stops being protobuf; None if it is whole."""

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """(field number, start, end) of each length-delimited field, in order."""
        data, size, at = self._data, len(self._data), 0
        self.stopped_at = None
        while at < size:
            begin = at
            tag, length = data[at], data[at + 1] if at + 1 < size else 0x80
            if tag < 0x80 and tag & 7 == LENGTH and length < 0x80:
                at += 2
            else:
                tag, length, at = _header(data, at, size)
            if at < 0 or tag < 8 or at + length > size:
                self.stopped_at = begin
                return
            if tag & 7 == LENGTH:
                yield tag >> 3, at, at + length
            at += length


def _header(data: memoryview, at: int, size: int) -> tuple[int, int, int]:
    """Tag, length of what follows, and where that starts; the position is -1 if this is no field."""
    tag, at = _varint(data, at, size)
    wire, length = tag & 7, _FIXED.get(tag & 7, 0)
    if at >= 0 and wire in (VARINT, LENGTH):
        length, at = _varint(data, at, size)
    elif wire not in _FIXED:
        at = -1
    return tag, length if wire != VARINT else 0, at


def _varint(data: memoryview, at: int, size: int) -> tuple[int, int]:
    """A number and the position after it; the position is -1 if it has no end."""
    value = shift = 0
    while at < size and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, -1


def decode(data: Bytes, start: Positions, end: Positions, *, numbers: set[int], texts: set[int]) -> Messages:
    """Decode messages that lie anywhere in ``data``.

    Args:
        data: all bytes.
        start: first byte of each message.
        end: byte after each message.
        numbers: fields expected as varints; the last value of a repeated one is kept.
        texts: fields expected as length-delimited; all are kept. Other fields are skipped.
    """
    count = len(start)
    messages = Messages(
        valid=np.ones(count, dtype=np.bool_),
        numbers={n: np.zeros(count, dtype=np.uint64) for n in numbers},
        present={n: np.zeros(count, dtype=np.bool_) for n in numbers},
        pieces={},
    )
    found: dict[int, list[Pieces]] = {n: [] for n in texts}
    rows = np.flatnonzero(start < end)
    at, stop = start[rows].astype(np.int64), end[rows].astype(np.int64)
    for _ in range(_MAX_FIELDS):
        if not rows.size:
            break
        at, ok = _step(data, rows, at, stop, messages, found)
        messages.valid[rows[~ok]] = False
        more = ok & (at < stop)
        rows, at, stop = rows[more], at[more], stop[more]
    messages.valid[rows] = False
    messages.pieces = {n: _joined(pieces) for n, pieces in found.items()}
    return messages


def _step(
    data: Bytes, rows: Positions, at: Positions, stop: Positions, into: Messages, found: dict[int, list[Pieces]]
) -> tuple[Positions, Mask]:
    """Read one field of each message; the positions after it, and which could be read."""
    tag, at, ok = _varints(data, at, stop)
    field, wire = (tag >> np.uint64(3)).astype(np.int64), (tag & np.uint64(7)).astype(np.int64)
    value = np.zeros(len(rows), dtype=np.uint64)
    counted = np.flatnonzero(ok & ((wire == VARINT) | (wire == LENGTH)))
    value[counted], at[counted], ok[counted] = _varints(data, at[counted], stop[counted])
    room = (stop - at).clip(min=0).astype(np.uint64)
    length = value * (wire == LENGTH) + np.uint64(8) * (wire == FIXED64) + np.uint64(4) * (wire == FIXED32)
    ok &= (field > 0) & np.isin(wire, (VARINT, FIXED64, LENGTH, FIXED32)) & (length <= room)
    after = at + np.where(ok, length, 0).astype(np.int64)
    for number in into.numbers:
        is_it = field == number
        ok &= ~is_it | (wire == VARINT)
        hit = is_it & ok
        into.numbers[number][rows[hit]] = value[hit]
        into.present[number][rows[hit]] = True
    for number, pieces in found.items():
        is_it = field == number
        ok &= ~is_it | (wire == LENGTH)
        hit = is_it & ok
        if hit.any():
            pieces.append(Pieces(rows[hit], at[hit], after[hit]))
    return after, ok


def _varints(data: Bytes, at: Positions, stop: Positions) -> tuple[npt.NDArray[np.uint64], Positions, Mask]:
    """A varint at each position: values, positions after them, and which ended before ``stop``."""
    value = np.zeros(len(at), dtype=np.uint64)
    after, ok = at.copy(), np.zeros(len(at), dtype=np.bool_)
    open_ = np.flatnonzero(at < stop)
    for shift in _SHIFTS:
        byte = data[after[open_]]
        value[open_] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[open_] += 1
        ended = byte < 0x80
        ok[open_[ended]] = True
        open_ = open_[~ended]
        open_ = open_[after[open_] < stop[open_]]
        if not open_.size:
            break
    return value, after, ok


def _joined(pieces: list[Pieces]) -> Pieces:
    """All pieces of a field, by message and then in the order they stand there."""
    if not pieces:
        empty = np.zeros(0, dtype=np.int64)
        return Pieces(empty, empty, empty)
    owner = np.concatenate([p.owner for p in pieces])
    order = np.argsort(owner, kind="stable")
    start, end = (np.concatenate(parts)[order] for parts in ([p.start for p in pieces], [p.end for p in pieces]))
    return Pieces(owner[order], start, end)
