"""Collectives: overlap with compute, and who comes last."""

from __future__ import annotations

import json
from typing import Any

from tests.metrics.build import SAMPLES, Row, chain, event, inputs, sample, session_of, truth, window
from tracekit.metrics.base import Inputs
from tracekit.metrics.collectives import COLLECTIVES, METRIC

RANKS: list[Row] = [{"session": name, "path": "", "rank": rank} for rank, name in enumerate(("a", "b", "c"))]


def found(given_inputs: Inputs, **options: str) -> list[dict[str, Any]]:
    return METRIC.compute(given_inputs, options).collect().to_dicts()


def reduced(session: str, start: int, end: int, core_index: int = 0) -> Row:
    return event("collective", start, end, session=session, core_index=core_index)


def on_ranks(events: list[Row], scope: list[Row] | None = None, sessions: list[Row] | None = None) -> Inputs:
    scope = scope or [window(0, 10_000, session=str(s["session"])) for s in RANKS]
    return inputs(events, scope=scope, sessions=sessions or RANKS)


def test_time_that_compute_of_the_same_core_hides() -> None:
    events = [
        event("collective", 0, 100), event("execution", 50, 120), event("memory", 40, 45),
        event("execution", 0, 50, core_index=1),
    ]  # fmt: skip
    (row,) = found(inputs(events))
    assert (row["collective_ns"], row["hidden_ns"], row["exposed_ns"]) == (100, 55, 45)


def test_physical_cores_of_an_execution_are_one_collective() -> None:
    both = [
        event("collective", start + core, start + 50, physical_core=core, execution_id=execution, model_id="1")
        for execution, starts in ((1, (0, 100)), (2, (200,)))
        for start in starts
        for core in (0, 1)
    ]
    (row,) = found(inputs(both))
    assert (row["collective_count"], row["collective_ns"], row["longest_ns"]) == (3, 150, 50)


def test_streams_of_a_gpu_are_not_merged() -> None:
    (row,) = found(inputs([event("collective", 0, 50, stream_id=1), event("collective", 10, 60, stream_id=2)]))
    assert (row["collective_count"], row["collective_ns"]) == (2, 100)


def test_name_and_bytes_come_from_the_framework_then_the_operator_then_the_event() -> None:
    attrs = json.dumps({"Collective name": "allreduce", "In msg nelems": 100, "dtype": "BFloat16"})
    events = [
        event("collective", 0, 10, name="ncclKernel", attrs_json=attrs),
        event("collective", 10, 20, name="ncclKernel", attrs_json="{}"),
        event("collective", 20, 30, name="ncclKernel", attrs_json='{"dtype": "Odd", "In msg nelems": "x"}'),
    ]
    rows = found(inputs(events, [chain([2], name="c10d::allgather_")]))
    assert {(r["name"], r["moved_bytes"]) for r in rows} == {
        ("allreduce", 200), ("c10d::allgather_", None), ("ncclKernel", None),
    }  # fmt: skip


def test_bookkeeping_is_no_name_of_a_collective() -> None:
    events = [event("collective", 0, 10, name="ncclKernel_AllReduce")]
    (row,) = found(inputs(events, [chain([1], name="record_param_comms")]))
    assert row["name"] == "ncclKernel_AllReduce"


def test_the_rank_that_comes_last_is_told() -> None:
    events = [
        reduced("a", 100, 300), reduced("b", 150, 300), reduced("c", 240, 300),
        reduced("a", 1100, 1300), reduced("b", 1250, 1300), reduced("c", 1200, 1300),
    ]  # fmt: skip
    rows = {r["rank"]: r for r in found(on_ranks(events))}
    assert {k: (r["waited_ns"], r["last_count"], r["late_ns"]) for k, r in rows.items()} == {
        0: (290, 0, 0), 1: (90, 1, 50), 2: (50, 1, 90),
    }  # fmt: skip
    assert {(r["matched_count"], r["largest_skew_ns"]) for r in rows.values()} == {(2, 150)}


