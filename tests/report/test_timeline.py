"""The timeline's data: chains point to the spans of their events, gaps lie on tracks of their own."""

from __future__ import annotations

import polars as pl
import pytest

from tests.report import synthetic
from tracekit.metrics.base import Inputs
from tracekit.report.model import Timeline
from tracekit.report.results import Results
from tracekit.report.timeline import CAUSES, joined, timeline

LINKS = {
    "dispatch": "dispatch_id",
    "launch": "launch_id",
    "stream": "stream_id",
    "submit": "submit_id",
    "wait": "wait_id",
}


def drawn(inputs: Inputs, **options: int) -> Timeline:
    found = timeline(inputs, Results(inputs).get("gaps"), **options)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def two() -> Inputs:
    return synthetic.inputs(1_600, sessions=2)


def test_every_hop_is_the_span_of_its_event(two: Inputs) -> None:
    found = drawn(two)
    events = two.events.collect()
    chains = two.chains.sort("dispatch_start_ns", maintain_order=True).collect()
    starts = events.select("event_id", at=pl.col("start_ns") - found.origin_ns)
    for link, column in LINKS.items():
        expected = chains.select(event_id=column).join(starts, on="event_id", maintain_order="left")["at"]
        got = found.spans["start"].gather(found.chains[link])
        assert sorted(got.to_list()) == sorted(expected.to_list()), link
    assert found.hardware.height == 2 * chains.height
    kinds = found.spans["kind"].gather(found.hardware["span"]).unique().to_list()
    assert kinds == [found.kinds.index("execution")]


def test_texts_are_numbered_once(two: Inputs) -> None:
    found = drawn(two)
    assert len(found.texts) == len(set(found.texts))
    names = [found.texts[i] for i in found.spans["name"].to_list()]
    assert sorted(names) == sorted(two.events.collect()["name"].to_list())


def test_gaps_have_tracks_and_their_parts_sum(two: Inputs) -> None:
    found = drawn(two)
    tracks = [t for t in found.tracks if t.lane == "gaps"]
    assert len(tracks) == 2
    assert set(found.gaps["track"].to_list()) == {found.tracks.index(t) for t in tracks}
    parts = found.gaps.select(pl.sum_horizontal(f"{cause}_ns" for cause in CAUSES)).to_series()
    assert parts.to_list() == found.gaps["length"].to_list()


def test_the_measured_steps_are_in_view_at_first(two: Inputs) -> None:
    found = drawn(two)
    assert [label for label, _, _ in found.steps] == ["step 0", "step 1"]
    assert found.view[0] <= found.steps[0][1]
    assert found.view[1] >= found.steps[-1][2] or found.view[1] == found.window_ns


def test_no_events_is_no_timeline(two: Inputs) -> None:
    empty = Inputs(**{**{n: getattr(two, n) for n in Inputs.names()}, "events": two.events.clear()})
    assert timeline(empty, None) is None


def test_two_timelines_stand_below_each_other(two: Inputs) -> None:
    a, b = drawn(two), drawn(synthetic.inputs(800))
    both = joined(a, b)
    assert [t.side for t in both.tracks] == ["A"] * len(a.tracks) + ["B"] * len(b.tracks)
    assert both.spans.height == a.spans.height + b.spans.height
    tail = both.spans.tail(b.spans.height)
    assert [both.texts[i] for i in tail["name"].to_list()] == [b.texts[i] for i in b.spans["name"].to_list()]
    chain = both.chains.tail(1).to_dicts()[0]
    assert both.spans["start"][chain["dispatch"]] == b.spans["start"][b.chains["dispatch"][-1]]
    last = both.hardware.tail(1).to_dicts()[0]
    assert last["chain"] == both.chains.height - 1
    assert both.texts[both.spans["name"][last["span"]]] == "nc_exec_running"


def test_a_large_profile_keeps_its_chains_in_the_part_that_is_drawn_in_full() -> None:
    inputs = synthetic.inputs(40_000)
    found = drawn(inputs, span_limit=5_000)
    assert found.focus is not None
    _, start, end = found.focus
    inside = found.chains.filter(pl.col("dispatch_at").is_between(start, end, closed="left"))
    counts = found.spans["count"].gather(inside["dispatch"])
    assert inside.height >= 50
    assert counts.max() == 1
