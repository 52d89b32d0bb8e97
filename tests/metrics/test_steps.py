from __future__ import annotations

import polars as pl
import pytest

from tests.metrics.build import Row, event, inputs, sample
from tests.shared_data import SAMPLES
from tracekit.errors import TracekitError
from tracekit.metrics.steps import METRIC, scope, steps


def step(number: int, start: int, end: int, **columns: object) -> Row:
    return event("annotation", start, end, lane="dispatch", name=f"ProfilerStep#{number}", **columns)


def found(rows: list[Row]) -> dict[int, str | None]:
    frame = steps(inputs(rows).events).collect()
    return {
        n: reason if is_warmup else None
        for n, is_warmup, reason in frame.select("step", "is_warmup", "warmup_reason").iter_rows()
    }


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        pytest.param([], {0: None, 1: None}, id="plain"),
        pytest.param([event("model", 5, 6, lane="runtime", name="model_load")], {0: "model_load", 1: None}, id="load"),
        pytest.param(
            [event("python", 5, 6, lane="dispatch", name="torch/_dynamo/convert_frame.py(1): _compile")],
            {0: "compilation", 1: None},
            id="compile",
        ),
        pytest.param(
            [event("model", 105, 106, lane="runtime", name="model_load")], {0: None, 1: None}, id="not-leading"
        ),
        pytest.param(
            [event("model", t, t + 1, lane="runtime", name="model_load") for t in (5, 105)],
            {0: None, 1: None},
            id="all-of-them",
        ),
    ],
)
def test_leading_steps_that_load_or_compile_are_warmup(extra: list[Row], expected: dict[int, str | None]) -> None:
    assert found([step(0, 0, 100), step(1, 100, 200), *extra]) == expected


@pytest.mark.parametrize(
    ("lengths", "slow"),
    [
        pytest.param([500, 100, 100, 100], {0}, id="one"),
        pytest.param([500, 400, 100, 101, 99, 100], {0, 1}, id="two"),
        pytest.param([140, 100, 100, 100], set(), id="below-1.5x"),
        pytest.param([500, 100, 100], set(), id="too-few-later"),
        pytest.param([100, 100, 500, 100, 100, 100], set(), id="not-leading"),
        pytest.param([300, 100, 300, 150, 250, 80], set(), id="noisy-anyway"),
    ],
)
def test_slow_first_steps_are_warmup(lengths: list[int], slow: set[int]) -> None:
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    rows = [step(i, s, s + n) for i, (s, n) in enumerate(zip(starts, lengths, strict=True))]
    assert {n for n, reason in found(rows).items() if reason} == slow


def test_sessions_are_judged_apart() -> None:
    rows = [step(0, 0, 10), step(1, 10, 20), step(0, 0, 10, session="t"), step(1, 10, 20, session="t")]
    rows.append(event("model", 5, 6, lane="runtime", name="model_load", session="t"))
    frame = steps(inputs(rows).events).collect()
    assert frame.filter("is_warmup").select("session", "step").rows() == [("t", 0)]


def windows(rows: list[Row], which: str | int) -> list[tuple[str, int | None, int, int]]:
    given = inputs(rows)
    spans = given.events.group_by("session").agg(first_ns=pl.col("start_ns").min(), last_ns=pl.col("end_ns").max())
    sessions = given.sessions.drop("first_ns", "last_ns").join(spans, on="session")
    return scope(given.events, sessions, which).collect().rows()


def test_scope_leaves_warmup_out_and_takes_everything_without_steps() -> None:
    rows = [step(0, 0, 10), step(1, 10, 20), event("op", 3, 30, lane="dispatch", session="t")]
    rows.append(event("model", 5, 6, lane="runtime", name="model_load"))
    assert windows(rows, "steps") == [("s", 1, 10, 20), ("t", None, 3, 30)]
    assert sorted(windows(rows, "all")) == [("s", None, 0, 20), ("t", None, 3, 30)]
    assert windows(rows, 0) == [("s", 0, 0, 10)]


@pytest.mark.parametrize(("which", "problem"), [(7, "no step 7"), ("some", "no scope 'some'")])
def test_unknown_scope_is_explained(which: str | int, problem: str) -> None:
    with pytest.raises(TracekitError, match=problem):
        windows([step(0, 0, 10)], which)


def test_sample_with_a_compiling_first_step() -> None:
    given = sample(SAMPLES / "neuron" / "train_small")
    frame = METRIC.compute(given, {}).collect()
    assert set(frame.filter("is_warmup")["step"]) == {0}
    assert set(frame.filter("is_warmup")["warmup_reason"]) <= {"model_load", "compilation"}
