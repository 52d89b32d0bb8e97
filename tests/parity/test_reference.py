"""The rules in README.md are right: the reference equals ``key_averages()`` in every row and column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.parity import recordings, reference

pytestmark = pytest.mark.torch

TIMES = ("self_cpu_ns", "cpu_total_ns", "self_device_ns", "device_total_ns")


def of_torch(rows: list[recordings.Row]) -> dict[reference.Key, tuple[int, ...]]:
    keys = [(r["name"], r["on_device"], r["is_annotation"], r["overload"], r["shapes"]) for r in rows]
    assert len(set(keys)) == len(keys)
    return {key: (row["calls"], *(row[time] for time in TIMES)) for key, row in zip(keys, rows, strict=True)}


def of_reference(rows: dict[reference.Key, reference.Row]) -> dict[reference.Key, tuple[int, ...]]:
    return {key: (row.calls, *(getattr(row, time) for time in TIMES)) for key, row in rows.items()}


@pytest.mark.parametrize("name", recordings.ALL)
def test_reference_equals_key_averages(name: str, tmp_path: Path) -> None:
    recording = recordings.ALL[name](tmp_path)
    variants: list[tuple[list[recordings.Row], dict[str, Any]]] = [
        (recording.by_name, {}),
        (recording.by_shape, {"by_shape": True}),
        (recording.by_overload, {"by_overload": True}),
    ]
    for rows, options in variants:
        found = reference.key_averages(recording.trace, has_device=recording.has_device, **options)
        assert of_reference(found) == of_torch(rows)


def test_an_unfinished_range_has_no_exact_total(tmp_path: Path) -> None:
    recording = recordings.unfinished(tmp_path)
    expected = of_torch(recording.by_name)
    found = of_reference(reference.key_averages(recording.trace))
    key = ("left open", False, True, "", "")
    assert (found.pop(key)[:2], expected.pop(key)[:2]) == ((1, 0), (1, 0))  # calls, self CPU
    assert found == expected


def test_recordings_hold_what_they_are_for(tmp_path: Path) -> None:
    """Guards the oracle: the cases that make the rules necessary do occur."""
    device = recordings.ALL["privateuse1"](tmp_path)
    by_name = {(row["name"], row["on_device"]): row for row in device.by_name}
    assert by_name["aten::addmm", False]["self_device_ns"] > 0
    assert by_name["aten::mul", False]["self_device_ns"] == 0  # lost with its only child, rule 7
    assert any(row["is_annotation"] and row["on_device"] for row in device.by_name)
    assert any(row["on_device"] and "Memcpy" in row["name"] for row in device.by_name)
    names = {row["name"] for row in recordings.ALL["memory"](tmp_path).by_name}
    assert "[memory]" in names
    threads = recordings.ALL["threads"](tmp_path)
    assert {"Tensor", "Scalar"} <= {row["overload"] for row in threads.by_overload}
    scheduled = {row["name"]: row["calls"] for row in recordings.ALL["mlp_with_schedule"](tmp_path).by_name}
    assert scheduled["ProfilerStep*"] == 3
