"""The bytes of a piece, looked at in many places at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tracekit.sources._chrome_columns import LIMIT_NS, Ints, Mask
from tracekit.sources._chrome_digits import WORD, Words, digit_count, digit_value

_LOW_BYTE = np.uint64(0xFF)
_MARGIN = 1024
"""Bytes behind the text: more than the literals and numbers that are looked for from a position in it."""


class Text:
    """JSON text.

    Attributes:
        raw: the text, with space behind it so that a word can be read anywhere near it.
    """

    def __init__(self, buffer: memoryview | bytes) -> None:
        self.raw = b"".join((buffer, b" " * _MARGIN))
        self._bytes = np.frombuffer(self.raw, np.uint8)
        self._aligned = np.frombuffer(self.raw, "<u8", len(self.raw) // WORD)
        self._anchors: dict[int, Ints] = {}

    def words(self, positions: Ints) -> Words:
        """Eight bytes at each position, the first in the lowest byte; no position is far behind the text."""
        # Two aligned words and a shift are three times as fast as an unaligned one.
        place, shift = positions >> 3, ((positions & 7) << 3).astype(np.uint64)
        words: Words = (self._aligned[place] >> shift) | (self._aligned[place + 1] << (np.uint64(64) - shift))
        return words

    def is_at(self, positions: Ints, literal: bytes) -> Mask:
        """Whether ``literal`` stands at each position."""
        found = np.ones(len(positions), np.bool_)
        for place in sorted({*range(0, len(literal) - WORD + 1, WORD), max(0, len(literal) - WORD)}):
            part = literal[place : place + WORD]
            mask = np.uint64((1 << 8 * len(part)) - 1)
            found &= self.words(positions + place) & mask == int.from_bytes(part, "little")
        return found

    def places(self, literal: bytes) -> Ints:
        """Every position at which ``literal`` stands, in order."""
        # Line breaks are rarer than other characters, and have been looked up already.
        offset = max(0, literal.find(b"\n"))
        anchors = self._all(literal[offset])
        found = anchors[np.searchsorted(anchors, offset) : np.searchsorted(anchors, len(self.raw) - _MARGIN)]
        for place, byte in enumerate(literal[offset:]):
            # Single bytes are compared several times faster than words, and a few letters leave little to compare.
            if place and (chr(byte).isalpha() or byte == ord("}")):
                found = found[self._bytes[place:][found] == byte]
        found = found - offset
        return found[self.is_at(found, literal)]

    def _all(self, byte: int) -> Ints:
        if byte not in self._anchors:
            self._anchors[byte] = np.flatnonzero(self._bytes == byte)
        return self._anchors[byte]

    def numbers(self, positions: Ints) -> tuple[Ints, Ints, Mask]:
        """Decimal microseconds at each position.

        Returns:
            Nanoseconds, the position behind the number, and whether it is one: at most 16 digits without a leading
            zero and below ``LIMIT_NS``, and at most three decimals. The other values mean nothing.
        """
        high, low = self.words(positions), self.words(positions + WORD)
        high_count = digit_count(high)
        low_count = np.where(high_count == WORD, digit_count(low), 0)
        micros = digit_value(high, high_count) * 10**low_count + digit_value(low, low_count)
        count = high_count + low_count
        fits = ((high & _LOW_BYTE != ord("0")) | (count == 1)) & (count > 0) & (micros < LIMIT_NS // 1000)
        following = self.words(positions + count)
        has_point = following & _LOW_BYTE == ord(".")
        decimals = following >> np.uint64(8)
        places = np.where(has_point, digit_count(decimals), 0)
        fits &= (places <= 3) & (has_point == (places > 0))
        fraction = digit_value(decimals, np.minimum(places, 3)) * 10 ** np.clip(3 - places, 0, 3)
        return np.where(fits, micros, 0) * 1000 + fraction, positions + count + has_point + places, fits

    def spans(self, starts: Ints, ends: Ints) -> pa.LargeBinaryArray:
        """Parts of the text as a column; they follow one another without overlapping."""
        offsets = np.zeros(2 * len(starts) + 2, np.int64)
        offsets[1:-1:2], offsets[2:-1:2], offsets[-1] = starts, ends, len(self.raw)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.raw)]
        every = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 2 * len(starts) + 1, buffers)
        return every.take(pa.array(np.arange(1, 2 * len(starts) + 1, 2)))
