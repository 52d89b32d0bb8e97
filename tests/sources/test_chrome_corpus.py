"""The Chrome reader against real traces whose truth was computed independently."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.sources import chrome_reference
from tests.sources.memory_sink import MemorySink, artifact
from tracekit.sources import chrome

SHARED = Path(__file__).resolve().parents[2] / "../shared"
CORPUS = SHARED / "corpus"
DEVICE_KINDS = ("execution", "collective", "copy_in", "copy_out", "copy", "memory")
COPY_KINDS = ("copy_in", "copy_out", "copy")

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is not here")


def _expected() -> dict[str, Any]:
    path = CORPUS / "expected.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def _neuron() -> list[str]:
    return sorted(str(p.relative_to(SHARED)) for p in SHARED.glob("neuron/*/capture/**/trace.json"))


def _read(path: Path) -> MemorySink:
    sink = MemorySink("kineto")
    chrome.read(artifact(path), sink)
    return sink


@pytest.fixture(scope="module", params=sorted(_expected()))
def case(request: pytest.FixtureRequest) -> Iterator[tuple[dict[str, Any], MemorySink]]:
    yield _expected()[request.param], _read(CORPUS / request.param)


def _union_ns(spans: pl.DataFrame) -> int:
    total, end = 0, None
    for start, stop in spans.select("start_ns", "end_ns").sort("start_ns").iter_rows():
        if end is None or start > end:
            total, end = total + stop - start, stop
        elif stop > end:
            total, end = total + stop - end, stop
    return total


def test_counts_are_those_of_the_file(case: tuple[dict[str, Any], MemorySink]) -> None:
    expected, sink = case
    by_phase: dict[str, int] = {}
    for (phase, _), count in sink.counts.items():
        by_phase[phase] = by_phase.get(phase, 0) + count
    assert by_phase == expected["by_ph"]
    complete = {c: n for (p, c), n in sink.counts.items() if p == "X"}
    assert complete == expected["x_by_cat"]
    assert sum(by_phase.values()) == expected["event_count"]
    assert sink.events_frame().filter(phase="complete").height == expected["by_ph"]["X"]


def test_first_start_and_last_end_are_exact(case: tuple[dict[str, Any], MemorySink]) -> None:
    expected, sink = case
    complete = sink.events_frame().filter(phase="complete")
    assert complete["start_ns"].min() == expected["first_start_ns"]
    assert complete["end_ns"].max() == expected["last_end_ns"]


def test_device_work_is_exact(case: tuple[dict[str, Any], MemorySink]) -> None:
    expected, sink = case
    work = sink.events_frame().filter(pl.col("kind").is_in(DEVICE_KINDS), lane="hardware", phase="complete")
    assert work.is_empty() == ("device" not in expected)
    if work.is_empty():
        return
    device = expected["device"]
    spans = work.with_columns(busy_ns=pl.col("end_ns") - pl.col("start_ns"))
    window = spans["end_ns"].max() - spans["start_ns"].min()
    busy = _union_ns(spans)
    assert (len(spans), window, busy, window - busy) == tuple(
        device[k] for k in ("event_count", "window_ns", "busy_ns", "idle_ns")
    )
    assert spans["busy_ns"].sum() == device["sum_ns"]
    parts = {
        "collective_ns": _union_ns(spans.filter(kind="collective")),
        "copy_ns": _union_ns(spans.filter(pl.col("kind").is_in(COPY_KINDS))),
        "compute_ns": _union_ns(spans.filter(pl.col("kind").is_in(("execution", "memory")))),
    }
    assert parts == {name: device[name] for name in parts}
    top = (
        spans.group_by("name")
        .agg(calls=pl.len(), time_ns=pl.sum("busy_ns"))
        .sort(["time_ns", "name"], descending=[True, False])
    )
    # Equal times may come in any order in the truth: compare each name's numbers and the order of the times.
    found = {name: [name, calls, time] for name, calls, time in top.iter_rows()}
    assert [found[name] for name, _, _ in device["top_by_time"]] == device["top_by_time"]
    assert top["time_ns"].head(len(device["top_by_time"])).to_list() == [t for _, _, t in device["top_by_time"]]


def test_steps_and_operators_are_exact(case: tuple[dict[str, Any], MemorySink]) -> None:
    expected, sink = case
    events = sink.events_frame().with_columns(length_ns=pl.col("end_ns") - pl.col("start_ns"))
    steps = events.filter(pl.col("name").str.starts_with("ProfilerStep#"), kind="annotation", lane="dispatch")
    found = sorted(steps.select("name", "length_ns").rows())
    assert found == sorted(tuple(step) for step in expected.get("steps", []))
    operators = events.filter(pl.col("category") == "cpu_op")
    assert len(operators) == expected.get("cpu_ops", {"calls": 0})["calls"]
    for name, calls, total_ns, _ in expected.get("cpu_ops", {}).get("top_self", []):
        mine = operators.filter(name=name)
        assert (len(mine), mine["length_ns"].sum()) == (calls, total_ns)


@pytest.mark.parametrize("name", [f"corpus/{name}" for name in sorted(_expected())] + _neuron())
def test_rows_equal_those_of_a_plain_reader(name: str) -> None:
    path = SHARED / name
    header, events = chrome_reference.load(path)
    sink = _read(path)
    frame = sink.events_frame()
    expected = chrome_reference.rows(header, events)
    assert len(frame) == len(expected)
    columns = [c for c in expected[0] if c != "attrs"]
    assert frame.select(columns).rows() == [tuple(row[c] for c in columns) for row in expected]
    attrs = [None if t is None else json.loads(t, parse_float=Decimal) for t in frame["attrs_json"]]
    assert attrs == [row["attrs"] for row in expected]
    arrows = sink.side_frame("flows").drop("session")
    assert arrows.rows(named=True) == chrome_reference.flows(header, events)
    assert sink.notes == []


def test_neuron_traces_have_their_lanes() -> None:
    sink = _read(next(iter(SHARED.glob("neuron/rms_fused/capture/**/trace.json"))))
    frame = sink.events_frame()
    driver = frame.filter(category="privateuse1_driver")
    assert set(driver["lane"]) == {"stream"}
    assert driver["stream_id"].to_list() == driver["thread_id"].to_list()
    assert driver["model_id"].null_count() == 0
    assert driver["sequence_id"].to_list()[0] >= 2**48
    assert frame.filter(name="neuron::synchronize")["kind"].to_list() == ["sync"]
    assert sink.session_facts["session"]["device"] == "neuron"
    assert sink.session_facts["session"]["host_name"] == "trn2"
