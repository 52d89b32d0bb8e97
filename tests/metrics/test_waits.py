"""Waits: where the host blocks, and what the device did meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from tests.metrics.build import SAMPLES, Row, event, inputs, sample, truth, window
from tracekit.metrics.base import Inputs
from tracekit.metrics.waits import METRIC, WAITS


def found(given_inputs: Inputs, **options: str) -> list[dict[str, Any]]:
    return METRIC.compute(given_inputs, options).collect().to_dicts()


def on_thread(kind: str, start: int, end: int, name: str, lane: str = "dispatch", thread: int = 1) -> Row:
    return event(kind, start, end, lane=lane, name=name, process_id=1, thread_id=thread)


WORK = [event("execution", 0, 40), event("collective", 30, 60, core_index=1), event("sync", 60, 100)]
ITEM = [on_thread("op", 20, 80, "aten::item"), on_thread("op", 21, 79, "aten::_local_scalar_dense"),
        on_thread("sync", 25, 75, "cudaStreamSynchronize", "runtime")]  # fmt: skip


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([*WORK, *ITEM], {("aten::item", 1, 60, 40, 20)}, id="inside another"),
        pytest.param(ITEM, {("cudaStreamSynchronize", 1, 50, 0, 50)}, id="no device, no blocking operator"),
        pytest.param([*WORK, on_thread("sync", 0, 100, "a"), on_thread("sync", 10, 20, "b", thread=2)],
                     {("a", 1, 100, 60, 40), ("b", 1, 10, 10, 0)}, id="two threads"),
        pytest.param([*WORK, on_thread("sync", 0, 10, "a"), on_thread("sync", 10, 90, "a")],
                     {("a", 2, 90, 60, 30)}, id="one after the other"),
        pytest.param([*WORK, on_thread("call", 0, 10, "cudaLaunchKernel", "runtime")], set(), id="not a wait"),
    ],
)  # fmt: skip
def test_waits(events: list[Row], expected: set[tuple[str, int, int, int, int]]) -> None:
    columns = ("name", "wait_count", "wait_ns", "device_busy_ns", "device_idle_ns")
    assert {tuple(r[c] for c in columns) for r in found(inputs(events, scope=[window(0, 100)]))} == expected


def test_by_thread_and_by_operator() -> None:
    events = [
        *WORK, on_thread("op", 0, 50, "aten::nonzero"), on_thread("sync", 5, 45, "cudaStreamSynchronize", "runtime"),
        on_thread("sync", 0, 10, "cudaStreamSynchronize", "runtime", thread=2),
    ]  # fmt: skip
    tables = inputs(events)
    assert [(r["thread_id"], r["wait_ns"]) for r in found(tables, by="thread")] == [(1, 40), (2, 10)]
    assert [(r["op_name"], r["wait_ns"]) for r in found(tables, by="op")] == [("aten::nonzero", 40), (None, 10)]


def test_waits_of_the_naive_sample() -> None:
    (process,) = truth(SAMPLES / "rms_naive")
    rows = {r["name"]: r for r in found(sample(SAMPLES / "rms_naive"))}
    assert set(rows) == {"kbl_exec_wait", "neuron::synchronize"}
    waited = [c["wait"] for c in process["chains"]]
    assert rows["kbl_exec_wait"]["wait_count"] == 6
    assert rows["kbl_exec_wait"]["wait_ns"] == sum(end - start for start, end in waited)
    busy = sum(
        max(0, min(wait[1], c["hardware"][1]) - max(wait[0], c["hardware"][0]))
        for wait in waited
        for c in process["chains"]
    )
    assert rows["kbl_exec_wait"]["device_busy_ns"] == busy


def test_steps_add_up_and_times_are_consistent() -> None:
    tables = sample(SAMPLES / "train_small")
    whole, steps = found(tables), found(tables, per="step")
    for column in ("wait_count", "wait_ns", "device_busy_ns", "device_idle_ns"):
        assert sum(r[column] for r in whole) == sum(r[column] for r in steps)
    assert {r["name"] for r in whole} >= {"aten::item", "neuron::synchronize", "kbl_exec_wait"}
    assert all(r["wait_ns"] == r["device_busy_ns"] + r["device_idle_ns"] for r in whole)


def test_result_has_the_tables_columns_and_types() -> None:
    for by in ("name", "thread", "op"):
        assert dict(METRIC.compute(sample(SAMPLES / "train_small"), {"by": by}).collect().schema) == WAITS.schema
