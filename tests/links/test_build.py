"""Links and chains of made-up captures, against what is known of them."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tests.links.generator import START_NS, Capture, Owner, Plan, gpu, neuron, without
from tracekit import links, tables
from tracekit.links import Linked

NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
"""A plan is a seed and some sizes: a smaller one is hardly easier to read, and each try costs a whole build."""
QUICK = settings(max_examples=12, deadline=None, phases=NO_SHRINKING, suppress_health_check=[HealthCheck.too_slow])
WHOLE = {"dispatch_id": "op", "launch_id": "call", "stream_id": "stream", "submit_id": "submit", "wait_id": "wait"}


def build(capture: Capture, flows: pl.DataFrame | None = None) -> Linked:
    flows = tables.FLOWS.empty() if flows is None else flows
    return links.build(capture.events.lazy(), flows.lazy(), capture.sessions.lazy())


def whole_plans(**fixed: object) -> st.SearchStrategy[Plan]:
    return st.builds(
        lambda **values: without(Plan(), **(values | fixed)),
        seed=st.integers(0, 10_000),
        sessions=st.integers(1, 3),
        cores=st.integers(1, 3),
        executions=st.integers(0, 25),
        models=st.integers(1, 5),
        queue=st.integers(1, 3),
        per_model=st.booleans(),
        external_ids=st.booleans(),
        twins=st.booleans(),
        cut_tail=st.integers(0, 3),
        skew_ns=st.tuples(st.integers(-5_000_000, 5_000_000), st.integers(-5_000_000, 5_000_000)),
    )


def damaged_plans() -> st.SearchStrategy[Plan]:
    return st.builds(
        lambda **values: without(Plan(executions=40, models=3), **values),
        seed=st.integers(0, 10_000),
        sessions=st.integers(1, 3),
        twins=st.booleans(),
        drop=st.floats(0.0, 0.2),
        cut_tail=st.integers(0, 5),
        skew_ns=st.tuples(st.integers(-100_000, 100_000), st.integers(-100_000, 100_000)),
    )


def work_ids(capture: Capture) -> list[int]:
    work = ["execution", "collective", "copy_in", "copy_out", "copy", "memory"]
    rows = capture.events.filter("is_primary", pl.col("lane") == "hardware", pl.col("kind").is_in(work))
    return sorted(rows["event_id"].to_list())


def assert_sound(capture: Capture, linked: Linked) -> None:
    """What holds for every capture, however damaged."""
    held = linked.chains["hardware_ids"].explode().drop_nulls().to_list()
    assert sorted(held) == work_ids(capture)
    for column in ("launch_id", "stream_id", "submit_id", "wait_id"):
        if column not in ("launch_id", "submit_id") or not linked.chains["hardware_ids"].list.len().gt(2).any():
            assert not linked.chains[column].drop_nulls().is_duplicated().any(), column
    for chain in linked.chains.iter_rows(named=True):
        events = [chain[c] for c in ("launch_id", "stream_id", "submit_id", "wait_id") if chain[c] is not None]
        owners = {capture.owners[e] for e in (*events, *chain["hardware_ids"])}
        assert len(owners) == 1, chain
        if chain["dispatch_id"] is not None and chain["dispatch_id"] in capture.owners:
            assert owners == {capture.owners[chain["dispatch_id"]]}
    assert_links_are_true(capture, linked.links)
    assert linked.chains["chain_id"].to_list() == list(range(linked.chains.height))
    assert (linked.chains["complete"] == linked.chains["missing"].is_null()).all()


def assert_links_are_true(capture: Capture, rows: pl.DataFrame) -> None:
    session = dict(capture.events.select("event_id", "session").iter_rows())
    assert not rows.select("from_id", "to_id").is_duplicated().any()
    for name, cause, effect, method in rows.select(tables.LINKS.names).iter_rows():
        assert session[cause] == session[effect] == name
        if cause in capture.owners:
            assert capture.owners[cause] == capture.owners[effect]
        else:
            assert method == "enclosure"
            assert capture.times[cause][0] <= capture.times[effect][0] <= capture.times[cause][1]


def truth(capture: Capture, owner: Owner) -> dict[str, object]:
    """A chain whose every event survived."""
    events, times = capture.events_of(owner), capture.times
    hardware = sorted(events.get("hw0", []) + events.get("hw1", []))
    spans = [times[e] for e in hardware]
    start, end = (min(s for s, _ in spans), max(e for _, e in spans)) if spans else (None, None)
    reached = any(o[0] == owner[0] and capture.roles[e] == "hw0" for e, o in capture.owners.items())
    ids: dict[str, object] = {column: events[role][0] for column, role in WHOLE.items()}
    (dispatch, submit, wait) = (times[events[role][0]] for role in ("op", "submit", "wait"))
    return ids | {
        "session": owner[0],
        "name": capture.names[owner],
        "hardware_ids": hardware,
        "dispatch_start_ns": dispatch[0],
        "dispatch_end_ns": dispatch[1],
        "submit_ns": submit[0],
        "submit_end_ns": submit[1],
        "wait_start_ns": wait[0],
        "wait_end_ns": wait[1],
        "hardware_start_ns": start,
        "hardware_end_ns": end,
        "device_ns": 0 if start is None or end is None else end - start,
        "complete": bool(hardware) or not reached,
        "missing": "hardware" if reached and not hardware else None,
    }


@QUICK
@given(whole_plans())
def test_whole_captures_give_every_execution_once_with_exact_times(plan: Plan):
    capture = neuron(plan)
    linked = build(capture)
    assert_sound(capture, linked)
    if not capture.names:
        return
    expected = sorted((truth(capture, o) for o in capture.names), key=lambda c: str(c["dispatch_id"]))
    got = sorted(linked.chains.select(list(expected[0])).to_dicts(), key=lambda c: str(c["dispatch_id"]))
    assert got == expected


@QUICK
@given(damaged_plans())
def test_dropped_events_cost_links_but_invent_none(plan: Plan):
    capture = neuron(plan)
    linked = build(capture)
    assert_sound(capture, linked)
    running = {o for e, o in capture.owners.items() if capture.roles[e] in ("hw0", "hw1")}
    chains = linked.chains.filter(pl.col("hardware_ids").list.len() > 0)
    assert chains.height == len(running)
    for owner in capture.names:
        events = capture.events_of(owner)
        if {*WHOLE.values(), "pre", "post", "hw0", "hw1"} <= set(events):
            chain = linked.chains.filter(pl.col("hardware_ids").list.contains(events["hw0"][0])).row(0, named=True)
            expected = truth(capture, owner)
            assert {k: chain[k] for k in expected} == expected


@QUICK
@given(whole_plans(drop=0.1, queue=1, per_model=False), st.integers(0, 100))
def test_order_of_rows_changes_nothing(plan: Plan, seed: int):
    capture = neuron(plan)
    linked = build(capture)
    capture.events = capture.events.sample(fraction=1, shuffle=True, seed=seed)
    again = build(capture)
    assert_frame_equal(linked.chains, again.chains)
    assert_frame_equal(linked.links, again.links)
    assert_frame_equal(linked.notes, again.notes)


@QUICK
@given(whole_plans(twins=False, cut_tail=0, drop=0.1, queue=1, per_model=False))
def test_events_that_a_better_source_describes_change_nothing(plan: Plan):
    alone, twice = neuron(plan), neuron(without(plan, twins=True))
    doubled = pl.concat(
        [
            alone.events,
            alone.events.with_columns(pl.col("event_id") + 1, is_primary=pl.lit(False), source=pl.lit("ntrace")),
        ]
    )
    linked = build(alone)
    alone.events = doubled
    assert_frame_equal(build(alone).chains, linked.chains)
    assert_sound(twice, build(twice))


@QUICK
@given(whole_plans(external_ids=True, cut_tail=0))
def test_hops_are_in_causal_order_or_reported(plan: Plan):
    capture = neuron(plan)
    linked = build(capture)
    chains = linked.chains
    hops = {
        "submit_before_dispatch": ("dispatch_start_ns", "submit_ns"),
        "hardware_before_submit": ("submit_ns", "hardware_start_ns"),
        "hardware_before_dispatch": ("dispatch_start_ns", "hardware_start_ns"),
    }
    for code, (cause, effect) in hops.items():
        broken = chains.filter(pl.col(effect) < pl.col(cause)).height
        assert linked.notes.filter(pl.col("code") == code)["event_count"].sum() == broken
    for event, (start, end) in capture.times.items():
        row = capture.events.filter(pl.col("event_id") == event).row(0, named=True)
        assert (row["start_ns"], row["end_ns"]) == (start, end)


@QUICK
@given(
    seed=st.integers(0, 10_000),
    sessions=st.integers(1, 3),
    executions=st.integers(0, 40),
    drop=st.floats(0, 0.3),
    graph=st.integers(0, 6),
    external_ids=st.booleans(),
)
def test_gpu_work_joins_its_call_by_correlation(
    seed: int, sessions: int, executions: int, drop: float, graph: int, external_ids: bool
):
    plan = Plan(seed=seed, sessions=sessions, executions=executions, drop=drop, external_ids=external_ids)
    capture = gpu(plan, graph=graph)
    linked = build(capture)
    held = linked.chains["hardware_ids"].explode().drop_nulls().to_list()
    assert sorted(held) == work_ids(capture)
    assert_links_are_true(capture, linked.links)
    for chain in linked.chains.iter_rows(named=True):
        events = [e for e in (chain["launch_id"], *chain["hardware_ids"]) if e is not None]
        (owner,) = {capture.owners[e] for e in events}
        survived = capture.events_of(owner)
        assert chain["submit_id"] == chain["launch_id"] == survived.get("call", [None])[0]
        if "op" in survived and (external_ids or chain["launch_id"] is not None):
            assert chain["dispatch_id"] == survived["op"][0]
            assert chain["name"] == capture.names[owner]


def test_a_trace_without_a_device_costs_one_scan_of_narrow_columns():
    events = tables.EVENTS.rows(
        [
            {
                "event_id": 1,
                "session": "s",
                "lane": "dispatch",
                "kind": "op",
                "source": "kineto",
                "is_primary": True,
                "name": "aten::mm",
                "start_ns": START_NS,
                "end_ns": START_NS + 5,
            }
        ]
    )
    narrow = events.lazy().select("session", "lane", "kind", "is_primary")
    linked = links.build(narrow, tables.FLOWS.empty().lazy(), tables.SESSIONS.empty().lazy())
    assert linked.links.is_empty()
    assert linked.chains.is_empty()
    assert linked.notes.is_empty()


@pytest.mark.parametrize(
    ("lanes", "code"),
    [
        pytest.param(("runtime", "hardware"), "no_framework_events", id="environment-variables-only"),
        pytest.param(("dispatch", "stream"), "no_device_events", id="framework-only"),
    ],
)
def test_partial_captures_are_complete_in_what_they_have_and_say_what_lacks(lanes: tuple[str, ...], code: str):
    capture = neuron(Plan(lanes=lanes, executions=8))
    linked = build(capture)
    assert linked.chains.height == 8
    assert linked.chains["complete"].all()
    assert code in linked.notes["code"].to_list()


def test_profile_cut_at_the_start_keeps_what_runs_without_a_launch():
    capture = neuron(Plan(executions=20, models=1))
    cut = START_NS + 150_000
    capture.events = capture.events.filter(pl.col("start_ns") >= cut)
    linked = build(capture)
    held = linked.chains["hardware_ids"].explode().drop_nulls().to_list()
    assert sorted(held) == work_ids(capture)
    assert linked.chains.filter("complete").height >= 5
    assert_links_are_true(capture, linked.links)
