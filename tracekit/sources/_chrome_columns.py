"""Arrow columns from Python text: the small parts that the Chrome reader's hot path is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracekit.sources._chrome_events import ABSENT, NotStrict

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
Text = Sequence[bytes]
"""JSON text per event: ``msgspec.Raw`` or bytes."""

LIMIT_NS = 4 * 10**18
"""Times are kept below this (the year 2096), so that base + start + duration fit Int64."""


@dataclass
class Coded:
    """Text as codes into distinct values."""

    values: list[str | None] = field(default_factory=list)
    codes: Codes = field(default_factory=lambda: np.empty(0, np.int32))

    def where(self, mask: Mask) -> Coded:
        """The rows where the mask is set; the values stay."""
        return Coded(self.values, self.codes[mask])


class _Interner(dict[str | None, int]):
    def __missing__(self, key: str | None) -> int:
        self[key] = code = len(self)
        return code


def coded(values: Sequence[str | None]) -> Coded:
    """Dictionary-encode; None is a value like any other."""
    known = _Interner()
    codes = np.fromiter(map(known.__getitem__, values), np.int32, len(values))
    return Coded(list(known), codes)


def coded_letters(values: Sequence[str]) -> Coded:
    """``coded`` for text that nearly always is one ASCII letter."""
    text = "\n".join(values)
    if len(text) != 2 * len(values) - 1 or not text.isascii():
        return coded(values)
    letters = np.frombuffer(text.encode(), np.uint8)
    if (letters[1::2] != ord("\n")).any():
        return coded(values)
    present = np.flatnonzero(np.bincount(letters[::2], minlength=128))
    code_of = np.zeros(128, np.int32)
    code_of[present] = np.arange(len(present))
    return Coded([chr(letter) for letter in present.tolist()], code_of[letters[::2]])


def dictionary(codes: Codes, values: Sequence[str | None]) -> pa.DictionaryArray:
    """A dictionary array; a None among the values becomes null rows."""
    mask = codes == list(values).index(None) if None in values else None
    texts = pa.array([v or "" for v in values], pa.large_string())
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32(), mask=mask), texts)


def ids(values: Ints, present: list[int] | None = None) -> pa.Array:
    """Ids as a column, ``ABSENT`` ones null, but for the rows ``present``."""
    missing = values == ABSENT
    if present:
        missing[present] = False
    return pa.array(values, mask=missing) if missing.any() else pa.array(values)


def small(values: Ints) -> pa.Array:
    """Ids as an Int32 column; what does not fit is null."""
    missing = (values < -(2**31)) | (values >= 2**31)
    return pa.array(np.where(missing, 0, values).astype(np.int32), mask=missing)


@dataclass(frozen=True)
class Joined:
    """Texts one behind the other; text ``i`` is ``data[offsets[i]:offsets[i + 1]]``."""

    data: bytes
    offsets: Ints

    @property
    def is_filled(self) -> bool:
        """Whether no text is empty."""
        return bool((np.diff(self.offsets) > 0).all())

    def texts(self, rows: Ints) -> list[bytes]:
        """The texts of some rows, one by one."""
        starts, ends = self.offsets[rows].tolist(), self.offsets[rows + 1].tolist()
        return [self.data[start:end] for start, end in zip(starts, ends, strict=True)]

    def column(self) -> pa.Array:
        """The texts as a text column; empty ones are null."""
        filled = np.diff(self.offsets) > 0
        validity = None if filled.all() else pa.py_buffer(np.packbits(filled, bitorder="little").tobytes())
        return pa.LargeStringArray.from_buffers(
            len(filled), pa.py_buffer(self.offsets), pa.py_buffer(self.data), validity
        )


def joined(texts: Text, *, strict: bool) -> Joined:
    """Join JSON objects.

    Raises:
        NotStrict: if ``strict`` and one is invalid UTF-8 or not an object.
    """
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=offsets[1:])
    data = b"".join(texts)
    if strict:
        _check_objects(data, offsets[:-1][np.diff(offsets) > 0])
    return Joined(data, offsets)


def _check_objects(data: bytes, starts: Ints) -> None:
    if len(starts) and not (np.frombuffer(data, np.uint8)[starts] == ord("{")).all():
        raise NotStrict("args is not an object")
    if not is_sound(data):
        raise NotStrict("invalid UTF-8")


def is_sound(data: bytes) -> bool:
    """Whether bytes are valid UTF-8."""
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False


def nanoseconds(texts: Text, *, strict: bool) -> Ints:
    """Decimal microseconds in text as integer nanoseconds, exact; more than three decimals round half to even.

    Raises:
        NotStrict: if one is beyond ``LIMIT_NS``, or (if ``strict``) is not a number.
    """
    if not len(texts):
        return np.empty(0, np.int64)
    try:
        found = _nanoseconds(b"\n".join(texts), len(texts))
    except pa.ArrowInvalid as error:
        if strict:
            raise NotStrict("a time is not a number") from error
        found = np.array([_exact(bytes(t)) for t in texts], np.int64)
    if max(found.max(), -found.min()) > LIMIT_NS:
        raise NotStrict("a time is out of range")
    return found


def _nanoseconds(lines: bytes, count: int) -> Ints:
    """Parse newline-separated decimals: all with three decimals, all whole, or (slower) mixed."""
    data = np.frombuffer(lines, np.uint8)
    ends = np.append(np.flatnonzero(data == ord("\n")), len(data))
    if len(ends) != count:
        raise pa.ArrowInvalid("a time is not a number")
    dots = lines.count(b".")
    if dots == count and ends[0] >= 4 and (data[ends - 4] == ord(".")).all():
        return _integers(_strings(lines.replace(b".", b""), ends - np.arange(1, count + 1)), 1)
    text = _strings(lines, ends)
    if dots == 0:
        return _integers(text, 1000)
    try:
        fine = text.cast(pa.decimal128(38, 3))
    except pa.ArrowInvalid:
        import pyarrow.compute as pc  # costs a worker's start, and few traces need it

        fine = pc.round(text.cast(pa.decimal128(38, 20)), 3, "half_to_even").cast(pa.decimal128(38, 3))
    words = np.frombuffer(fine.buffers()[1], np.int64)
    low, high = words[::2], words[1::2]
    if (high != low >> 63).any():
        raise pa.ArrowInvalid("a time is out of range")
    return low


def _strings(lines: bytes, ends: Ints) -> pa.Array:
    """Newline-separated text as a column; ``ends`` are the positions of the newlines, and the end."""
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends - np.arange(len(ends))
    text = lines.replace(b"\n", b"")
    if not text.isascii():
        raise pa.ArrowInvalid("a time is not a number")
    return pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(text))


def _integers(text: pa.Array, scale: int) -> Ints:
    found: Ints = text.cast(pa.int64()).to_numpy()
    if max(found.max(), -found.min()) > LIMIT_NS // scale:
        raise pa.ArrowInvalid("a time is out of range")
    return found * scale


def _exact(text: bytes) -> int:
    return int((Decimal(text.decode()) * 1000).to_integral_value(ROUND_HALF_EVEN))
