"""The rules in README.md are right: the reference equals ``key_averages()`` in every row and column."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.parity import recordings, reference

pytestmark = pytest.mark.torch

Recorded = Callable[[str], recordings.Recording]
TIMES = ("self_cpu_ns", "cpu_total_ns", "self_device_ns", "device_total_ns")


def of_torch(rows: list[recordings.Row]) -> dict[reference.Key, tuple[int, ...]]:
    keys = [(r["name"], r["on_device"], r["is_annotation"], r["overload"], r["shapes"]) for r in rows]
    assert len(set(keys)) == len(keys)
    return {key: (row["calls"], *(row[time] for time in TIMES)) for key, row in zip(keys, rows, strict=True)}


def of_reference(rows: dict[reference.Key, reference.Row]) -> dict[reference.Key, tuple[int, ...]]:
    return {key: (row.calls, *(getattr(row, time) for time in TIMES)) for key, row in rows.items()}


@pytest.mark.parametrize("name", recordings.ALL)
def test_reference_equals_key_averages(name: str, recorded: Recorded) -> None:
    recording = recorded(name)
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


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Each recording, made once."""
    folder = tmp_path_factory.mktemp("recordings")
    return functools.cache(lambda name: recordings.ALL[name](folder))


def self_device_share(recording: recordings.Recording) -> float:
    """Device work that operators have in relation to all there is."""
    work = [row for row in recording.by_name if not row["is_annotation"]]
    per_side = {side: sum(r["self_device_ns"] for r in work if r["on_device"] == side) for side in (False, True)}
    return per_side[False] / per_side[True]


def test_recordings_hold_what_they_are_for(recorded: Recorded) -> None:
    """Guards the oracle: the cases that make the rules necessary do occur."""
    device = recorded("privateuse1")
    by_name = {(row["name"], row["on_device"]): row for row in device.by_name}
    assert by_name["aten::addmm", False]["self_device_ns"] > 0
    assert any(row["is_annotation"] and row["on_device"] for row in device.by_name)
    assert any(row["on_device"] and "Memcpy" in row["name"] for row in device.by_name)
    # Rule 7 loses the work of an operator whose only child is its launch of the same name.
    assert 0 < self_device_share(device) < self_device_share(recorded("privateuse1_unnamed")) <= 1
    names = {row["name"] for row in recorded("memory").by_name}
    assert "[memory]" in names
    threads = recorded("threads")
    assert {"Tensor", "Scalar"} <= {row["overload"] for row in threads.by_overload}
    scheduled = {row["name"]: row["calls"] for row in recorded("mlp_with_schedule").by_name}
    assert scheduled["ProfilerStep*"] == 3
