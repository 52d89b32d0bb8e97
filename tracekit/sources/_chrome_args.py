"""Keys of ``args`` that get a column of their own.

All ``args`` of one category in a piece of the file are joined to one JSON array and decoded in one call, and
only if one of the keys occurs in that text at all (Python frames have none of them).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import msgspec
import numpy as np
import numpy.typing as npt

from tracekit.sources._chrome_categories import LANES
from tracekit.sources._chrome_events import ABSENT, Fields, Report, whole_number

Ints = npt.NDArray[np.int64]
_OFF_DEVICE = frozenset({LANES.index("dispatch"), LANES.index("runtime")})


class NotStrict(Exception):  # noqa: N818 - a signal between two paths, not an error
    """A value that the fast path does not take; the piece is read again, event by event."""


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
    """Values of the promoted keys, one per row; ``ABSENT`` (or a None list) where a row has none."""

    external: Ints
    correlation: Ints
    device: Ints
    stream: Ints
    moved: Ints
    sequence: list[int | None] | None = None
    execution: list[int | None] | None = None
    model: list[str | None] | None = None


_INTEGERS = ("external", "correlation", "device", "stream", "moved")
_ALTERNATES = {"external": "external_old", "moved": "size", "sequence": "sequence_old", "model": "model_id"}
_host, _device = msgspec.json.Decoder(list[HostArgs]), msgspec.json.Decoder(list[DeviceArgs])
_NAMES: dict[str, str] = dict(zip(DeviceArgs.__struct_fields__, DeviceArgs.__struct_encode_fields__, strict=True))
_fields = msgspec.json.Decoder(Fields)


def promoted(
    args: Sequence[bytes],
    codes: npt.NDArray[np.int32],
    lane: npt.NDArray[np.int32],
    report: Report,
    *,
    strict: bool,
) -> Promoted:
    """Decode the promoted keys of every row.

    Args:
        args: JSON text per row, empty where a row has none.
        codes: category of every row, as a code; rows of one category are decoded together.
        lane: index into ``LANES`` of every row, the same for all rows of a category.
        report: takes values that do not fit.
        strict: whether to give up at the first value of another type than expected.

    Raises:
        NotStrict: only if ``strict``.
    """
    count = len(args)
    found = Promoted(**{name: np.full(count, ABSENT) for name in _INTEGERS})  # type: ignore[arg-type]
    for code in np.unique(codes):
        mask = codes == code
        rows = np.flatnonzero(mask)
        texts = args if len(rows) == count else list(compress(args, mask.tolist()))
        off_device = int(lane[rows[0]]) in _OFF_DEVICE
        _fill(found, rows, texts, off_device, report, strict)
    return found


def _fill(found: Promoted, rows: Ints, texts: Sequence[bytes], off_device: bool, report: Report, strict: bool) -> None:
    joined = b",".join([t or b"{}" for t in texts])
    kind = HostArgs if off_device else DeviceArgs
    names = [n for n in kind.__struct_fields__ if b'"%s"' % _NAMES[n].encode() in joined or b"\\u00" in joined]
    if not names:
        return
    decoded = _decoded(joined, texts, kind, report, strict)
    count = len(found.external)
    for name in names:
        target = next((n for n, old in _ALTERNATES.items() if old == name), name)
        values = [getattr(a, name) for a in decoded]
        if target in _INTEGERS:
            _set_integers(getattr(found, target), rows, values, strict)
            continue
        column = getattr(found, target)
        if column is None:
            column = [None] * count
            setattr(found, target, column)
        for row, value in zip(rows.tolist(), values, strict=True):
            if value is not None and column[row] is None:
                column[row] = value


def _set_integers(column: Ints, rows: Ints, values: list[int], strict: bool) -> None:
    try:
        new = np.fromiter(values, np.int64, len(values))
    except OverflowError as error:
        raise NotStrict("an id beyond 2^63") from error
    old = column[rows]
    column[rows] = np.where(old == ABSENT, new, old)


def _decoded(
    joined: bytes, texts: Sequence[bytes], kind: type[HostArgs], report: Report, strict: bool
) -> Sequence[HostArgs]:
    try:
        return (_host if kind is HostArgs else _device).decode(b"[" + joined + b"]")
    except (msgspec.DecodeError, TypeError) as error:
        if strict:
            raise NotStrict("args of an unexpected type") from error
    return [_loose(bytes(t), kind, report) for t in texts]


def _loose(text: bytes, kind: type[HostArgs], report: Report) -> HostArgs:
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
        _put(values, name, value, report)
    return values


def _put(values: HostArgs, name: str, value: object, report: Report) -> None:
    if name in ("model", "model_id"):
        if value is not None:
            setattr(values, name, value if isinstance(value, str) else str(value))
        return
    number = None if isinstance(value, bool) else whole_number(str(value))
    if number is None:
        return
    least, most = (0, 2**64) if name.startswith("sequence") else (ABSENT + 1, 2**63)
    if least <= number < most:
        setattr(values, name, number)
    else:
        report.add("id_overflow", -1, f"`{_NAMES[name]}` does not fit 64 bits; its text stays in attrs_json")
