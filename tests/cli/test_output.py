from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.cli.command import assert_one_line, tracekit
from tests.shared_data import SAMPLES
from tracekit.cli import output
from tracekit.cli.output import duration, plural, size
from tracekit.metrics import METRICS

NAIVE = SAMPLES / "neuron" / "rms_naive" / "capture"


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0 ns"), (999, "999 ns"), (999_949, "999.9 µs"), (999_983, "1.0 ms"), (-999_983, "-1.0 ms"), (None, "")],
)
def test_a_duration_is_never_a_thousand_of_its_unit(ns: int | None, text: str) -> None:
    assert duration(ns) == text


@pytest.mark.parametrize(("count", "text"), [(999, "999 B"), (999_960, "1.0 MB"), (999_940, "999.9 kB")])
def test_a_size_is_never_a_thousand_of_its_unit(count: int, text: str) -> None:
    assert size(count) == text


def test_plural() -> None:
    assert [plural(n, "file") for n in (0, 1, 2_358)] == ["0 files", "1 file", "2,358 files"]


def test_headings_are_english() -> None:
    headings = {output._heading(name) for metric in METRICS.values() for name in metric.table.names}
    assert not headings & {"launchs", "never rans", "smalls", "matcheds", "lasts", "earlies", "unfinisheds"}
    assert {"launches", "copies", "never ran", "bandwidth"} <= headings


def test_screens_name_columns_of_their_table() -> None:
    for metric in METRICS.values():
        assert set(metric.screen) <= set(metric.table.names), metric.name


def test_what_is_null_everywhere_is_not_shown() -> None:
    frame = pl.DataFrame({"session": ["a", "b"], "rank": [None, None]}, schema_overrides={"rank": pl.Int32})
    assert output._telling(frame, ("session", "rank")) == ["session"]


@pytest.mark.parametrize("command", ["analyze", "info", "artifacts", "chains", "doctor", "report", "baseline"])
def test_output_in_no_directory_is_told_before_any_work(command: str, tmp_path: Path) -> None:
    result = tracekit(command, NAIVE, "-o", tmp_path / "none" / "x.json", cache=tmp_path)
    assert_one_line(result)
    assert "there is no directory" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_info_writes_its_text_to_a_file(tmp_path: Path) -> None:
    result = tracekit("info", NAIVE, "-o", tmp_path / "info.txt", cache=tmp_path / "cache")
    assert (result.returncode, result.stdout) == (0, "")
    assert "Events by lane and kind" in (tmp_path / "info.txt").read_text(encoding="utf-8")


def test_a_profile_cannot_be_chosen_where_there_is_one(tmp_path: Path) -> None:
    result = tracekit("analyze", NAIVE, "--profile", "other", cache=tmp_path)
    assert_one_line(result)
    assert "--profile" in result.stderr