def test_arrivals_are_compared_on_the_common_clock() -> None:
    events = [reduced("a", 100, 300), reduced("b", 5_120, 5_300)]
    aligned = [{**RANKS[0], "clock_residual_ns": 7}, {**RANKS[1], "clock_offset_ns": -5_000, "clock_residual_ns": 9}]
    rows = {r["rank"]: r for r in found(on_ranks(events, sessions=aligned))}
    assert (rows[1]["last_count"], rows[1]["late_ns"], rows[1]["clock_residual_ns"]) == (1, 20, 9)
    apart = found(on_ranks(events))
    assert [(r["matched_count"], r["waited_ns"], r["largest_skew_ns"]) for r in apart] == [(0, 0, None)] * 2


def test_ranks_that_arrive_together_have_no_straggler() -> None:
    rows = found(on_ranks([reduced("a", 100, 300), reduced("b", 100, 300)]))
    assert [(r["matched_count"], r["last_count"], r["late_ns"]) for r in rows] == [(1, 0, 0)] * 2


def test_ranks_with_other_counts_are_matched_by_step_where_they_agree() -> None:
    events = [
        reduced("a", 100, 300), reduced("a", 400, 450),
        reduced("a", 1100, 1300), reduced("b", 1150, 1300),
    ]  # fmt: skip
    steps = [window(n * 1000, n * 1000 + 1000, n, s) for n in (0, 1) for s in ("a", "b")]
    rows = {(r["session"], r["step"]): r for r in found(on_ranks(events, steps), per="step")}
    assert {k: (r["matched_count"], r["last_count"]) for k, r in rows.items()} == {
        ("a", 0): (0, 0), ("a", 1): (1, 0), ("b", 1): (1, 1),
    }  # fmt: skip


def test_measuring_one_step_does_not_change_its_matches() -> None:
    events = [reduced(s, n * 1000 + 100 + d, n * 1000 + 300) for n in (0, 1) for d, s in enumerate("ab")]
    events[0]["start_ns"] = 40
    steps = [window(0, 1000, 0, s) for s in ("a", "b")] + [window(1000, 2000, 1, s) for s in ("a", "b")]
    whole = [r for r in found(on_ranks(events, steps), per="step") if r["step"] == 1]
    alone = found(on_ranks(events, [w for w in steps if w["step"] == 1]), per="step")
    assert alone == whole and len(alone) == 2


def test_gpus_are_matched_whatever_their_number() -> None:
    events = [reduced("a", 100, 300, core_index=0), reduced("b", 120, 300, core_index=1)]
    assert [r["matched_count"] for r in found(on_ranks(events))] == [1, 1]


def test_training_sample_equals_its_truth() -> None:
    folder = SAMPLES / "train_small"
    rows = {r["session"]: r for r in found(sample(folder))}
    processes = truth(folder)
    starts = {p["rank"]: [c["start_ns"] for c in p["collectives"]] for p in processes}
    for process in processes:
        row = rows[session_of(process["process_id"])]
        mine = process["collectives"]
        others = starts[1 - process["rank"]]
        assert (row["collective_count"], row["matched_count"]) == (3, 3)
        assert row["collective_ns"] == sum(c["end_ns"] - c["start_ns"] for c in mine)
        assert row["moved_bytes"] == mine[0]["bytes"]
        pairs = list(zip(starts[process["rank"]], others, strict=True))
        assert row["waited_ns"] == sum(max(0, b - a) for a, b in pairs)
        assert row["late_ns"] == sum(max(0, a - b) for a, b in pairs)
        assert row["last_count"] == sum(a > b for a, b in pairs)
        hidden = sum(
            max(0, min(c["end_ns"], e["hardware"][1]) - max(c["start_ns"], e["hardware"][0]))
            for c in mine
            for e in process["chains"]
            if e["hardware"]
        )
        assert row["hidden_ns"] == hidden


def test_result_has_the_tables_columns_and_types() -> None:
    for folder in ("rms_naive", "train_small"):
        assert dict(METRIC.compute(sample(SAMPLES / folder), {}).collect().schema) == COLLECTIVES.schema
