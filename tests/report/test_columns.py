"""Packed columns: a plain decoder of the described layout gets back what went in."""

from __future__ import annotations

import base64
import zlib

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tracekit.report.columns import MAX_SAFE, Packed, pack


def unpacked(packed: Packed) -> dict[str, list[int | None]]:
    """As ``assets/data.js`` reads it, value by value."""
    raw = zlib.decompress(base64.b64decode(packed.payload))
    out: dict[str, list[int | None]] = {}
    offset = 0
    for entry in packed.directory:
        rows, planes = int(entry["rows"]), int(entry["planes"])
        total, values = 0, []
        for i in range(rows):
            value = sum(raw[offset + plane * rows + i] << (8 * plane) for plane in range(planes))
            if entry["zigzag"]:
                value = -(value + 1) // 2 if value % 2 else value // 2
            if entry["delta"]:
                total = value = total + value
            values.append(None if value == 0 else value - 1 if value > 0 else value)
        out[str(entry["name"])] = values
        offset += rows * planes
    assert offset == len(raw)
    return out


numbers = st.lists(st.none() | st.integers(-MAX_SAFE, MAX_SAFE) | st.integers(-3, 300), max_size=40)


@given(numbers, numbers)
def test_every_value_and_null_comes_back(plain: list[int | None], differences: list[int | None]) -> None:
    columns = {"a": pl.Series(plain, dtype=pl.Int64), "b": pl.Series(differences, dtype=pl.Int64)}
    assert unpacked(pack(columns, frozenset({"b"}))) == {"a": plain, "b": differences}


def test_a_value_that_a_number_cannot_hold_becomes_null() -> None:
    values = pl.Series([2**60, -(2**60), 5], dtype=pl.Int64)
    assert unpacked(pack({"a": values})) == {"a": [None, None, 5]}


def test_rising_times_take_about_two_bytes_each() -> None:
    steps = pl.Series([(i * 7919) % 40_000 for i in range(100_000)], dtype=pl.Int64)
    assert len(pack({"t": steps.cum_sum()}, frozenset({"t"})).payload) < 2 * 100_000 * 4 / 3


def test_flags_and_small_types_are_packed_too() -> None:
    columns = {"flag": pl.Series([True, False, None]), "core": pl.Series([0, None, 7], dtype=pl.Int32)}
    assert unpacked(pack(columns)) == {"flag": [1, 0, None], "core": [0, None, 7]}
