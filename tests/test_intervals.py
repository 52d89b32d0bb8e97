"""Interval arithmetic, against counting single nanoseconds in Python sets."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit import intervals

Rows = list[tuple[str | None, int, int]]
BY = ("track",)

_spans = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 30), st.integers(0, 9)).map(
        lambda t: (t[0], t[1], t[1] + t[2])
    ),
    max_size=12,
)


@st.composite
def _windows(draw: st.DrawFn) -> Rows:
    """Disjoint windows of track a (and null); some touch."""
    cuts = sorted(draw(st.sets(st.integers(0, 40), min_size=2, max_size=8)))
    keep = draw(st.lists(st.booleans(), min_size=len(cuts), max_size=len(cuts)))
    pairs = [p for p, kept in zip(pairwise(cuts), keep, strict=False) if kept]
    return [(track, start, end) for track in ("a", None) for start, end in pairs]


def frame(rows: Iterable[tuple[str | None, int, int]]) -> pl.LazyFrame:
    schema = {"track": pl.String(), "start_ns": pl.Int64(), "end_ns": pl.Int64()}
    return pl.LazyFrame(list(rows), schema=schema, orient="row")


def points(rows: Rows, track: str | None) -> set[int]:
    return {t for name, start, end in rows if name == track for t in range(start, end)}


def runs(rows: Rows) -> dict[str | None, set[int]]:
    return {track: points(rows, track) for track in ("a", "b", None)}


def as_rows(found: pl.LazyFrame) -> Rows:
    return [(r["track"], r["start_ns"], r["end_ns"]) for r in found.collect().to_dicts()]


def assert_disjoint_and_sorted(rows: Rows) -> None:
    for track in ("a", "b", None):
        mine = [r for r in rows if r[0] == track]
        assert all(start < end for _, start, end in mine)
        assert all(left[2] < right[1] for left, right in pairwise(mine))


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        pytest.param([("a", 0, 10), ("a", 15, 20)], [("a", 10, 15)], id="apart"),
        pytest.param([("a", 0, 10), ("a", 2, 3), ("a", 12, 20)], [("a", 10, 12)], id="nested"),
        pytest.param([("a", 0, 10), ("a", 10, 20)], [], id="touching"),
        pytest.param([("a", 0, 10), ("b", 15, 20)], [], id="other track"),
        pytest.param([("a", 0, 1), ("a", 5, 5), ("a", 9, 10)], [("a", 1, 9)], id="zero length"),
    ],
)
def test_gap_opens_only_after_all_earlier_intervals_ended(spans: Rows, expected: Rows) -> None:
    assert as_rows(intervals.gaps(frame(spans), BY)) == expected


def test_empty_frames_give_empty_frames() -> None:
    empty = frame([])
    for found in (
        intervals.union(empty, BY),
        intervals.gaps(empty, BY),
        intervals.overlap(empty, empty, BY),
        intervals.subtract(empty, empty, BY),
        intervals.covered(empty, empty, BY),
        intervals.clip(empty, empty, BY),
        intervals.within(empty, empty, BY),
        intervals.length(empty, BY),
    ):
        assert found.collect().is_empty()


@settings(deadline=None, max_examples=60)
@given(_spans, _spans)
def test_set_operations_equal_those_of_sets_of_nanoseconds(left: Rows, right: Rows) -> None:
    for function, expected in (
        (intervals.overlap, {t: points(left, t) & points(right, t) for t in ("a", "b", None)}),
        (intervals.subtract, {t: points(left, t) - points(right, t) for t in ("a", "b", None)}),
    ):
        found = as_rows(function(frame(left), frame(right), BY))
        assert_disjoint_and_sorted(found)
        assert runs(found) == expected
    merged = as_rows(intervals.union(frame(left), BY))
    assert_disjoint_and_sorted(merged)
    assert runs(merged) == runs(left)
    lengths = {r["track"]: r["length_ns"] for r in intervals.length(frame(left), BY).collect().to_dicts()}
    assert lengths == {t: len(p) for t, p in runs(left).items() if p}


@settings(deadline=None, max_examples=60)
@given(_spans)
def test_gaps_and_union_fill_the_whole(spans: Rows) -> None:
    found = runs(as_rows(intervals.gaps(frame(spans), BY)))
    for track, inside in runs(spans).items():
        whole = set(range(min(inside), max(inside) + 1)) if inside else set()
        assert found[track] == whole - inside


@settings(deadline=None, max_examples=60)
@given(_spans, _spans)
def test_covered_measures_each_row_by_itself(rows: Rows, spans: Rows) -> None:
    found = intervals.covered(frame(rows), frame(spans), BY).collect().rows()
    expected = [(t, s, e, len(set(range(s, e)) & points(spans, t))) for t, s, e in rows]
    assert sorted(found, key=str) == sorted(expected, key=str)


@settings(deadline=None, max_examples=60)
@given(_spans, _windows())
def test_clip_cuts_rows_to_windows(rows: Rows, windows: Rows) -> None:
    numbered = frame(windows).with_row_index("step")
    found = intervals.clip(frame(rows), numbered, BY).collect().rows()
    expected = [
        (t, max(s, a), min(e, b), step)
        for t, s, e in rows
        for step, (w, a, b) in enumerate(windows)
        if w == t and max(s, a) < min(e, b)
    ]
    assert sorted(found, key=str) == sorted(expected, key=str)


@settings(deadline=None, max_examples=60)
@given(_spans, _windows())
def test_within_keeps_rows_that_start_in_a_window(rows: Rows, windows: Rows) -> None:
    numbered = frame(windows).with_row_index("step")
    found = intervals.within(frame(rows), numbered, BY).collect().rows()
    expected = [(t, s, e, step) for t, s, e in rows for step, (w, a, b) in enumerate(windows) if w == t and a <= s < b]
    assert sorted(found, key=str) == sorted(expected, key=str)


@st.composite
def _calls(draw: st.DrawFn) -> Rows:
    """Properly nested calls on two threads."""
    found: Rows = []

    def fill(track: str, start: int, end: int, depth: int) -> None:
        at = start
        while at < end and depth < 4 and draw(st.booleans()):
            begin = draw(st.integers(at, end - 1))
            finish = draw(st.integers(begin, end))
            found.append((track, begin, finish))
            fill(track, begin, finish, depth + 1)
            at = finish

    for track in ("a", "b"):
        fill(track, 0, 40, 0)
    return found


@settings(deadline=None, max_examples=60)
@given(_calls(), st.integers(0, 5))
def test_innermost_is_the_shortest_call_around_each_nanosecond(calls: Rows, turn: int) -> None:
    order = list(enumerate(calls))
    order = order[turn:] + order[:turn]
    numbered = frame([c for _, c in order]).with_columns(call=pl.Series([n for n, _ in order], dtype=pl.Int64))
    found: dict[tuple[str | None, int], int] = {}
    for row in intervals.innermost(numbered, BY, "call").collect().to_dicts():
        for at in range(row["start_ns"], row["end_ns"]):
            assert found.setdefault((row["track"], at), row["call"]) == row["call"]
    expected: dict[tuple[str | None, int], tuple[int, int]] = {}
    for track, start, end in calls:
        for at in range(start, end):
            expected[track, at] = min(expected.get((track, at), (start, end)), (start, end), key=lambda c: c[1] - c[0])
    assert {k: calls[n][1:] for k, n in found.items()} == expected


def test_innermost_fills_all_time_of_given_groups() -> None:
    calls = frame([("a", 0, 10), ("a", 2, 5)]).with_columns(call=pl.Series([7, 8]))
    groups = pl.LazyFrame({"track": ["a", None]}, schema={"track": pl.String()})
    found = intervals.innermost(calls, BY, "call", groups).collect().sort("track", "start_ns")
    ends = (-(2**62), 2**62)
    assert found.rows() == [
        (None, None, *ends),
        ("a", None, ends[0], 0),
        ("a", 7, 0, 2),
        ("a", 8, 2, 5),
        ("a", 7, 5, 10),
        ("a", None, 10, ends[1]),
    ]


def test_innermost_invents_nothing_where_calls_do_not_nest() -> None:
    broken = frame([("a", 0, 10), ("a", 5, 15)]).with_columns(call=pl.Series([0, 1]))
    found = intervals.innermost(broken, BY, "call").collect().to_dicts()
    calls = [(0, 10), (5, 15)]
    assert found
    for row in found:
        start, end = calls[row["call"]]
        assert start <= row["start_ns"] < row["end_ns"] <= end


@settings(deadline=None, max_examples=30)
@given(_spans, _spans, st.integers(-(2**60), 2**60))
def test_shifting_time_or_shuffling_rows_changes_nothing(left: Rows, right: Rows, shift: int) -> None:
    moved = [(t, s + shift, e + shift) for t, s, e in reversed(left)]
    other = [(t, s + shift, e + shift) for t, s, e in reversed(right)]
    expected = [(t, s + shift, e + shift) for t, s, e in as_rows(intervals.subtract(frame(left), frame(right), BY))]
    found = as_rows(intervals.subtract(frame(moved), frame(other), BY))
    assert sorted(found, key=str) == sorted(expected, key=str)


@settings(deadline=None, max_examples=40)
@given(_windows(), _spans, _spans)
def test_measure_asks_each_nanosecond_of_each_window(windows: Rows, left: Rows, right: Rows) -> None:
    layers = {"left": intervals.union(frame(left), BY), "right": intervals.union(frame(right), BY)}
    here, there = pl.col("left"), pl.col("right")
    totals = {"both": here & there, "one": here & ~there, "none": ~here & ~there}
    found = intervals.measure(frame(windows), layers, BY, totals).collect().rows()
    expected = []
    for track, start, end in windows:
        inside, a, b = set(range(start, end)), points(left, track), points(right, track)
        expected.append((track, start, end, len(inside & a & b), len(inside & a - b), len(inside - a - b)))
    assert sorted(found, key=str) == sorted(expected, key=str)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([2, 10, None])), max_size=20))
def test_groups_are_numbered_by_their_values_in_order(rows: list[tuple[str | None, int | None]]) -> None:
    keys = pl.DataFrame(rows, schema={"session": pl.String, "core": pl.Int64}, orient="row")
    order = sorted(set(rows), key=lambda row: [(value is not None, value) for value in row])
    assert intervals.group_numbers(keys).to_list() == [order.index(row) for row in rows]
