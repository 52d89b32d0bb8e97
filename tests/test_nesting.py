"""Nesting equals the walk with a stack that it stands for, on any intervals."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tracekit import nesting

Span = tuple[int | None, int, int]


def frame(spans: list[Span]) -> pl.DataFrame:
    rows = [
        {"track": track, "event_id": n, "start_ns": start, "end_ns": start + length, "value": n % 5 or None}
        for n, (track, start, length) in enumerate(spans)
    ]
    schema = {"track": pl.Int64, "event_id": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64, "value": pl.Int64}
    return pl.DataFrame(rows, schema=schema)


def walked(spans: list[Span]) -> dict[int, int | None]:
    """Parent of each span, by the stack of ``EventList._populate_cpu_children``."""
    order = sorted(range(len(spans)), key=lambda n: (spans[n][1], -(spans[n][1] + spans[n][2]), n))
    parents: dict[int, int | None] = {}
    stacks: dict[int | None, list[int]] = {}
    for n in order:
        track, start, length = spans[n]
        stack = stacks.setdefault(track, [])
        while stack:
            _, top_start, top_length = spans[stack[-1]]
            if start >= top_start + top_length or start + length > top_start + top_length:
                stack.pop()
            else:
                break
        parents[n] = stack[-1] if stack else None
        stack.append(n)
    return parents


def ancestors(n: int, parents: dict[int, int | None]) -> list[int]:
    parent = parents[n]
    return [] if parent is None else [parent, *ancestors(parent, parents)]


def parents_of(tree: pl.DataFrame) -> dict[int, int | None]:
    ids = tree["event_id"].to_list()
    places = tree["parent_position"].to_list()
    return {n: None if place is None else ids[place] for n, place in zip(ids, places, strict=True)}


spans = st.lists(st.tuples(st.sampled_from([None, 1, 2]), st.integers(0, 25), st.integers(0, 12)), max_size=40)


@pytest.mark.parametrize(
    ("case", "parents"),
    [
        pytest.param([(1, 0, 10), (1, 1, 3), (1, 2, 1)], [None, 0, 1], id="nested"),
        pytest.param([(1, 0, 10), (1, 5, 10), (1, 6, 2)], [None, None, 1], id="overlapping becomes the parent"),
        pytest.param([(1, 0, 4), (1, 4, 0), (1, 2, 2)], [None, None, 0], id="touching ends"),
        pytest.param([(1, 0, 4), (1, 0, 4)], [None, 0], id="equal: first in order is the parent"),
        pytest.param([(1, 3, 0), (1, 3, 0)], [None, None], id="instants hold nothing"),
        pytest.param([(1, 0, 9), (2, 1, 2), (None, 1, 2)], [None, None, None], id="tracks apart"),
    ],
)
def test_parent(case: list[Span], parents: list[int | None]) -> None:
    tree = nesting.nested(frame(case), ["track"])
    assert parents_of(tree) == dict(enumerate(parents))


@settings(max_examples=60, deadline=None)
@given(spans)
def test_parents_equal_the_walk_with_a_stack(case: list[Span]) -> None:
    assert parents_of(nesting.nested(frame(case), ["track"])) == walked(case)


@settings(max_examples=60, deadline=None)
@given(spans)
def test_totals_include_all_descendants(case: list[Span]) -> None:
    tree = nesting.totals(nesting.nested(frame(case), ["track"]), pl.col("value"), "total")
    parents = walked(case)
    assert tree["position"].to_list() == list(range(len(case)))
    for row in tree.to_dicts():
        below = {n for n in range(len(case)) if row["event_id"] in ancestors(n, parents)}
        assert row["total"] == sum(n % 5 for n in below | {row["event_id"]})
        assert (tree["parent_position"].fill_null(-1) < tree["position"]).all()


@settings(max_examples=60, deadline=None)
@given(spans)
def test_nearest_chosen_ancestor(case: list[Span]) -> None:
    tree = nesting.nested(frame(case), ["track"])
    found = nesting.taken(nesting.nearest(tree, pl.col("value") >= 3, "up"), "event_id", "up", "up_id")
    parents = walked(case)
    for row in found.to_dicts():
        chosen = [n for n in ancestors(row["event_id"], parents) if n % 5 >= 3]
        assert row["up_id"] == (chosen[0] if chosen else None)


@settings(max_examples=60, deadline=None)
@given(spans, st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter(case: list[Span], random: object) -> None:
    rows = frame(case)
    shuffled = list(range(len(case)))
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    tree = nesting.nested(rows, ["track"])
    assert nesting.nested(rows[shuffled], ["track"]).equals(tree)


@pytest.mark.parametrize("rounds", [0, 1, 2])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=spans)
def test_parents_of_calls_that_nest_deeper_than_they_are_climbed(
    case: list[Span], rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nesting, "_ROUNDS", rounds)
    assert parents_of(nesting.nested(frame(case), ["track"])) == walked(case)
