"""The innermost enclosing interval, against a search through all of them."""

from __future__ import annotations

import itertools

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.links.enclosure import innermost

Span = tuple[int, int]


def nested(cuts: list[int], depth: int) -> list[Span]:
    """Properly nested spans: an outer one and, inside it, spans over consecutive cuts, and so on."""
    ordered = sorted(cuts)
    spans = [(a, b) for a, b in itertools.pairwise(ordered)]
    inner = (
        [s for i, (a, b) in enumerate(spans) for s in nested([*ordered[i : i + 2], (a + b) // 2], depth - 1)]
        if depth
        else []
    )
    return spans[::2] + inner


def brute(spans: list[Span], at: int) -> Span | None:
    holding = [s for s in spans if s[0] <= at < s[1]]
    return max(holding, key=lambda s: (s[0], -s[1])) if holding else None


def search(spans: dict[int, list[Span]], moments: list[tuple[int, int]]) -> dict[int, Span]:
    rows = [(n, track, *span) for track, own in spans.items() for n, span in enumerate(own, 1000 * track)]
    schema = {"event_id": pl.Int64, "track": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}
    intervals = pl.DataFrame(rows, schema=schema, orient="row")
    asked = pl.DataFrame(
        [(n, *m) for n, m in enumerate(moments)],
        schema={"effect": pl.UInt32, "track": pl.Int64, "at": pl.Int64},
        orient="row",
    )
    by_id = {r[0]: (r[2], r[3]) for r in rows}
    return {effect: by_id[event] for effect, event in innermost(intervals, asked, ["track"]).iter_rows()}


CUTS = st.lists(st.integers(0, 60), max_size=8)
MOMENTS = st.lists(st.tuples(st.integers(0, 1), st.integers(-2, 62)), max_size=20)


@settings(max_examples=60, deadline=None)
@given(st.tuples(CUTS, CUTS), st.integers(0, 2), MOMENTS)
def test_nested_intervals_give_the_innermost(cuts: tuple[list[int], list[int]], depth: int, moments: list[Span]):
    spans = {track: nested(own, depth) for track, own in enumerate(cuts)}
    found = search(spans, moments)
    assert found == {n: s for n, (track, at) in enumerate(moments) if (s := brute(spans[track], at)) is not None}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12), MOMENTS)
def test_broken_nesting_never_gives_an_interval_that_does_not_hold_the_moment(spans: list[Span], moments: list[Span]):
    own = [(min(s), max(s)) for s in spans]
    for n, (start, end) in search({0: own, 1: []}, moments).items():
        assert start <= moments[n][1] < end
        assert moments[n][0] == 0
