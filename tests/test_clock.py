"""Clocks of machines aligned by the collectives they share; causality counted, not repaired."""

from __future__ import annotations

import random

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.shared_data import CORPUS, needs_shared
from tracekit import clock, tables
from tracekit.ingestion import ingest

START_NS = 1_796_052_700_000_000_000


def collectives(
    session: str, ends: list[int], *, name: str = "cc_running", offset_ns: int = 0
) -> list[dict[str, object]]:
    common = {"session": session, "lane": "hardware", "kind": "collective", "source": "ntrace", "is_primary": True}
    return [common | {"name": name, "start_ns": end - 40_000 + offset_ns, "end_ns": end + offset_ns} for end in ends]


def step(session: str, number: int, start: int) -> dict[str, object]:
    place = {"session": session, "lane": "dispatch", "kind": "annotation", "source": "kineto", "is_primary": True}
    return place | {"name": f"ProfilerStep#{number}", "start_ns": start, "end_ns": start + 1}


def aligned(rows: list[dict[str, object]], hosts: dict[str, str | None]) -> clock.Aligned:
    events = tables.EVENTS.rows([r | {"event_id": n} for n, r in enumerate(rows)])
    sessions = tables.SESSIONS.rows(
        [{"session": s, "path": s, "instance_id": h, "rank": n} for n, (s, h) in enumerate(hosts.items())]
    )
    return clock.align(events.lazy(), sessions)


def offsets(found: clock.Aligned) -> dict[str, int | None]:
    return dict(found.sessions.select("session", "clock_offset_ns").iter_rows())


def irregular(seed: int, count: int) -> list[int]:
    rng = random.Random(seed)
    return [START_NS + sum(rng.randrange(2_000_000, 30_000_000) for _ in range(n + 1)) for n in range(count)]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.integers(-900_000_000, 900_000_000), st.integers(8, 60), st.integers(0, 3))
def test_machines_are_aligned_by_the_ends_of_their_collectives(seed: int, ahead_ns: int, count: int, lost: int):
    ends = irregular(seed, count)
    rng = random.Random(seed)
    late = [e + rng.randrange(50_000) for e in ends[lost:]]
    rows = collectives("a", ends) + collectives("b", late, offset_ns=ahead_ns)
    found = aligned(rows, {"a": "host-1", "b": "host-2"})
    got = found.sessions.row(1, named=True)
    assert got["clock_method"] == "collectives"
    assert abs(got["clock_offset_ns"] + ahead_ns) <= 50_000
    assert got["clock_residual_ns"] <= 100_000
    assert found.sessions.row(0, named=True)["clock_method"] == "reference"
    assert found.notes["code"].to_list() == ["clock_aligned"]


def test_steps_tell_regular_collectives_apart():
    ends = [START_NS + n * 10_000_000 for n in range(12)]
    rows = collectives("a", ends[2:]) + collectives("b", ends[:10], offset_ns=7_000)
    rows += [step("a", n, e - 1_000_000) for n, e in enumerate(ends) if n >= 2]
    rows += [step("b", n, e - 1_000_000) for n, e in enumerate(ends) if n < 10]
    assert offsets(aligned(rows, {"a": "x", "b": "y"})) == {"a": 0, "b": -7_000}


def test_sessions_of_one_machine_share_its_clock():
    ends = irregular(3, 10)
    rows = collectives("a", ends) + collectives("b", ends, offset_ns=40_000) + collectives("c", ends, offset_ns=-9_000)
    found = aligned(rows, {"a": "x", "b": "x", "c": "y"})
    assert offsets(found) == {"a": 0, "b": 0, "c": 9_000}
    assert found.sessions["clock_method"].to_list() == ["reference", "reference", "collectives"]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param([], id="none"),
        pytest.param(collectives("b", irregular(1, 2)), id="too-few"),
        pytest.param(collectives("b", irregular(99, 12), name="another"), id="other-names"),
    ],
)
def test_machines_without_common_collectives_stay_apart(other: list[dict[str, object]]):
    found = aligned(collectives("a", irregular(1, 12)) + other, {"a": "x", "b": "y"})
    assert found.sessions["clock_method"].to_list() == ["reference", "none"]
    assert found.sessions["clock_offset_ns"].to_list() == [0, None]
    assert found.notes["code"].to_list() == ["clock_not_aligned"]


def test_one_session_is_its_own_reference():
    found = aligned([], {"a": None})
    assert found.sessions.select("clock_method", "clock_offset_ns").row(0) == ("reference", 0)
    assert found.notes.is_empty()


def test_no_session_is_no_problem():
    assert aligned([], {}).sessions.is_empty()


@needs_shared
def test_two_ranks_of_one_job_are_found_on_one_clock(tmp_path):
    path = ingest([CORPUS / "hta/two_ranks"], tmp_path).path
    sessions = pl.read_parquet(path / "sessions.parquet")
    assert sessions.height == 2
    other = sessions.filter(pl.col("clock_method") == "collectives").row(0, named=True)
    assert abs(other["clock_offset_ns"]) < 300_000
    assert other["clock_residual_ns"] <= 200_000


def chain(number: int, **times: int) -> dict[str, object]:
    return {"chain_id": number, "session": "s", "name": "aten::mm", "kind": "execution", "complete": True} | {
        "hardware_ids": [],
        "device_ns": 0,
        **times,
    }


def test_effects_before_their_cause_are_counted():
    rows = [
        chain(0, dispatch_start_ns=0, submit_ns=5, hardware_start_ns=9),
        chain(1, dispatch_start_ns=10, submit_ns=3, hardware_start_ns=20),
        chain(2, submit_ns=50, hardware_start_ns=20),
        chain(3, submit_ns=50, hardware_start_ns=40),
        chain(4, dispatch_start_ns=7),
    ]
    notes = clock.causality(tables.CHAINS.rows(rows))
    assert dict(notes.select("code", "event_count").iter_rows()) == {
        "submit_before_dispatch": 1,
        "hardware_before_submit": 2,
    }
    assert "30 ns" in notes.filter(pl.col("code") == "hardware_before_submit")["message"][0]
