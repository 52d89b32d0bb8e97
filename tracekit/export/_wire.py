"""Protocol-buffer messages for many rows at once: numpy arrays in, the bytes of all rows out.

Encoding: protobuf.dev, "Encoding". ``Cells`` hold one message, or part of one, per row in a matrix of bytes of which
some are used; a part that a row does not have uses none. Parts without a bound on their size are ``Ragged``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Unsigned = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

_VARINT, _FIXED64, _BYTES = 0, 1, 2


def varint(value: int) -> bytes:
    """One number as a varint; negative ones as 64-bit two's complement."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A varint field of a single message."""
    return varint(field << 3 | _VARINT) + varint(value)


def text(field: int, value: str | bytes) -> bytes:
    """A text, bytes or message field of a single message."""
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | _BYTES) + varint(len(data)) + data


@dataclass(frozen=True)
class Ragged:
    """Bytes of every row, one row behind the other."""

    data: Bytes
    sizes: Ints

    def __add__(self, other: Ragged) -> Ragged:
        """The bytes of both, row by row."""
        sizes = self.sizes + other.sizes
        starts = np.cumsum(sizes) - sizes
        out = np.empty(int(sizes.sum()), np.uint8)
        out[_places(starts, self.sizes)] = self.data
        out[_places(starts + self.sizes, other.sizes)] = other.data
        return Ragged(out, sizes)


def _places(starts: Ints, sizes: Ints) -> Ints:
    """Positions of ``sizes[i]`` bytes from ``starts[i]`` on, for all i."""
    before = np.cumsum(sizes) - sizes
    found: Ints = np.repeat(starts - before, sizes) + np.arange(int(sizes.sum()))
    return found


@dataclass(frozen=True)
class Cells:
    """Bytes of every row, as a matrix of which the cells in ``used`` count, from left to right."""

    bytes: Bytes
    used: Mask

    @property
    def sizes(self) -> Ints:
        """Bytes of each row."""
        found: Ints = self.used.sum(axis=1, dtype=np.int64)
        return found

    def ragged(self) -> Ragged:
        """The same bytes without the unused cells."""
        return Ragged(self.bytes[self.used], self.sizes)


def beside(parts: Sequence[Cells]) -> Cells:
    """Parts of a message behind one another, row by row."""
    return Cells(np.hstack([p.bytes for p in parts]), np.hstack([p.used for p in parts]))


def constant(data: bytes, rows: int, where: Mask | None = None) -> Cells:
    """The same bytes in every row (where ``where`` is set)."""
    cells = np.broadcast_to(np.frombuffer(data, np.uint8), (rows, len(data)))
    chosen = np.ones(rows, np.bool_) if where is None else where
    return Cells(cells, np.broadcast_to(chosen[:, None], cells.shape))


def numbers(field: int, values: Ints | Unsigned, where: Mask | None = None) -> Cells:
    """A varint field; negative numbers take ten bytes."""
    tag = constant(varint(field << 3 | _VARINT), len(values), where)
    return beside([tag, _varints(values, where)])


def doubles(field: int, values: npt.NDArray[np.float64], where: Mask | None = None) -> Cells:
    """A double field."""
    return fixed(field, values.astype("<f8").view(np.uint64), where)


def fixed(field: int, values: Unsigned, where: Mask | None = None) -> Cells:
    """A fixed64 field."""
    tag = constant(varint(field << 3 | _FIXED64), len(values), where)
    cells = np.ascontiguousarray(values.astype("<u8")).view(np.uint8).reshape(len(values), 8)
    chosen = np.ones(len(values), np.bool_) if where is None else where
    return beside([tag, Cells(cells, np.broadcast_to(chosen[:, None], cells.shape))])


def message(field: int, parts: Sequence[Cells], where: Mask | None = None, more: Ints | None = None) -> Cells:
    """A message field from its parts.

    Args:
        field: number of the field.
        parts: content; empty in rows where ``where`` is not set.
        where: rows that have the field.
        more: bytes of each row that follow the parts and belong to the message.
    """
    content = beside(parts)
    sizes = content.sizes if more is None else content.sizes + more
    tag = constant(varint(field << 3 | _BYTES), len(sizes), where)
    return beside([tag, _varints(sizes, where), content])


def _varints(values: Ints | Unsigned, where: Mask | None) -> Cells:
    unsigned = values.astype(np.int64).view(np.uint64) if values.dtype != np.uint64 else values
    chosen = np.ones(len(values), np.bool_) if where is None else where
    width = max(1, -(-int(unsigned[chosen].max(initial=0)).bit_length() // 7))
    shifted = unsigned[:, None] >> np.arange(0, 7 * width, 7, dtype=np.uint64)
    more = np.zeros(shifted.shape, np.bool_)
    more[:, :-1] = shifted[:, 1:] != 0
    used = np.ones(shifted.shape, np.bool_)
    used[:, 1:] = more[:, :-1]
    cells = (shifted & np.uint64(0x7F)).astype(np.uint8) | (more.astype(np.uint8) << 7)
    return Cells(cells, used & chosen[:, None])


def texts(field: int, values: pl.Series) -> Ragged:
    """A text field from a text column without nulls."""
    buffers = values.to_arrow()
    offsets = np.frombuffer(buffers.cast("large_binary").buffers()[1], np.int64)[: len(values) + 1]
    data = np.frombuffer(buffers.cast("large_binary").buffers()[2] or b"", np.uint8)
    sizes = np.diff(offsets)
    header = beside([constant(varint(field << 3 | _BYTES), len(values)), _varints(sizes, None)]).ragged()
    return header + Ragged(data[offsets[0] : offsets[-1]], sizes)


def messages(field: int, content: Ragged) -> Ragged:
    """A message field whose content is ragged."""
    rows = len(content.sizes)
    header = beside([constant(varint(field << 3 | _BYTES), rows), _varints(content.sizes, None)]).ragged()
    return header + content
