"""Sub-tracks: on each of them any two spans nest or are apart, and there are no more than needed."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.export import _lanes
from tracekit.export._lanes import lanes

Span = tuple[int, int, int]
spans = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12)).map(lambda t: (t[0], t[1], t[1] + t[2])),
    max_size=40,
)


def laid(found: list[Span]) -> list[tuple[Span, int]]:
    ordered = sorted(found, key=lambda s: (s[0], s[1], -s[2]))
    columns = np.array(ordered, np.int64).reshape(-1, 3).T
    return list(zip(ordered, lanes(*columns).tolist(), strict=True))


def cross(a: Span, b: Span) -> bool:
    first, second = sorted((a[1:], b[1:]), key=lambda s: (s[0], -s[1]))
    return first[0] < second[0] < first[1] < second[1]


def crossings(placed: list[tuple[Span, int]]) -> list[tuple[Span, Span]]:
    return [
        (a, b) for (a, x), (b, y) in combinations(placed, 2) if a[0] == b[0] and x == y and cross(a, b)
    ]  # fmt: skip


@given(spans)
def test_no_two_spans_of_a_sub_track_cross(found: list[Span]) -> None:
    assert crossings(laid(found)) == []


@given(spans)
def test_no_two_spans_cross_even_where_rounds_do_not_settle(found: list[Span]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_lanes, "_ROUNDS", 1)
        patch.setattr(_lanes, "_NESTED_LANES", 1)
        assert crossings(laid(found)) == []


@given(spans)
def test_spans_that_nest_all_stay_on_the_first_sub_track(found: list[Span]) -> None:
    tree = [
        span for n, span in enumerate(found) if not any(cross(span, other) for other in found if other[0] == span[0])
    ]
    assert all(lane == 0 for _, lane in laid(tree))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param([(0, 0, 10), (0, 10, 20)], [0, 0], id="touching"),
        pytest.param([(0, 0, 10), (0, 5, 15)], [0, 1], id="crossing"),
        pytest.param([(0, 0, 10), (1, 5, 15)], [0, 0], id="two tracks"),
        pytest.param([(0, 0, 5), (0, 2, 20), (0, 3, 10)], [0, 1, 1], id="crossed behind a longer one"),
        pytest.param([(0, 0, 10), (0, 10, 10), (0, 5, 15)], [0, 1, 0], id="instant at an end"),
    ],
)
def test_lane(found: list[Span], expected: list[int]) -> None:
    assert [lane for _, lane in laid(found)] == expected


def test_a_staircase_needs_few_sub_tracks() -> None:
    """Each span overlaps the one before: two are open at a time, so a constant number of sub-tracks is enough."""
    placed = laid([(0, 10 * n, 10 * n + 15) for n in range(5000)])
    assert crossings(placed[:200]) == []
    assert max(lane for _, lane in placed) <= 4
