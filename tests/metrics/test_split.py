"""Split: the four parts fill the window; communication counts only where nothing hides it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.metrics.build import SAMPLES, Row, event, inputs, sample, session_of, truth, window
from tracekit.metrics.base import Inputs
from tracekit.metrics.split import METRIC, SPLIT

FOLDERS = [SAMPLES / n for n in ("rms_naive", "rms_fused", "rms_compiled", "train_small")]
EXCLUSIVE = ("device_only_ns", "host_only_ns", "both_ns", "neither_ns")


def found(given_inputs: Inputs, **options: str) -> list[dict[str, Any]]:
    return METRIC.compute(given_inputs, options).collect().to_dicts()


def parts(row: dict[str, Any]) -> tuple[int, ...]:
    return tuple(row[name] for name in EXCLUSIVE)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([], (0, 0, 0, 100), id="nothing"),
        pytest.param([event("execution", 10, 40)], (30, 0, 0, 70), id="device"),
        pytest.param([event("op", 10, 40, lane="dispatch")], (0, 30, 0, 70), id="host"),
        pytest.param([event("execution", 10, 40), event("call", 30, 50, lane="runtime")], (20, 10, 10, 60), id="both"),
        pytest.param([event("execution", -10, 20), event("op", 90, 130, lane="dispatch")], (20, 10, 0, 70), id="cut"),
        pytest.param([event("sync", 0, 50, lane="runtime"), event("annotation", 0, 90, lane="dispatch"),
                      event("python", 0, 80, lane="dispatch"), event("overhead", 0, 80, lane="dispatch"),
                      event("call", 0, 99, lane="stream"), event("sync", 0, 70)],
                     (0, 0, 0, 100), id="neither busy nor host work"),
        pytest.param([event("execution", 0, 50, is_primary=False)], (0, 0, 0, 100), id="described twice"),
        pytest.param([event("collective", 0, 30), event("copy", 20, 50), event("memory", 40, 60)], (60, 0, 0, 40),
                     id="all device work"),
        pytest.param([event("copy_in", 0, 30, lane="runtime")], (0, 30, 0, 70), id="copy by the runtime"),
    ],
)  # fmt: skip
def test_exclusive_parts(events: list[Row], expected: tuple[int, ...]) -> None:
    (row,) = found(inputs(events, scope=[window(0, 100)]))
    assert parts(row) == expected
    assert sum(parts(row)) == row["window_ns"] == 100


def test_exposed_is_what_nothing_hides() -> None:
    events = [event("execution", 0, 40), event("collective", 30, 60), event("copy_in", 20, 90)]
    (row,) = found(inputs(events, scope=[window(0, 100)]))
    assert (row["exposed_collective_ns"], row["exposed_copy_ns"]) == (20, 30)
    assert (row["compute_ns"], row["collective_ns"], row["copy_ns"]) == (40, 30, 70)


@pytest.mark.parametrize(
    ("events", "bound", "ratio"),
    [
        pytest.param([event("execution", 0, 80), event("op", 0, 20, lane="dispatch")], "device", 0.4, id="device"),
        pytest.param([event("execution", 0, 20), event("op", 0, 90, lane="dispatch")], "host", 0.8, id="host"),
        pytest.param([event("op", 0, 90, lane="dispatch")], None, None, id="no device"),
    ],
)
def test_bound(events: list[Row], bound: str | None, ratio: float | None) -> None:
    (row,) = found(inputs(events, scope=[window(0, 100)]))
    assert row["bound"] == bound
    assert row["bound_ratio"] == (None if ratio is None else pytest.approx(ratio))


def test_cores_apart_share_the_host_and_together_they_are_a_union() -> None:
    events = [
        event("execution", 0, 40), event("execution", 20, 60, core_index=1), event("op", 50, 70, lane="dispatch"),
        event("copy_in", 80, 90, lane="runtime"),
    ]  # fmt: skip
    tables = inputs(events, scope=[window(0, 100)])
    apart = {r["core_index"]: parts(r) for r in found(tables, by="core")}
    assert apart == {0: (40, 30, 0, 30), 1: (30, 20, 10, 40)}
    assert [r["exposed_copy_ns"] for r in found(tables, by="core")] == [10, 10]
    (together,) = found(tables)
    assert parts(together) == (50, 20, 10, 20)


def test_session_without_device_work_has_a_row() -> None:
    events = [event("op", 0, 30, lane="dispatch"), event("execution", 0, 9, session="t")]
    rows = found(inputs(events), by="core")
    assert [(r["session"], r["core_index"]) for r in rows] == [("s", None), ("t", 0)]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
def test_made_up_samples_equal_their_truth(folder: Path) -> None:
    rows = {(r["session"], r["step"]): r for r in found(sample(folder), per="step")}
    count = 0
    for process in truth(folder):
        for step in process["steps"]:
            row = rows[session_of(process["process_id"]), int(step["name"].rpartition("#")[2])]
            assert {k: row[f"{k}_ns"] for k in step["split"]} == step["split"]
            assert row["rank"] == process["rank"]
            count += 1
    assert count == len(rows)


def test_steps_add_up_to_the_whole() -> None:
    tables = sample(SAMPLES / "train_small")
    steps, whole = found(tables, per="step"), found(tables)
    for row in whole:
        mine = [r for r in steps if r["session"] == row["session"]]
        assert len(mine) == 3
        assert all(row[n] == sum(r[n] for r in mine) for n in SPLIT.names if n.endswith("_ns"))


@pytest.mark.parametrize("options", [{}, {"by": "core"}, {"per": "step"}])
def test_result_has_the_tables_columns_and_types(options: dict[str, str]) -> None:
    frame = METRIC.compute(sample(SAMPLES / "rms_naive"), options).collect()
    assert dict(frame.schema) == SPLIT.schema
    SPLIT.conform(frame)


_KINDS = (
    ("execution", "hardware"), ("collective", "hardware"), ("copy_in", "hardware"), ("copy_out", "runtime"),
    ("op", "dispatch"), ("call", "runtime"), ("sync", "runtime"), ("memory", "hardware"),
)  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from(_KINDS), st.integers(-20, 120), st.integers(0, 40)), max_size=12),
    st.integers(0, 2**50),
)
def test_parts_equal_asking_each_nanosecond(rows: list[tuple[tuple[str, str], int, int]], shift: int) -> None:
    events = [event(kind, start, start + length, lane=lane) for (kind, lane), start, length in rows]

    def at(wanted: set[tuple[str, str]]) -> set[int]:
        return {t for key, s, n in rows if key in wanted for t in range(s, s + n) if 0 <= t < 100}

    compute = at({("execution", "hardware"), ("memory", "hardware")})
    collective = at({("collective", "hardware")})
    copy = at({("copy_in", "hardware"), ("copy_out", "runtime")})
    device = compute | collective | at({("copy_in", "hardware")})
    host = at({("op", "dispatch"), ("call", "runtime"), ("copy_out", "runtime")})
    tables = inputs(events, scope=[window(0, 100)])
    (row,) = found(tables)
    assert parts(row) == (len(device - host), len(host - device), len(host & device), 100 - len(host | device))
    assert row["exposed_collective_ns"] == len(collective - compute)
    assert row["exposed_copy_ns"] == len(copy - compute - collective)
    later = [{**e, "start_ns": s + shift, "end_ns": s + n + shift} for e, (_, s, n) in zip(events, rows, strict=True)]
    stranger = event("execution", shift, shift + 100, session="t")
    moved = inputs([*reversed(later), stranger], scope=[window(shift, shift + 100)])
    assert found(moved) == [row]
    assert found(dataclasses.replace(tables, scope=inputs([], scope=[]).scope)) == []
