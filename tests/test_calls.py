"""Calls as a tree: what is asked of the result never changes it."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

from tests.metrics.build import event, inputs
from tracekit import calls


def _call(name: str, start: int, end: int, kind: str = "op") -> dict[str, object]:
    place = {"process_id": 1, "thread_id": 1, "phase": "complete", "category": "cpu_op"}
    return event(kind, start, end, lane="dispatch", name=name, **place)


CALLS = [_call("outer", 0, 10), _call("python", 1, 9, "python"), _call("aten::add.Tensor", 2, 7), _call("leaf", 3, 4)]
USES: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "filter": lambda frame: frame.filter(pl.col("name") == "leaf"),
    "narrow": lambda frame: frame.select("self_cpu_ns"),
    "last": lambda frame: frame.tail(1),
    "count": lambda frame: frame.select(pl.len()),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("inside", [None, pl.col("kind") == "python"], ids=["plain", "inside"])
@pytest.mark.parametrize("rules", ["own", "torch"])
def test_what_is_asked_for_later_does_not_change_the_tree(rules: str, inside: pl.Expr | None, use: str) -> None:
    """Nothing is pushed below the walk: a filter or slice after it sees the whole tree's numbers."""
    given = inputs(CALLS)
    if rules == "own":
        found = calls.own(given.events, given.chains, inside=inside)
    else:
        found = calls.torch(given.events.with_columns(source=pl.lit("kineto")), inside=inside)
    whole = found.collect()
    assert whole["self_cpu_ns"].sum() == 10
    assert USES[use](found).collect().equals(USES[use](whole.lazy()).collect())


def test_names_are_split_from_overloads_and_steps_have_one_name() -> None:
    rows = [*CALLS, _call("ProfilerStep#7", 20, 30, "annotation"), _call("a::b.c", 31, 32, "annotation")]
    given = inputs(rows)
    found = calls.own(given.events, given.chains).collect().select(pl.col("name", "overload").cast(pl.String))
    assert sorted(found.rows(), key=str) == [
        ("ProfilerStep*", None), ("a::b.c", None), ("aten::add", "Tensor"), ("leaf", None), ("outer", None),
    ]  # fmt: skip
