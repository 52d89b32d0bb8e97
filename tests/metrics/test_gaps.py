"""Gaps: every nanosecond of idle time has exactly one cause."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.metrics.build import SAMPLES, Row, chain, event, inputs, sample, session_of, truth, window
from tracekit.metrics.base import Inputs
from tracekit.metrics.gaps import CAUSES, GAPS, METRIC, PARTS

SHARED = Path(__file__).resolve().parents[2] / "../shared/neuron"
FOLDERS = [SAMPLES / n for n in ("rms_naive", "rms_fused", "rms_compiled", "train_small")]
EXECUTIONS = [event("execution", 0, 100), event("execution", 200, 300)]


def found(given_inputs: Inputs, **options: str | int) -> list[dict[str, Any]]:
    return METRIC.compute(given_inputs, options).collect().to_dicts()


def parts(row: dict[str, Any]) -> dict[str, int]:
    return {cause: row[f"{cause}_ns"] for cause in CAUSES if row[f"{cause}_ns"]}


@pytest.mark.parametrize(
    ("others", "boundaries", "expected"),
    [
        pytest.param([], {}, {"unknown": 100}, id="no chain"),
        pytest.param([], {"dispatch_start_ns": 130, "submit_ns": 170},
                     {"not_dispatched": 30, "dispatching": 40, "runtime": 30}, id="by the chain"),
        pytest.param([], {"dispatch_start_ns": 20, "submit_ns": 60}, {"runtime": 100}, id="submitted before"),
        pytest.param([], {"dispatch_start_ns": 20}, {"unknown": 100}, id="dispatched, never seen to submit"),
        pytest.param([], {"dispatch_start_ns": 130}, {"not_dispatched": 30, "unknown": 70}, id="no submit"),
        pytest.param([], {"submit_ns": 170}, {"unknown": 70, "runtime": 30}, id="no dispatch"),
        pytest.param([], {"dispatch_start_ns": 150, "submit_ns": 140},
                     {"not_dispatched": 50, "runtime": 50}, id="submit before dispatch"),
        pytest.param([], {"dispatch_start_ns": 250, "submit_ns": 260}, {"not_dispatched": 100}, id="late clock"),
        pytest.param([event("collective", 90, 120), event("copy_in", 110, 140),
                      event("model", 135, 160, name="nc_model_switch")],
                     {"dispatch_start_ns": 150, "submit_ns": 180},
                     {"collective": 20, "copy": 20, "model_switch": 20, "dispatching": 20, "runtime": 20},
                     id="precedence"),
        pytest.param([event("copy_out", 120, 140, lane="runtime")],
                     {"dispatch_start_ns": 0, "submit_ns": 1}, {"copy": 20, "runtime": 80}, id="copy by the runtime"),
        pytest.param([event("collective", 110, 150, core_index=1), event("copy_in", 110, 150, session="t")],
                     {"dispatch_start_ns": 0, "submit_ns": 1}, {"runtime": 100}, id="other core, other process"),
        pytest.param([event("copy_in", 110, 150, core_index=1)],
                     {"dispatch_start_ns": 0, "submit_ns": 1}, {"copy": 40, "runtime": 60}, id="same process"),
        pytest.param([event("sync", 110, 150), event("collective", 110, 150, is_primary=False)],
                     {"dispatch_start_ns": 0, "submit_ns": 1}, {"runtime": 100}, id="neither busy nor idle"),
    ],
)  # fmt: skip
def test_parts_of_one_gap(others: list[Row], boundaries: Row, expected: dict[str, int]) -> None:
    chains = [chain([2], **boundaries)] if boundaries else []
    (row,) = [r for r in found(inputs([*EXECUTIONS, *others], chains)) if r["core_index"] == 0]
    assert (row["start_ns"], row["end_ns"], row["gap_ns"]) == (100, 200, 100)
    assert parts(row) == expected


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        pytest.param([(0, 100), (50, 60), (120, 130)], [(100, 120)], id="nested"),
        pytest.param([(0, 100), (100, 130)], [], id="touching"),
        pytest.param([(0, 100), (110, 110), (120, 130)], [(100, 120)], id="zero length"),
        pytest.param([(0, 100)], [], id="one execution"),
        pytest.param([], [], id="none"),
    ],
)
def test_a_gap_lies_between_executions(spans: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    rows = found(inputs([event("execution", *s) for s in spans] or [event("op", 0, 9, lane="dispatch")]))
    assert [(r["start_ns"], r["end_ns"]) for r in rows] == expected


def test_physical_cores_are_merged_and_logical_cores_are_not() -> None:
    events = [
        event("execution", 0, 90, physical_core=0), event("execution", 5, 100, physical_core=1),
        event("execution", 130, 150, physical_core=0), event("execution", 120, 140, physical_core=1),
        event("execution", 0, 10, core_index=1), event("execution", 50, 60, core_index=1),
    ]  # fmt: skip
    chains = [chain([1, 2], name="a"), chain([3, 4], name="b"), chain([5], name="c", core_index=1)]
    rows = found(inputs(events, chains))
    assert [(r["core_index"], r["start_ns"], r["end_ns"]) for r in rows] == [(0, 100, 120), (1, 10, 50)]
    assert [(r["before_name"], r["after_name"]) for r in rows] == [("a", "b"), ("c", "execution")]


def test_windows_cut_gaps_and_lose_nothing_between_touching_windows() -> None:
    chains = [chain([2], dispatch_start_ns=130, submit_ns=170)]
    whole = found(inputs(EXECUTIONS, chains))
    steps = [window(0, 150, 3), window(150, 300, 4)]
    rows = found(inputs(EXECUTIONS, chains, steps))
    assert [(r["step"], r["start_ns"], r["end_ns"]) for r in rows] == [(3, 100, 150), (4, 150, 200)]
    assert [parts(r) for r in rows] == [
        {"not_dispatched": 30, "dispatching": 20},
        {"dispatching": 20, "runtime": 30},
    ]
    assert all(sum(r[p] for r in rows) == whole[0][p] for p in PARTS)


def test_longer_than_leaves_out_gaps_of_exactly_that_length() -> None:
    assert found(inputs(EXECUTIONS), longer_than=100) == []
    assert len(found(inputs(EXECUTIONS), longer_than=99)) == 1


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
def test_made_up_samples_equal_their_truth(folder: Path) -> None:
    tables = sample(folder)
    whole = tables.scope.group_by("session").agg(
        step=pl.lit(None, dtype=pl.Int64), start_ns=pl.col("start_ns").min(), end_ns=pl.lit(2**62)
    )
    rows = found(dataclasses.replace(tables, scope=whole))
    for process in truth(folder):
        mine = [r for r in rows if r["session"] == session_of(process["process_id"])]
        names = {c["exec_id"]: c["op"] for c in process["chains"]}
        expected = [
            (g["start_ns"], g["end_ns"], names[g["before"]], names[g["after"]], g["parts"] | {"unknown": 0})
            for g in process["gaps"]
        ]
        assert [
            (r["start_ns"], r["end_ns"], r["before_name"], r["after_name"], {c: r[f"{c}_ns"] for c in CAUSES})
            for r in mine
        ] == expected


@pytest.mark.parametrize("by", ["cause", "op", "host", "size"])
@pytest.mark.parametrize("per", ["overall", "step"])
def test_groups_add_up_to_the_gaps(by: str, per: str) -> None:
    tables = sample(SAMPLES / "train_small")
    rows, groups = found(tables), found(tables, by=by, per=per)
    for column in ("gap_ns", *PARTS):
        assert sum(r[column] for r in groups) == sum(r[column] for r in rows)
    if by in ("op", "size"):
        assert sum(r["gap_count"] for r in groups) == len(rows)
    if by == "cause":
        assert {r["group"] for r in groups} == set(CAUSES) - {"unknown"}
        assert all(r["gap_ns"] == r[f"{r['group']}_ns"] for r in groups)
    assert {r["step"] for r in groups} == ({0, 1, 2} if per == "step" else {None})
    assert all(r["gap_ns"] == sum(r[p] for p in PARTS) for r in groups)


def test_result_has_the_tables_columns_and_types() -> None:
    for options in ({}, *({"by": by} for by in ("cause", "op", "host", "size"))):
        frame = METRIC.compute(sample(SAMPLES / "rms_naive"), options).collect()
        assert dict(frame.schema) == GAPS.schema
        GAPS.conform(frame)


def on_host(kind: str, start: int, end: int, name: str, thread: int = 7) -> Row:
    return event(kind, start, end, lane="dispatch", name=name, process_id=1, thread_id=thread)


def test_by_host_says_what_the_late_operators_thread_did() -> None:
    events = [
        *EXECUTIONS,
        on_host("op", 90, 130, "aten::item"),
        on_host("python", 0, 300, "torch/nn/module.py(1): call"),
        on_host("python", 80, 160, "train.py(12): step"),
        on_host("op", 160, 190, "aten::mul"),
        on_host("annotation", 0, 300, "ProfilerStep#3"),
        on_host("op", 0, 300, "stranger", thread=8),
    ]
    rows = found(inputs(events, [chain([2], dispatch_id=6, dispatch_start_ns=160, submit_ns=180)]), by="host")
    assert {r["group"]: r["gap_ns"] for r in rows} == {
        "train.py(12): step › aten::item": 30,
        "train.py(12): step › (between operators)": 30,
        "aten::mul": 30,
        "(between operators)": 10,
    }
    assert {r["group"]: parts(r) for r in rows}["aten::mul"] == {"dispatching": 20, "runtime": 10}
    assert {(r["gap_count"], r["longest_ns"]) for r in rows} == {(1, 100)}
    assert [r["group"] for r in found(inputs(events), by="host")] == ["(thread not known)"]


_spans = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 30)).map(lambda t: (t[0], sum(t))), max_size=10)
_times = st.one_of(st.none(), st.integers(0, 250))


@settings(deadline=None, max_examples=40)
@given(_spans, st.lists(st.tuples(_times, _times), min_size=10, max_size=10), _spans, _spans, st.integers(0, 2**50))
def test_every_nanosecond_has_the_first_cause_that_holds(
    executions: list[tuple[int, int]],
    times: list[tuple[int | None, int | None]],
    collectives: list[tuple[int, int]],
    copies: list[tuple[int, int]],
    shift: int,
) -> None:
    """Against asking each nanosecond; then moved in time, shuffled, and with a stranger beside it."""
    events = [event("execution", *s) for s in executions]
    others = [event("collective", *s) for s in collectives] + [event("copy_in", *s) for s in copies]
    chains = [
        chain([n], dispatch_start_ns=d, submit_ns=s)
        for n, (_, (d, s)) in enumerate(zip(events, times, strict=False), 1)
    ]
    if not events:
        return
    rows = found(inputs([*events, *others], chains, [window(0, 300)]))
    work = {t for s, e in executions for t in range(s, e)}
    idle = {t for t in range(min(work), max(work)) if t not in work} if work else set()
    assert sum(r["gap_ns"] for r in rows) == len(idle)
    for row in rows:
        after = next(n for n, (s, e) in enumerate(executions) if s == row["end_ns"] and e > s)
        expected = dict.fromkeys(CAUSES, 0)
        for at in range(row["start_ns"], row["end_ns"]):
            expected[_cause(at, times[after], collectives, copies)] += 1
        assert {c: row[f"{c}_ns"] for c in CAUSES} == expected
    moved = found(_moved([*events, *others], chains, shift))
    assert [{**r, "start_ns": r["start_ns"] - shift, "end_ns": r["end_ns"] - shift} for r in moved] == rows


def _cause(
    at: int,
    times: tuple[int | None, int | None],
    collectives: list[tuple[int, int]],
    copies: list[tuple[int, int]],
) -> str:
    dispatched, submitted = times
    if any(s <= at < e for s, e in collectives):
        return "collective"
    if any(s <= at < e for s, e in copies):
        return "copy"
    if dispatched is not None and at < dispatched:
        return "not_dispatched"
    if submitted is None:
        return "unknown"
    if at < submitted:
        return "unknown" if dispatched is None else "dispatching"
    return "runtime"


def _moved(events: list[Row], chains: list[Row], shift: int) -> Inputs:
    """The same tables later in time, rows reversed, with a process of another session beside them."""

    def later(row: Row) -> Row:
        return {k: v + shift if k.endswith("_ns") and isinstance(v, int) else v for k, v in row.items()}

    numbered = [{"event_id": n, **later(e)} for n, e in enumerate(events, start=1)]
    stranger = [event("collective", shift, shift + 300, session="t", event_id=1000)]
    return inputs(
        [*reversed(numbered), *stranger], [later(c) | {"device_ns": 0} for c in chains], [window(shift, shift + 300)]
    )
