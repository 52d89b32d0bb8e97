"""Spans: every event is drawn or counted in a block, and blocks neither overlap nor invent time."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.report import synthetic
from tracekit import tables
from tracekit.metrics.base import SCOPE, Inputs
from tracekit.report.spans import Spans, spans


def profile(rows: list[dict[str, object]]) -> Inputs:
    """Inputs with these events; what they leave out is filled in."""
    base = {"session": "s", "lane": "dispatch", "kind": "op", "source": "kineto", "is_primary": True, "name": "n"}
    events = tables.EVENTS.rows([{**base, "event_id": i, "thread_id": 1, **row} for i, row in enumerate(rows)])
    lazy = {n: t.empty().lazy() for n, t in {**tables.TABLES, "scope": SCOPE}.items()}
    lazy["events"] = events.lazy()
    lazy["sessions"] = tables.SESSIONS.rows([{"session": "s", "path": "."}]).lazy()
    return Inputs(**{name: lazy[name] for name in Inputs.names()})


def depths(*intervals: tuple[int, int]) -> list[int]:
    laid = spans(profile([{"start_ns": a, "end_ns": b} for a, b in intervals]), 0, None)
    by_event = laid.span_of.join(laid.rows.select("span", "depth"), on="span").sort("event_id")
    return by_event["depth"].to_list()


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        pytest.param([(0, 10), (10, 20)], [0, 0], id="touching"),
        pytest.param([(0, 10), (2, 8), (3, 4)], [0, 1, 2], id="nested"),
        pytest.param([(0, 10), (0, 10)], [0, 1], id="equal"),
        pytest.param([(0, 10), (5, 5)], [0, 1], id="instant inside"),
        pytest.param([(0, 0), (0, 10)], [1, 0], id="instant at the start"),
        pytest.param([(5, 9), (0, 10)], [1, 0], id="child first in the file"),
    ],
)
def test_depth_counts_the_open_spans(intervals: list[tuple[int, int]], expected: list[int]) -> None:
    assert depths(*intervals) == expected


TRACKS = [
    ({"lane": "dispatch", "thread_id": 7}, "thread 7"),
    ({"lane": "stream", "stream_id": 3, "thread_id": 9}, "stream 3"),
    ({"lane": "stream", "thread_id": 9}, "stream 9"),
    ({"lane": "runtime", "core_index": 2, "thread_id": 9}, "core 2"),
    ({"lane": "runtime", "thread_id": 9}, "thread 9"),
    ({"lane": "hardware", "core_index": 0, "physical_core": 1}, "core 0 · physical 1"),
    ({"lane": "hardware", "core_index": 6, "stream_id": 20}, "device 6 · stream 20"),
]


@pytest.mark.parametrize(("event", "label"), TRACKS, ids=[label for _, label in TRACKS])
def test_tracks_are_threads_streams_and_cores(event: dict[str, object], label: str) -> None:
    laid = spans(profile([{"start_ns": 0, "end_ns": 1, **event}]), 0, None)
    assert [(t.lane, t.label) for t in laid.tracks] == [(event["lane"], label)]


def test_the_lanes_come_in_order_and_secondary_events_are_not_drawn() -> None:
    rows = [{"start_ns": 0, "end_ns": 1, "lane": lane} for lane in reversed(tables.LANES)]
    rows.append({"start_ns": 0, "end_ns": 1, "lane": "hardware", "is_primary": False})
    laid = spans(profile(rows), 0, None)
    assert [t.lane for t in laid.tracks] == list(tables.LANES)
    assert laid.rows.height == 4
    assert any("1 events that another source also describes" in remark for remark in laid.remarks)


def check(laid: Spans, events: pl.DataFrame, limit: int) -> None:
    """What must hold however much is drawn as blocks."""
    assert laid.rows["count"].sum() == events.height
    assert laid.rows["busy"].sum() == (events["end_ns"] - events["start_ns"]).sum()
    assert laid.span_of["event_id"].sort().to_list() == events["event_id"].sort().to_list()
    assert laid.rows.height <= max(limit * 1.5, 20 * len(laid.tracks))
    placed = events.join(laid.span_of, on="event_id").join(laid.rows.drop("event_id"), on="span")
    assert (placed["start"] <= placed["start_ns"]).all()
    assert (placed["start"] + placed["length"] >= placed["end_ns"]).all()


nested = st.lists(
    st.tuples(st.integers(0, 5_000), st.integers(0, 400), st.sampled_from(["op", "python"]), st.integers(1, 2)),
    min_size=1,
    max_size=120,
)


@settings(max_examples=40, deadline=None)
@given(nested, st.integers(4, 60))
def test_blocks_hold_every_event_once(rows: list[tuple[int, int, str, int]], limit: int) -> None:
    made = [{"start_ns": a, "end_ns": a + n, "kind": kind, "thread_id": t} for a, n, kind, t in rows]
    inputs = profile(made)
    check(spans(inputs, 0, None, limit), inputs.events.collect(), limit)


def test_blocks_of_one_row_do_not_overlap() -> None:
    laid = spans(synthetic.inputs(40_000), synthetic.ORIGIN_NS, None, 5_000)
    rows = laid.rows.filter(pl.col("track").is_in([0, 1])).sort("track", "depth", "start")
    before = (pl.col("start") + pl.col("length")).shift().over("track", "depth")
    assert rows.filter(pl.col("start") < before).is_empty()
    assert laid.rows["count"].max() > 1


def test_some_steps_are_drawn_in_full_and_said() -> None:
    laid = spans(synthetic.inputs(40_000), synthetic.ORIGIN_NS, None, 5_000)
    assert laid.focus is not None
    inside = laid.rows.filter(laid.focus.holds())
    assert inside.height >= 400
    assert inside["count"].max() == 1
    assert any("are drawn as blocks" in remark for remark in laid.remarks)
    assert any(laid.focus.label in remark for remark in laid.remarks)


def test_without_steps_a_stretch_in_the_middle_is_drawn_in_full() -> None:
    rows = [{"start_ns": 10 * i, "end_ns": 10 * i + 5} for i in range(2_000)]
    laid = spans(profile(rows), 0, None, 200)
    assert laid.focus is not None
    assert laid.rows.filter(laid.focus.holds())["count"].to_list() == [1] * 100


def test_only_the_window_is_drawn() -> None:
    rows = [{"start_ns": a, "end_ns": a + 10} for a in (0, 100, 200)]
    assert spans(profile(rows), 0, (105, 150)).rows["start"].to_list() == [100]
