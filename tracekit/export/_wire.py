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
    """Bytes of every row, from left to right: blocks of columns, of which the cells in ``used`` count."""

    blocks: tuple[tuple[Bytes, Mask], ...]
    """(bytes, used) of each block, row by row; ``used`` may have one column that holds for all of the block."""
    sizes: Ints
    """Used bytes of each row."""

    def ragged(self) -> Ragged:
        """The same bytes without the unused cells."""
        data = np.hstack([cells for cells, _ in self.blocks])
        used = np.hstack([np.broadcast_to(mask, cells.shape) for cells, mask in self.blocks])
        return Ragged(data[used], self.sizes)


def beside(parts: Sequence[Cells]) -> Cells:
    """Parts of a message behind one another, row by row."""
    sizes: Ints = np.sum([part.sizes for part in parts], axis=0)
    return Cells(tuple(block for part in parts for block in part.blocks), sizes)


def constant(data: bytes, rows: int, where: Mask | None = None) -> Cells:
    """The same bytes in every row (where ``where`` is set)."""
    cells = np.broadcast_to(np.frombuffer(data, np.uint8), (rows, len(data)))
    return _block(cells, np.ones(rows, np.bool_) if where is None else where)


def _block(cells: Bytes, where: Mask) -> Cells:
    return Cells(((cells, where[:, None]),), where * np.int64(cells.shape[1]))


def numbers(field: int, values: Ints | Unsigned, where: Mask | None = None) -> Cells:
    """A varint field; negative numbers take ten bytes."""
    tag = constant(varint(field << 3 | _VARINT), len(values), where)
    return beside([tag, _varints(values, where)])


def doubles(field: int, values: npt.NDArray[np.float64]) -> Cells:
    """A double field."""
    return fixed(field, values.astype("<f8").view(np.uint64))


def fixed(field: int, values: Unsigned) -> Cells:
    """A fixed64 field."""
    tag = np.frombuffer(varint(field << 3 | _FIXED64), np.uint8)
    words = np.ascontiguousarray(values.astype("<u8")).view(np.uint8).reshape(len(values), 8)
    cells = np.hstack([np.broadcast_to(tag, (len(values), len(tag))), words])
    return _block(cells, np.ones(len(values), np.bool_))


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
    unsigned = values if values.dtype == np.uint64 else values.astype(np.int64).view(np.uint64)
    chosen = np.ones(len(values), np.bool_) if where is None else where
    width = max(1, -(-int(unsigned[chosen].max(initial=0)).bit_length() // 7))
    cells, used = np.empty((len(values), width), np.uint8), np.empty((len(values), width), np.bool_)
    sizes = chosen.astype(np.int64)
    left, has_byte = unsigned, chosen
    for place in range(width):
        rest = left >> np.uint64(7)
        goes_on = has_byte & (rest != 0)
        cells[:, place] = (left & np.uint64(0x7F)).astype(np.uint8) | (goes_on.view(np.uint8) << 7)
        used[:, place] = has_byte
        sizes += goes_on
        left, has_byte = rest, goes_on
    return Cells(((cells, used),), sizes)


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
