from __future__ import annotations

from random import Random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.agreement import difference, merged, summary

Span = tuple[str, int, int]
T0 = 1_796_052_700_000_000_000
THERE: list[Span] = [("a", 0, 10), ("a", 20, 30), ("b", 5, 7)]


def rows(spans: list[Span]) -> pl.DataFrame:
    data = [(name, T0 + start, T0 + end) for name, start, end in spans]
    return pl.DataFrame(data, schema={"name": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")


CASES: dict[str, tuple[list[Span], int, int, str]] = {
    "shifted": (
        [(n, s + 3, e + 3) for n, s, e in THERE], 2, 3, "a has 2 events in both, the first starts 3 ns later here",
    ),
    "fewer": (THERE[1:], 1, 1, "a has 1 events here, 2 there, which take 10 ns less here"),
    "more": ([*THERE, ("c", 1, 1)], 1, 1, "c has 1 events here, 0 there"),
    "longer": ([("a", 0, 17), *THERE[1:]], 1, 2, "a has 2 events in both, which take 7 ns more here"),
    "moved": ([THERE[0], ("a", 21, 31), THERE[2]], 1, 2, "a has 2 events in both, some start at other times"),
    "several": (
        [("a", 2, 12), ("a", 20, 30), ("b", 4, 7)], 2, 3,
        "b has 1 events in both, which take 1 ns more here, the first starts 1 ns earlier here",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("here", "names", "events", "example"), CASES.values(), ids=CASES)
def test_difference_says_what_differs(here: list[Span], names: int, events: int, example: str) -> None:
    found = difference(summary(rows(here)), summary(rows(THERE)))
    assert found is not None
    assert (found.name_count, found.event_count, found.example) == (names, events, example)


spans = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 9)).map(lambda t: (t[0], t[1], t[1] + t[2])),
    min_size=1,
)


@given(spans, st.randoms(), st.integers(0, 20))
def test_order_and_parts_make_no_difference(whole: list[Span], random: Random, cut: int) -> None:
    mixed = list(whole)
    random.shuffle(mixed)
    parts = [summary(rows(part)) for part in (mixed[:cut], mixed[cut:])]
    assert difference(merged(parts), summary(rows(whole))) is None


@given(spans, st.integers(1, 10**9))
def test_a_shift_is_always_seen(whole: list[Span], shift: int) -> None:
    found = difference(summary(rows([(n, s + shift, e + shift) for n, s, e in whole])), summary(rows(whole)))
    assert found is not None
    assert found.event_count == len(whole)
    assert f"{shift} ns later here" in found.example
