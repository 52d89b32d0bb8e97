"""Keys of ``args`` that get a column of their own.

All ``args`` of one category in a piece of the file are joined to one JSON array and decoded in one call, and
only if one of the keys occurs in that text at all (Python frames have none of them).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from tracekit.sources._chrome_columns import Codes, Ints, Joined
from tracekit.sources._chrome_digits import WORD as _WORD
from tracekit.sources._chrome_digits import digit_count, digit_value
from tracekit.sources._chrome_events import ABSENT, Fields, NotStrict, Report, whole_number
from tracekit.vocabulary import LANES

_OFF_DEVICE = (LANES.index("dispatch"), LANES.index("runtime"))


class HostArgs(msgspec.Struct, gc=False):
    """Keys of events off the device."""

    external: int = msgspec.field(name="External id", default=ABSENT)
    external_old: int = msgspec.field(name="external id", default=ABSENT)
    correlation: int = ABSENT
    sequence: int | None = msgspec.field(name="nrt_sequence_id", default=None)
    sequence_old: int | None = msgspec.field(name="nrta_seq_id", default=None)
    execution: int | None = msgspec.field(name="exec_id", default=None)
    model: str | None = msgspec.field(name="neff_cache_key", default=None)
    model_id: str | None = None


class DeviceArgs(HostArgs, gc=False):
    """Keys of events on a device or a device stream; there is more of them there."""

    device: int = ABSENT
    stream: int = ABSENT
    moved: int = msgspec.field(name="bytes", default=ABSENT)
    size: int = ABSENT


@dataclass
class Promoted:
    """Values of the promoted keys, one per row; ``ABSENT`` (or a None list) where a row has none.

    Ids from 2^63 on are two's complement. That makes 2^63 itself ``ABSENT``: ``lowest`` holds the rows that have it.
    """

    external: Ints
    correlation: Ints
    device: Ints
    stream: Ints
    moved: Ints
    sequence: list[int | None] | None = None
    execution: list[int | None] | None = None
    model: list[str | None] | None = None
    lowest: dict[str, list[int]] = field(default_factory=dict)


_UNSIGNED = ("external", "external_old", "correlation")
_INTEGERS = ("external", "correlation", "device", "stream", "moved")
_ALTERNATES = {"external": "external_old", "moved": "size", "sequence": "sequence_old", "model": "model_id"}
_host, _device = msgspec.json.Decoder(list[HostArgs]), msgspec.json.Decoder(list[DeviceArgs])
_NAMES: dict[str, str] = dict(zip(DeviceArgs.__struct_fields__, DeviceArgs.__struct_encode_fields__, strict=True))
_fields = msgspec.json.Decoder(Fields)


def promoted(
    attrs: Joined,
    codes: Codes,
    lane: Codes,
    report: Report,
    *,
    strict: bool,
    positions: Sequence[int] = (),
) -> Promoted:
    """Decode the promoted keys of every row.

    Args:
        attrs: the JSON texts of all rows; empty where a row has none.
        codes: category of every row, as a code; rows of one category are decoded together.
        lane: index into ``LANES`` of every row, the same for all rows of a category.
        report: takes values that do not fit.
        strict: whether to give up at the first value of another type than expected.
        positions: byte of every row in the file; empty if it is not known.

    Raises:
        NotStrict: only if ``strict``.
    """
    count = len(codes)
    found = Promoted(**{name: np.full(count, ABSENT) for name in _INTEGERS})  # type: ignore[arg-type]
    is_host = np.isin(lane, _OFF_DEVICE).all()
    left = _keys_in(attrs.data, HostArgs if is_host else DeviceArgs)
    if "external" in left:
        leading = leading_integer(attrs, _NAMES["external"])
        if leading is not None:
            found.external = leading
            left.remove("external")
    if not left:
        return found
    for code in np.unique(codes).tolist():
        rows = np.flatnonzero(codes == code)
        kind = HostArgs if int(lane[rows[0]]) in _OFF_DEVICE else DeviceArgs
        if not any(name in left for name in kind.__struct_fields__):
            continue
        texts = attrs.texts(rows)
        text = b",".join(texts if attrs.is_filled else [t if len(t) else b"{}" for t in texts])
        names = [name for name in _keys_in(text, kind) if name in left]
        if names:
            places = [positions[row] for row in rows.tolist()] if positions else [-1] * len(rows)
            decoded = _decoded(text, texts, places, kind, report, strict)
            for name in names:
                _fill(found, name, rows, [getattr(a, name) for a in decoded], count)
    return found


def _keys_in(data: bytes, kind: type[HostArgs]) -> list[str]:
    """Fields of which the key occurs in the text (or may: an escape can hide a key)."""
    # Single bytes are searched several times faster than words, and often settle it.
    if b"\\" in data and b"\\u00" in data:
        return list(kind.__struct_fields__)
    has_underscore = b"_" in data
    return [
        field
        for field in kind.__struct_fields__
        if (has_underscore or "_" not in _NAMES[field]) and b'"%b"' % _NAMES[field].encode() in data
    ]


def leading_integer(attrs: Joined, key: str) -> Ints | None:
    """The value of a key that stands first wherever it stands at all, as PyTorch writes ``External id``.

    Returns:
        The value per row, ``ABSENT`` where a row lacks the key; None if the key also occurs elsewhere, or if a
        value is not a plain integer of at most seven digits.
    """
    data, starts = attrs.data, attrs.offsets[:-1]
    name = b'"%b"' % key.encode()
    first = data.find(name)
    if first < 0:
        return None
    start = int(attrs.offsets[np.searchsorted(attrs.offsets, first, "right") - 1])
    prefix_end = first + len(name)
    while data[prefix_end : prefix_end + 1] in (b" ", b":"):
        prefix_end += 1
    size = prefix_end - start
    rows = np.flatnonzero(np.diff(attrs.offsets) > size + _WORD)
    # Eight bytes at any position; a text that is shorter than a key and its value has no row here.
    words = np.ndarray((max(0, len(data) - _WORD + 1),), "<u8", data, strides=(1,))
    for place in sorted({*range(0, size - _WORD + 1, _WORD), size - _WORD}):
        rows = rows[words[starts[rows] + place] == words[start + place]]
    if size < _WORD or len(rows) != data.count(name):
        return None
    value = short_numbers(words[starts[rows] + size])
    if value is None:
        return None
    found: Ints = np.full(len(starts), ABSENT)
    found[rows] = value
    return found


def short_numbers(words: npt.NDArray[np.uint64]) -> Ints | None:
    """Decimal numbers from words of eight characters each; the first character is the lowest byte.

    Returns:
        The numbers; None if one has no digit or more than seven, or goes on with anything but ``,``, a closing
        brace or white space.
    """
    count = digit_count(words)
    if ((count < 1) | (count >= _WORD)).any():
        return None
    after = (words >> (count * 8).astype(np.uint64)) & np.uint64(0xFF)
    return digit_value(words, count) if np.isin(np.unique(after), _AFTER_NUMBER).all() else None


_AFTER_NUMBER = np.frombuffer(b",} \n\r\t", np.uint8)


def _fill(found: Promoted, name: str, rows: Ints, values: list[object], count: int) -> None:
    """Put the values of one key where no value stands yet."""
    target = next((new for new, old in _ALTERNATES.items() if old == name), name)
    if target in _INTEGERS:
        _set_integers(found, target, rows, values)
        return
    column = getattr(found, target)
    if column is None:
        column = [None] * count
        setattr(found, target, column)
    for row, value in zip(rows.tolist(), values, strict=True):
        if value is not None and column[row] is None:
            column[row] = value


def _set_integers(found: Promoted, target: str, rows: Ints, values: Sequence[object]) -> None:
    column = getattr(found, target)
    try:
        new = np.fromiter(values, np.int64, len(values))
    except OverflowError as error:
        if target not in _UNSIGNED or not all(-(2**63) <= v < 2**64 for v in values):  # type: ignore[operator]
            raise NotStrict("an id that does not fit") from error
        found.lowest[target] = rows[[value == 2**63 for value in values]].tolist()
        new = np.array([v - 2**64 if v >= 2**63 else v for v in values], np.int64)  # type: ignore[operator]
    old = column[rows]
    column[rows] = np.where(old == ABSENT, new, old)


def _decoded(
    joined: bytes, texts: Sequence[bytes], positions: Sequence[int], kind: type[HostArgs], report: Report, strict: bool
) -> Sequence[HostArgs]:
    try:
        decoded: Sequence[HostArgs] = (_host if kind is HostArgs else _device).decode(b"[" + joined + b"]")
        if strict or all(map(_fits, decoded)):
            return decoded
    except (msgspec.DecodeError, TypeError) as error:
        if strict:
            raise NotStrict("args of an unexpected type") from error
    return [_loose(bytes(t), at, kind, report) for t, at in zip(texts, positions, strict=True)]


def _fits(args: HostArgs) -> bool:
    """Whether every id fits the type of its column."""
    for name in args.__struct_fields__:
        value = getattr(args, name)
        least, most = _range(name)
        if isinstance(value, int) and not least <= value < most and value != ABSENT:
            return False
    return True


def _range(name: str) -> tuple[int, int]:
    """Least value, and the first one too large."""
    if name.startswith("sequence"):
        return (0, 2**64)
    return (ABSENT + 1, 2**64 if name in _UNSIGNED else 2**63)


def _loose(text: bytes, position: int, kind: type[HostArgs], report: Report) -> HostArgs:
    """The promoted keys of one ``args``, each converted on its own; what does not fit is absent."""
    values = kind()
    if not text:
        return values
    fields = _fields.decode(text)
    for name in kind.__struct_fields__:
        raw = fields.get(_NAMES[name])
        if raw is None:
            continue
        value: object
        try:
            value = msgspec.json.decode(raw)
        except (msgspec.DecodeError, TypeError):
            value = bytes(raw).decode("utf-8", "replace")
        _put(values, name, value, position, report)
    return values


def _put(values: HostArgs, name: str, value: object, position: int, report: Report) -> None:
    if name in ("model", "model_id"):
        if value is not None:
            setattr(values, name, value if isinstance(value, str) else str(value))
        return
    number = None if isinstance(value, bool) else whole_number(str(value))
    if number is None:
        return
    least, most = _range(name)
    if least <= number < most:
        setattr(values, name, number)
    else:
        report.add("id_overflow", position, f"`{_NAMES[name]}`")
