"""Integer columns packed for the browser: small, quick to make, quick to read.

Layout of a packed column of ``n`` values: the values are shifted by one so that 0 stands for null, turned into
differences where that makes them small (a zigzag keeps these non-negative), and written as byte planes: all lowest
bytes, then all second bytes, and so on. Planes that are zero for every value are left out. All columns of a report are
concatenated, deflated and written in base64; ``assets/data.js`` reads them back.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

MAX_SAFE = 2**52 - 2
"""Largest value that a JavaScript number holds exactly , with room for the sign and for null."""


@dataclass(frozen=True)
class Packed:
    """Columns as text, and what is needed to read them back."""

    directory: list[dict[str, str | int | bool]]
    """One entry per column, in order: name, rows, planes (bytes per value), delta, zigzag."""
    payload: str
    """Base64 of the deflated planes."""


def pack(columns: Mapping[str, pl.Series], delta: frozenset[str] = frozenset()) -> Packed:
    """Pack integer (or Boolean) columns.

    Args:
        columns: by name; null is kept, values outside ±``MAX_SAFE`` become null.
        delta: names of the columns whose rows are stored as differences to the row before.
    """
    directory: list[dict[str, str | int | bool]] = []
    chunks: list[bytes] = []
    for name, series in columns.items():
        entry, data = _planes(series, name in delta)
        directory.append({"name": name, **entry})
        chunks.append(data)
    deflated = zlib.compress(b"".join(chunks), 9)
    return Packed(directory, base64.b64encode(deflated).decode("ascii"))


def _planes(series: pl.Series, is_delta: bool) -> tuple[dict[str, str | int | bool], bytes]:
    values = _shifted(series)
    if is_delta:
        values = np.diff(values, prepend=np.int64(0))
    is_signed = bool(values.size) and bool(values.min() < 0)
    if is_signed:
        values = (values << 1) ^ (values >> 63)
    largest = int(values.max()) if values.size else 0
    planes = (largest.bit_length() + 7) // 8
    raw = values.astype("<i8").view(np.uint8).reshape(-1, 8)
    data = np.ascontiguousarray(raw[:, :planes].T).tobytes()
    return {"rows": int(values.size), "planes": planes, "delta": is_delta, "zigzag": is_signed}, data


def _shifted(series: pl.Series) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Values as int64 with 0 for null; non-negative values move up by one to make room."""
    whole = series.cast(pl.Int64)
    fits = whole.is_between(-MAX_SAFE, MAX_SAFE)
    moved = pl.select(pl.when(fits).then(pl.when(whole >= 0).then(whole + 1).otherwise(whole))).to_series()
    return moved.fill_null(0).to_numpy().astype(np.int64)
