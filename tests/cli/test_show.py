from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import polars as pl
import pytest

from tests.cli.command import assert_fits, assert_one_line, tracekit
from tests.shared_data import SAMPLES
from tracekit.metrics import METRICS

TRAIN = SAMPLES / "neuron" / "train_small" / "capture"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive")
    assert tracekit("ingest", TRAIN, "-o", path, "--id", "train").returncode == 0
    return path


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_fits_the_screen(archive: Path, name: str) -> None:
    result = tracekit("show", name, archive)
    assert result.returncode == 0, result.stderr
    assert_fits(result.stdout)


def test_formats_hold_the_same_exact_rows(archive: Path, tmp_path: Path) -> None:
    rows = json.loads(tracekit("show", "gaps", archive, "--format", "json").stdout)
    text = tracekit("show", "gaps", archive, "--format", "csv").stdout
    parsed = list(csv.DictReader(io.StringIO(text)))
    tracekit("show", "gaps", archive, "-o", tmp_path / "gaps.parquet")
    frame = pl.read_parquet(tmp_path / "gaps.parquet")
    assert len(rows) == len(parsed) == frame.height > 0
    assert [r["gap_ns"] for r in rows] == [int(r["gap_ns"]) for r in parsed] == frame["gap_ns"].to_list()


def test_durations_are_options(archive: Path) -> None:
    everything = json.loads(tracekit("show", "gaps", archive, "--format", "json").stdout)
    long = json.loads(tracekit("show", "gaps", archive, "--longer-than", "100us", "--format", "json").stdout)
    assert [g for g in everything if g["gap_ns"] >= 100_000] == long and len(long) < len(everything)
    assert tracekit("show", "gaps", archive, "--longer-than", "soon").returncode == 2


def test_help_names_the_columns_and_parquet_needs_a_file(archive: Path) -> None:
    text = tracekit("show", "devices", "--help").stdout
    assert "busy_ns" in text and "--per" in text
    result = tracekit("show", "devices", archive, "--format", "parquet")
    assert_one_line(result)


def test_gaps_on_screen_say_how_long_why_and_where(archive: Path) -> None:
    """Times of a whole date are too wide for a terminal: cut in the middle they would say nothing."""
    head = tracekit("show", "gaps", archive).stdout.splitlines()[0]
    assert all(word in head for word in ("gap", "main cause", "after name"))
    steps = tracekit("show", "steps", archive).stdout
    assert "…" not in steps.replace("i-0", "").split("start", 1)[0]
    assert "00:00:00." in steps


def test_advice_shows_its_formula_and_what_to_do(archive: Path) -> None:
    shown = " ".join(tracekit("show", "advice", archive).stdout.split())
    for row in json.loads(tracekit("show", "advice", archive, "--format", "json").stdout):
        assert row["formula"] in shown
        assert row["next_step"][1:] in shown


def test_rows_that_are_left_out_say_how_to_see_them(tmp_path: Path) -> None:
    path = SAMPLES / "neuron" / "train_small" / "capture"
    assert "more rows: --limit 0" in tracekit("show", "ops", path, "--limit", 3, "--cache", tmp_path).stdout
    assert "more row" not in tracekit("show", "ops", path, "--limit", 0, "--cache", tmp_path).stdout
