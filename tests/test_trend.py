from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracekit
from tests.archive_data import run
from tests.shared_data import SAMPLES
from tracekit import sides
from tracekit.profile import open_archive, open_profile
from tracekit.trend import change_points, chart, sparkline, trend

pytest.importorskip("ruptures")


def test_steps_of_known_series_are_found() -> None:
    chance = np.random.default_rng(3)
    levels = np.repeat([100.0, 130.0, 90.0], [40, 30, 50])
    for seed in range(5):
        noisy = levels + chance.normal(0, 3, levels.size)
        assert change_points(noisy.tolist()) == [40, 70], seed


def test_noise_alone_has_hardly_any_step() -> None:
    chance = np.random.default_rng(4)
    found = [len(change_points((100 + chance.normal(0, 3, 60)).tolist())) for _ in range(40)]
    assert sum(map(bool, found)) <= 4


@given(st.lists(st.floats(-1e12, 1e12), max_size=80))
def test_any_series_is_taken(values: list[float]) -> None:
    found = change_points(values)
    assert found == sorted(set(found))
    assert all(0 < p < len(values) for p in found)
    assert len(sparkline(values)) == min(60, len(values))


@given(st.lists(st.integers(1, 10**6), min_size=4, max_size=40), st.sampled_from([2.0**-20, 1024.0]))
def test_steps_do_not_depend_on_the_unit(values: list[int], unit: float) -> None:
    assert change_points([v * unit for v in values]) == change_points([float(v) for v in values])


def test_bars_show_low_and_high() -> None:
    assert sparkline([1, 1, 8, 8]) == "▁▁██"
    assert sparkline([5, 5]) == "▄▄"
    assert sparkline([]) == ""


def gpu_run(path: Path, day: int, kernel_us: float, steps: int = 6) -> Path:
    """Steps with one kernel each; the kernel's time varies a little from step to step."""
    events: list[dict[str, object]] = []
    for step in range(steps):
        at = step * 1000.0
        jitter = 0.01 * kernel_us * ((step * 7 + day * 3) % 5 - 2)
        same = {"ph": "X", "pid": 1, "tid": 1}
        events += [
            {**same, "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": 900.0},
            {**same, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 10, "dur": 5,
             "args": {"correlation": step + 1}},
            {**same, "pid": 0, "tid": 7, "cat": "kernel", "name": "gemm", "ts": at + 20, "dur": kernel_us + jitter,
             "args": {"correlation": step + 1, "device": 0, "stream": 7}},
        ]  # fmt: skip
    base = 1_767_225_600_000_000_000 + day * 86_400 * 10**9
    path.write_text(json.dumps({"baseTimeNanoseconds": base, "traceEvents": events}))
    return path


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("trend")
    for day in range(12):
        source = gpu_run(root / f"day{day}.json", day, 100.0 if day < 7 else 120.0)
        tracekit.ingest([source], root / "runs", labels={"commit": f"c{day // 2}", "lab": "ab"[day % 2]})
    return root / "runs"


@pytest.fixture(scope="module")
def by_time(archive: Path) -> pl.DataFrame:
    return trend(open_archive(archive), "device_time")


def test_a_step_of_a_measure_is_found_at_its_commit(archive: Path, by_time: pl.DataFrame) -> None:
    assert by_time.height == 12
    assert by_time["started_at"].is_sorted()
    steps = by_time.filter(by_time["verdict"] == "changed")
    assert steps["position"].to_list() == [7]
    assert steps["step_ratio"].item() == pytest.approx(0.2, abs=0.02)
    by_commit = trend(open_archive(archive), "device_time", "label:commit")
    assert by_commit["point"].to_list() == [f"c{i}" for i in range(6)]
    assert by_commit["run_count"].to_list() == [2] * 6


def test_values_are_those_of_analysis(archive: Path, by_time: pl.DataFrame) -> None:
    steps = open_archive(archive)[by_time["point"][0]].split(per="step").collect()
    device = (steps["device_only_ns"] + steps["both_ns"]).median()
    assert by_time["value"][0] == pytest.approx(device)


def test_classes_have_no_steps(archive: Path) -> None:
    by_class = trend(open_archive(archive), "device_time", "label_lab")
    assert by_class["point"].to_list() == ["a", "b"]
    assert by_class["verdict"].null_count() == 2


def test_command_shows_bars_steps_and_rows(archive: Path, tmp_path: Path) -> None:
    shown = run("trend", archive).output
    assert "▁▁" in shown and "+20" in shown
    rows = json.loads(run("trend", archive, "--by", "label:commit", "--format", "json").output)
    assert len(rows) == 6
    few = json.loads(run("trend", archive, "--where", "label_commit = 'c0'", "--format", "json").output)
    assert len(few) == 2
    assert "measures are" in str(run("trend", archive, "--metric", "nope").exception)
    assert "label:commit" in str(run("trend", archive, "--by", "label:nope").exception)


def test_chart_is_sound_xml_and_marks_the_step(archive: Path, tmp_path: Path, by_time: pl.DataFrame) -> None:
    assert run("trend", archive, "--chart", tmp_path / "t.svg").exit_code == 0
    root = ElementTree.parse(tmp_path / "t.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f".//{space}circle")) == 12
    assert len([line for line in root.iter(f"{space}line") if line.get("class") == "step"]) == 1
    hostile = by_time.with_columns(point=pl.lit('</svg><script>"&'))
    ElementTree.fromstring(chart(hostile, "<b>", str))
    ElementTree.fromstring(chart(by_time.clear(), "empty", str))


def test_page_is_written_by_its_ending(archive: Path, tmp_path: Path) -> None:
    both = run("trend", archive, "--chart", tmp_path / "t.html")
    assert both.exit_code == 0 and "▁▁" in both.output
    only = run("trend", archive, "--by", "label:commit", "--where", "started_at IS NOT NULL", "-o", tmp_path / "c.html")
    assert only.exit_code == 0
    text = (tmp_path / "t.html").read_text("utf-8")
    assert "<!doctype html>" in text and "Content-Security-Policy" in text and "day7" in text
    assert "started_at IS NOT NULL" in (tmp_path / "c.html").read_text("utf-8")
    assert run("trend", archive, "--chart", tmp_path / "t.png").exit_code == 2
    assert "no directory" in str(run("trend", archive, "--chart", tmp_path / "none" / "t.html").exception)


def test_a_missing_label_says_how_to_set_it(archive: Path) -> None:
    problem = run("trend", archive, "--by", "label:build").exception
    assert "no profile has the label 'build'" in str(problem) and "build=…" in str(problem)
    problem = run("query", archive, "SELECT label_build FROM runs").exception
    assert "no profile has the label 'build'" in str(problem) and "build=…" in str(problem)
    near = run("query", archive, "SELECT label_comit FROM runs").exception
    assert "did you mean label_commit" in str(near)


def test_one_measure_alone_is_as_among_all() -> None:
    inputs = open_profile(SAMPLES / "neuron" / "train_small" / "capture").inputs()
    together = sides.samples(inputs)
    assert list(together) == list(sides.MEASURES)
    assert any(any(values) for measure, values in together.items() if measure.startswith("gap."))
    for measure, values in together.items():
        assert sides.samples(inputs, [measure]) == {measure: values}
