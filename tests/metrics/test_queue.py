"""Queue: what is submitted and not finished, and how long it waits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.metrics.build import SAMPLES, Row, chain, inputs, sample, truth, window
from tracekit.metrics.base import Inputs
from tracekit.metrics.queue import METRIC, QUEUE


def found(given_inputs: Inputs, **options: str) -> list[dict[str, Any]]:
    return METRIC.compute(given_inputs, options).collect().to_dicts()


def ran(submit: int, start: int | None, end: int | None, **columns: object) -> Row:
    return chain([], submit_ns=submit, hardware_start_ns=start, hardware_end_ns=end, **columns)


CHAINS = [
    ran(0, 10, 50), ran(20, 50, 80, name="late"), ran(60, 80, 90), ran(70, None, None), ran(85, 84, 95),
    chain([], hardware_start_ns=5, hardware_end_ns=9),
]  # fmt: skip


def test_delays_of_a_core() -> None:
    (row,) = found(inputs([], CHAINS, [window(0, 100)]))
    assert (row["submit_count"], row["unfinished_count"], row["early_count"]) == (5, 1, 1)
    assert (row["delay_ns"], row["delay_max_ns"]) == (10 + 30 + 20 - 1, 30)
    assert row["outstanding_max"] == 2
    assert row["outstanding_mean"] == pytest.approx((50 + 60 + 30 + 10) / 100)


def test_submits_belong_to_their_window_and_cores_are_apart() -> None:
    chains = [*CHAINS, ran(30, 40, 50, core_index=1)]
    rows = found(inputs([], chains, [window(0, 50, 1), window(50, 100, 2)]), per="step")
    assert [(r["step"], r["core_index"], r["submit_count"]) for r in rows] == [(1, 0, 2), (1, 1, 1), (2, 0, 3)]
    by_op = {(r["core_index"], r["name"]): r for r in found(inputs([], chains, [window(0, 100)]), by="op")}
    assert by_op[0, "late"]["delay_ns"] == 30
    assert by_op[0, "late"]["outstanding_max"] is None


def test_over_time() -> None:
    rows = found(inputs([], CHAINS, [window(10, 90)]), by="time")
    assert [(r["start_ns"], r["end_ns"], r["outstanding_max"], r["submit_count"]) for r in rows] == [
        (10, 20, 1, 0), (20, 50, 2, 1), (50, 60, 1, 0), (60, 80, 2, 1), (80, 85, 1, 0), (85, 90, 2, 1),
    ]  # fmt: skip


def test_training_sample_holds_its_queue_depth() -> None:
    folder = SAMPLES / "train_small"
    rows = found(sample(folder))
    assert [r["outstanding_max"] for r in rows] == [2, 2]
    assert [r["unfinished_count"] for r in rows] == [0, 2]
    for row, process in zip(rows, truth(folder), strict=True):
        delays = sorted(c["hardware"][0] - c["submit"][0] for c in process["chains"] if c["hardware"])
        assert (row["delay_ns"], row["delay_max_ns"]) == (sum(delays), delays[-1])
        assert row["delay_p50_ns"] == delays[len(delays) // 2]
    assert [r["outstanding_max"] for r in found(sample(SAMPLES / "rms_naive"))] == [1]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=12))
def test_counts_over_time_equal_asking_each_nanosecond(rows: list[tuple[int, int, int]]) -> None:
    chains = [ran(at, at + delay, at + delay + length) for at, delay, length in rows]
    pieces = found(inputs([], chains, [window(0, 200)]), by="time")
    seen = {t: r["outstanding_max"] for r in pieces for t in range(r["start_ns"], r["end_ns"])}
    for at in range(200):
        assert seen.get(at, 0) == sum(s <= at < s + d + n for s, d, n in rows)
    (total,) = found(inputs([], chains, [window(0, 200)]))
    assert total["outstanding_mean"] is None or total["outstanding_mean"] == pytest.approx(sum(seen.values()) / 200)


def test_result_has_the_tables_columns_and_types() -> None:
    for by in ("core", "op", "time"):
        assert dict(METRIC.compute(sample(SAMPLES / "train_small"), {"by": by}).collect().schema) == QUEUE.schema
