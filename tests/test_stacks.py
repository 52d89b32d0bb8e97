"""What a host thread was doing when."""

from __future__ import annotations

import polars as pl

from tests.metrics.build import Row, event, inputs
from tracekit import stacks


def on_host(kind: str, start: int, end: int, name: str, thread: int = 7) -> Row:
    return event(kind, start, end, lane="dispatch", name=name, process_id=1, thread_id=thread)


EVENTS = [
    on_host("op", 10, 40, "outer"),
    on_host("op", 20, 30, "inner"),
    on_host("python", 0, 25, "train.py(1): step"),
    on_host("python", 5, 20, "torch/nn.py(1): call"),
    on_host("annotation", 0, 100, "ProfilerStep#1"),
    on_host("op", 0, 100, "other thread", thread=8),
    on_host("sync", 60, 70, "synchronize"),
]


def test_rows_are_cut_where_their_thread_went_over_to_something_else() -> None:
    tables = inputs([*EVENTS, on_host("other", 5, 65, "row")])
    found = stacks.doing(tables.events.filter(pl.col("name") == "row"), tables.events).collect()
    cut = sorted(found.select("start_ns", "end_ns", "host_name", "host_frame").rows())
    step = "train.py(1): step"
    assert cut == [
        (5, 10, stacks.NO_OPERATOR, step), (10, 20, "outer", step), (20, 25, "inner", step),
        (25, 30, "inner", None), (30, 40, "outer", None), (40, 60, stacks.NO_OPERATOR, None),
        (60, 65, "synchronize", None),
    ]  # fmt: skip


def test_unknown_thread_keeps_all_its_time() -> None:
    tables = inputs([*EVENTS, event("execution", 5, 65)])
    found = stacks.doing(tables.events.filter(pl.col("kind") == "execution"), tables.events).collect()
    assert found.select("start_ns", "end_ns", "host_name").rows() == [(5, 65, stacks.NO_THREAD)]


def test_enclosing_op_is_the_innermost_on_the_same_thread() -> None:
    moments = [on_host("other", at, at + 1, "row") for at in (9, 10, 20, 30, 40)]
    tables = inputs([*EVENTS, *moments])
    found = stacks.enclosing_op(tables.events.filter(pl.col("name") == "row"), tables.events).collect()
    assert dict(found.select("start_ns", "op_name").rows()) == {
        9: None, 10: "outer", 20: "inner", 30: "outer", 40: None,
    }  # fmt: skip
