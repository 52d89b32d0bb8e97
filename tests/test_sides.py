"""What one side of a comparison is: repeats and processes, steps and whole captures, operators by shapes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracekit
from tracekit import baseline
from tracekit.comparison import Comparison, diff
from tracekit.diffing import one_side
from tracekit.errors import ArchiveError, TracekitError
from tracekit.matching import ops_changed
from tracekit.sides import SIDE_OPS, Side, runs

DAY = 1_767_225_600_000_000_000

Op = tuple[str, int, float]
"""An operator: name, rows of its square input, and device time in µs."""


def trace(path: Path, steps: Sequence[Sequence[Op]], *, at_ms: float = 0, **header: object) -> Path:
    """A trace in which every operator runs one kernel; with one step for each of ``steps``, if there are several."""
    events: list[dict[str, object]] = []
    clock = at_ms * 1_000
    for number, ops in enumerate(steps):
        begun = clock
        for name, size, length in ops:
            id, x = len(events) + 1, {"ph": "X", "pid": 1, "tid": 1, "ts": clock}
            shape = {"External id": id, "Input Dims": [[size, size]]}
            launch = {"External id": id, "correlation": id}
            on_device = {"pid": 0, "tid": 7, "ts": clock + 4, "dur": length}
            events += [
                x | {"cat": "cpu_op", "name": name, "dur": 8, "args": shape},
                x | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": clock + 1, "dur": 3, "args": launch},
                x | {"cat": "kernel", "name": "k", **on_device, "args": {"device": 0, "stream": 7, **launch}},
            ]
            clock += length + 20
        if len(steps) > 1:
            window = {"ts": begun, "dur": clock - begun, "name": f"ProfilerStep#{number}", "cat": "user_annotation"}
            events.append({"ph": "X", "pid": 1, "tid": 1, **window})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"baseTimeNanoseconds": DAY, **header, "traceEvents": events}))
    return path


def measured(path: Path, archive: Path, scope: str | int = "steps") -> Side:
    found = tracekit.open(tracekit.ingest([path], archive).path)
    assert isinstance(found, tracekit.Profile)
    return one_side(found, scope)


def status(found: Comparison) -> dict[tuple[str, str | None, str | None], str]:
    keys = found.ops.select("name", "a_shapes", "b_shapes", "status").rows()
    return {(name, a, b): word for name, a, b, word in keys}


def test_operators_match_by_shapes(tmp_path: Path) -> None:
    """What one shape gained the other lost: the sum alone says that nothing changed."""
    a = measured(trace(tmp_path / "a.json", [[("mm", 8, 10), ("mm", 64, 100)]]), tmp_path / "archive")
    b = measured(trace(tmp_path / "b.json", [[("mm", 64, 10), ("mm", 8, 100)]]), tmp_path / "archive")
    found = diff(a, b)
    assert found.total("device_time")["change"] == 0
    assert found.ops.sort("a_shapes")["device_change_ns"].to_list() == [-90_000, 90_000]
    assert set(found.ops["status"]) == {"unproven"}


def test_what_has_another_shape_matches_by_its_order(tmp_path: Path) -> None:
    a = measured(trace(tmp_path / "a.json", [[("mm", 8, 10), ("mm", 4, 5), ("mul", 8, 2)]]), tmp_path / "archive")
    b = measured(trace(tmp_path / "b.json", [[("mm", 9, 10), ("mm", 5, 5), ("mul", 8, 2), ("mm", 1, 1)]]), tmp_path)
    assert status(diff(a, b)) == {
        ("mm", "[[8, 8]]", "[[9, 9]]"): "same",
        ("mm", "[[4, 4]]", "[[5, 5]]"): "same",
        ("mm", None, "[[1, 1]]"): "added",
        ("mul", "[[8, 8]]", "[[8, 8]]"): "same",
    }


def rows(*given: tuple[str, str | None, list[float]]) -> pl.DataFrame:
    listed = [{"name": n, "shapes": s, "executions": [0.0] * len(v), "device_ns": v, "host_ns": v} for n, s, v in given]
    return SIDE_OPS.rows(listed)


def test_shapes_that_one_side_does_not_know_are_added_up() -> None:
    known = rows(("mm", "[8]", [1, 2]), ("mul", "[8]", [9, 9]), ("mm", "[9]", [5, 6]))
    unknown = rows(("mm", None, [6, 8]), ("mul", "[8]", [9, 9]))
    for found in (ops_changed(known, unknown), ops_changed(unknown, known)):
        assert found.filter(pl.col("status") != "same").is_empty()
        assert found.sort("name").select("name", "a_device_ns").rows() == [("mm", 7.0), ("mul", 9.0)]


some_ops = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from([None, "[1]", "[2]", "[3]"]), st.integers(0, 9)),
    unique_by=lambda op: op[:2],
    max_size=8,
)


@given(some_ops, some_ops)
def test_every_operator_is_matched_once_and_the_changes_sum(
    first: list[tuple[str, str | None, int]], second: list[tuple[str, str | None, int]]
) -> None:
    a, b = (rows(*((n, s, [float(v), float(v)]) for n, s, v in of)) for of in (first, second))
    found = ops_changed(a, b)
    assert found["a_device_ns"].sum() == sum(v for *_, v in first)
    assert found["b_device_ns"].sum() == sum(v for *_, v in second)
    assert found["device_change_ns"].sum() == sum(v for *_, v in second) - sum(v for *_, v in first)
    assert set(found["name"]) == {n for n, *_ in [*first, *second]}
    assert set(ops_changed(a, a)["status"]) <= {"same"}


def test_each_operator_has_a_verdict_of_its_own(tmp_path: Path) -> None:
    """Of twelve steps each: one operator doubles, one scatters as before, one is as it was."""
    scatter = [10, 14, 11, 9, 13, 10, 12, 15, 11, 10, 14, 12]
    first = [[("mm", 8, 50 + i % 3), ("mul", 8, s), ("add", 8, 5)] for i, s in enumerate(scatter)]
    second = [[("mm", 8, 100 + i % 3), ("mul", 8, s), ("add", 8, 5)] for i, s in enumerate([*scatter[:-1], 13])]
    sides = [measured(trace(tmp_path / f"{n}.json", s), tmp_path / "archive") for n, s in (("a", first), ("b", second))]
    found = {name: word for (name, _, _), word in status(diff(*sides)).items()}
    assert found == {"mm": "changed", "mul": "noise", "add": "same"}


def test_captures_one_after_the_other_are_repeats(tmp_path: Path) -> None:
    for i in range(6):
        trace(tmp_path / "before" / f"run{i}.json", [[("mm", 8, 100 + i)]], at_ms=100 * i)
        trace(tmp_path / "after" / f"run{i}.json", [[("mm", 8, 200 + i)]], at_ms=100 * i)
    a, b = (measured(tmp_path / name, tmp_path / "archive") for name in ("before", "after"))
    assert (a.run_count, a.process_count, a.basis) == (6, 1, "mean of 6 captures")
    device = diff(a, b).total("device_time")
    assert (device["a"], device["b"], device["verdict"]) == (102_500, 202_500, "changed")
    assert (device["a_samples"], device["b_samples"]) == (6, 6)
    assert status(diff(a, b)) == {("mm", "[[8, 8]]", "[[8, 8]]"): "changed"}


def test_the_profiles_of_an_archive_are_repeats(tmp_path: Path) -> None:
    for i in range(5):
        for name, length in (("before", 100), ("after", 200)):
            tracekit.ingest([trace(tmp_path / f"{name}{i}.json", [[("mm", 8, length + i)]])], tmp_path / name)
    found = tracekit.diff(tmp_path / "before", tmp_path / "after")
    assert found.total("device_time")["verdict"] == "changed"
    assert found.a.name == "before (5 profiles)"
    stepped = trace(tmp_path / "stepped.json", [[("mm", 8, 1)]] * 3)
    tracekit.ingest([stepped], tmp_path / "before")
    with pytest.raises(TracekitError, match="some of its profiles have steps"):
        tracekit.diff(tmp_path / "before", tmp_path / "after")


def test_processes_side_by_side_are_added_up_and_compared_one_by_one(tmp_path: Path) -> None:
    for rank in range(2):
        about = {"distributedInfo": {"rank": rank, "world_size": 2}}
        trace(tmp_path / "two" / f"rank-{rank}.json", [[("mm", 8, 100)]], **about)
    one = measured(trace(tmp_path / "one.json", [[("mm", 8, 110)]]), tmp_path / "archive")
    two = measured(tmp_path / "two", tmp_path / "archive")
    assert (two.run_count, two.process_count, two.samples["device_time"]) == (1, 2, [200_000])
    found = diff(one, two)
    assert found.is_per_process and found.basis == "per process"
    assert (found.total("device_time")["a"], found.total("device_time")["b"]) == (110_000, 100_000)
    assert found.ops["device_change_ns"].sum() == -10_000
    assert not diff(two, two).is_per_process


def sessions(*given: tuple[str, int | None, int, int]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "session": s,
                "rank": r,
                "first_ns": DAY + a,
                "last_ns": DAY + b,
                "process_id": s.partition(" ")[2] or None,
            }
            for s, r, a, b in given
        ],
        schema={
            "session": pl.String,
            "rank": pl.Int32,
            "first_ns": pl.Int64,
            "last_ns": pl.Int64,
            "process_id": pl.String,
        },
    ).with_columns(instance_id=pl.lit("i-0"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param([("a", 0, 0, 9), ("b", 1, 20, 29)], [0, 0], id="ranks, whenever they ran"),
        pytest.param([("a", 0, 0, 9), ("b", 0, 5, 29), ("c", 1, 5, 6)], [0, 1, 0], id="one rank twice"),
        pytest.param([("a", None, 0, 9), ("b", None, 5, 20), ("c", None, 20, 29)], [0, 0, 1], id="by time"),
        pytest.param([("a 1", None, 0, 9), ("b 1", None, 0, 9), ("c 2", None, 0, 9)], [0, 1, 0], id="by process"),
        pytest.param([("a", None, -DAY, 9 - DAY), ("b", None, 20 - DAY, 29 - DAY)], [0, 0], id="clocks without a date"),
    ],
)
def test_runs(given: list[tuple[str, int | None, int, int]], expected: list[int]) -> None:
    assert runs(sessions(*given))["run"].to_list() == expected
    assert runs(sessions(*reversed(given)))["run"].to_list() == expected


def test_sides_that_are_not_measured_alike_are_refused(tmp_path: Path) -> None:
    path = trace(tmp_path / "a.json", [[("mm", 8, 10)]] * 3)
    steps, one, whole = (measured(path, tmp_path / "archive", scope) for scope in ("steps", 1, "all"))
    for a, b in ((steps, whole), (whole, steps), (one, steps), (whole, one)):
        with pytest.raises(TracekitError, match="cannot be compared"):
            diff(a, b)
    stepless = measured(trace(tmp_path / "b.json", [[("mm", 8, 10)]]), tmp_path / "archive")
    assert diff(whole, stepless).total("executions")["a"] == 3
    assert "step 1" in one.sequence_of and steps.sequence_of == "step 0"


def test_a_baseline_keeps_all_of_a_side(tmp_path: Path) -> None:
    steps = [[("mm", 8, 50 + i % 3), ("mul", 4, 7)] for i in range(6)]
    side = measured(trace(tmp_path / "a.json", steps), tmp_path / "archive")
    file = tmp_path / "any name"
    file.write_text(baseline.to_json(side), encoding="utf-8")
    assert baseline.is_baseline(file) and not baseline.is_baseline(tmp_path / "a.json")
    again = baseline.from_json(file)
    assert again.ops.equals(side.ops) and again.sequence.equals(side.sequence)
    assert (again.scope, again.basis, again.samples) == (side.scope, side.basis, side.samples)
    assert set(diff(again, side).ops["status"]) == {"same"}


OLD = {
    "format": "tracekit-baseline", "version": 1, "name": "old", "per_step": True,
    "samples": {"device_time": [10, 12], "window": [20, 20]},
    "ops": {"name": ["mm"], "executions": [1.0], "device_ns": [11.0], "host_ns": [0.0]},
    "sequence": {"name": ["mm"], "device_ns": [10]},
}  # fmt: skip


def test_a_baseline_of_the_first_version_is_read(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(json.dumps(OLD))
    old = baseline.from_json(tmp_path / "b.json")
    assert old.ops["device_ns"].to_list() == [[11.0]] and old.scope is None
    new = measured(trace(tmp_path / "a.json", [[("mm", 8, 10)]] * 3), tmp_path / "archive")
    found = diff(old, new)
    assert found.total("device_time")["a"] == 11 and "executions" in found.lacking
    with pytest.raises(TracekitError, match="old: no measure 'executions'"):
        found.total("executions")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"samples": {}}, "no values"),
        ({"samples": {"window": []}}, r"\[0\] values"),
        ({"samples": {"window": [1], "gap": [1, 2]}}, r"\[1, 2\] values"),
        ({"samples": {"window": [float("nan")]}}, "NaN is not a number"),
        ({"samples": {"window": ["x"]}}, "'x' is not a number"),
        ({"samples": {"window": [1e999]}}, "Infinity is not a number"),
        ({"ops": {"name": ["mm"]}}, "executions"),
        ({"ops": OLD["ops"] | {"device_ns": [[1, 2, 3]]}}, "3 values where there are 2"),  # type: ignore[operator]
        ({"samples": None}, "not a baseline"),
    ],
)
def test_damaged_baselines_are_explained(tmp_path: Path, change: dict[str, object], problem: str) -> None:
    (tmp_path / "b.json").write_text(json.dumps(OLD | change))
    with pytest.raises(ArchiveError, match=problem) as caught:
        baseline.from_json(tmp_path / "b.json")
    assert "b.json: not a baseline" in str(caught.value) and "\n" not in str(caught.value)
