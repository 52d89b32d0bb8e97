"""Matching without fan-out: named cases, and what holds for any rows."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.links import match

Rows = list[tuple[int | None, int]]


def side(index: str, rows: Rows) -> pl.DataFrame:
    schema = {"key": pl.Int64(), "at": pl.Int64()}
    return match.indexed(pl.DataFrame(rows, schema=schema, orient="row"), index)


def pairs(matched: pl.DataFrame) -> list[tuple[int, int]]:
    return sorted(matched.select("cause", "effect").rows())


@pytest.mark.parametrize(
    ("causes", "effects", "expected"),
    [
        pytest.param([(1, 0)], [(1, 5)], [(0, 0)], id="one-each"),
        pytest.param([(1, 9)], [(1, 5)], [(0, 0)], id="one-each-whatever-the-clock-says"),
        pytest.param([(1, 0), (1, 10)], [(1, 5), (1, 15)], [(0, 0), (1, 1)], id="nth-with-nth"),
        pytest.param([(1, 0), (1, 10)], [(1, 12)], [(1, 0)], id="latest-before"),
        pytest.param([(1, 0)], [(1, 5), (1, 15)], [(0, 0)], id="earliest-after"),
        pytest.param([(1, 20), (1, 30)], [(1, 5)], [], id="none-before"),
        pytest.param([(None, 0)], [(None, 5)], [], id="null-matches-nothing"),
        pytest.param([(1, 0)], [(2, 5)], [], id="other-key"),
    ],
)
def test_pair(causes: Rows, effects: Rows, expected: list[tuple[int, int]]):
    assert pairs(match.pair(side("cause", causes), side("effect", effects), ["key"])) == expected


@pytest.mark.parametrize(
    ("causes", "effects", "expected"),
    [
        pytest.param([(1, 0)], [(1, 5), (1, 6), (1, 7)], [(0, 0), (0, 1), (0, 2)], id="many-of-one"),
        pytest.param([(1, 0), (1, 10)], [(1, 5), (1, 15), (1, 16)], [(0, 0), (1, 1), (1, 2)], id="latest-before"),
        pytest.param([(1, 10), (1, 20)], [(1, 5)], [(0, 0)], id="earliest-if-all-later"),
        pytest.param([(1, 10)], [(1, 5)], [(0, 0)], id="one-whatever-the-clock-says"),
        pytest.param([(None, 0)], [(None, 5)], [], id="null-matches-nothing"),
    ],
)
def test_owner(causes: Rows, effects: Rows, expected: list[tuple[int, int]]):
    assert pairs(match.owner(side("cause", causes), side("effect", effects), ["key"])) == expected


@pytest.mark.parametrize(
    ("causes", "effects", "expected"),
    [
        pytest.param([0, 1, 2], [5, 6, 7], [(0, 0), (1, 1), (2, 2)], id="queue"),
        pytest.param([0, 10, 20], [5, 25], [(0, 0), (2, 1)], id="lost-effect"),
        pytest.param([0, 20], [5, 15, 25], [(0, 0), (1, 2)], id="lost-cause"),
        pytest.param([10], [5], [], id="effect-first"),
        pytest.param([], [5], [], id="no-causes"),
    ],
)
def test_adjacent(causes: list[int], effects: list[int], expected: list[tuple[int, int]]):
    left, right = side("cause", [(1, at) for at in causes]), side("effect", [(1, at) for at in effects])
    assert pairs(match.adjacent(left, right, ["key"])) == expected


KEYED = st.lists(st.tuples(st.none() | st.integers(0, 3), st.integers(0, 30)), max_size=25)


@settings(max_examples=60, deadline=None)
@given(KEYED, KEYED)
def test_no_match_fans_out_or_crosses_keys(causes: Rows, effects: Rows):
    left, right = side("cause", causes), side("effect", effects)
    for rule in (match.pair, match.owner, match.adjacent):
        matched = rule(left, right, ["key"])
        assert not matched["effect"].is_duplicated().any()
        if rule is not match.owner:
            assert not matched["cause"].is_duplicated().any()
        for cause, effect in matched.select("cause", "effect").iter_rows():
            assert causes[cause][0] is not None
            assert causes[cause][0] == effects[effect][0]
    owned = {k for k, _ in causes if k is not None}
    assert match.owner(left, right, ["key"]).height == sum(k in owned for k, _ in effects)


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        pytest.param([(0, 10), (2, 4), (5, 12)], 1, id="overlapping"),
        pytest.param([(0, 10), (10, 12)], 2, id="touching"),
        pytest.param([(5, 5), (5, 5)], 1, id="two-instants-at-once"),
        pytest.param([(0, 10), (3, 3), (20, 21)], 2, id="instant-inside"),
    ],
)
def test_islands(spans: list[tuple[int, int]], expected: int):
    frame = pl.DataFrame(spans, schema={"start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")
    numbered = match.islands(frame.with_columns(track=1), ["track"], "island")
    assert numbered["island"].n_unique() == expected
