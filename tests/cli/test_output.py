from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.cli.command import assert_one_line, tracekit
from tests.shared_data import SAMPLES
from tracekit.cli import output
from tracekit.metrics import METRICS
from tracekit.tables import NOTES

NAIVE = SAMPLES / "neuron" / "rms_naive" / "capture"


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


def test_info_writes_its_text_to_a_file(tmp_path: Path, cache: Path) -> None:
    result = tracekit("info", NAIVE, "-o", tmp_path / "info.txt", cache=cache)
    assert (result.returncode, result.stdout) == (0, "")
    assert "Events by lane and kind" in (tmp_path / "info.txt").read_text(encoding="utf-8")


def test_a_profile_cannot_be_chosen_where_there_is_one(cache: Path) -> None:
    result = tracekit("analyze", NAIVE, "--profile", "other", cache=cache)
    assert_one_line(result)
    assert "--profile" in result.stderr


@pytest.mark.parametrize("command", ["analyze", "info", "artifacts", "chains", "doctor"])
def test_no_line_ends_in_blanks(command: str, tmp_path: Path, cache: Path) -> None:
    path = SAMPLES / "neuron" / "train_small" / "capture"
    text = tracekit(command, path, cache=cache).stdout
    tracekit(command, path, "-o", tmp_path / "out.txt", cache=cache)
    written = (tmp_path / "out.txt").read_text(encoding="utf-8")
    assert [line for line in (text + written).splitlines() if line != line.rstrip()] == []
    assert len(text.splitlines()) > 3


def test_where_tables_are_kept_is_told_when_they_are_made(tmp_path: Path) -> None:
    first, again = (tracekit("chains", NAIVE, cache=tmp_path) for _ in range(2))
    assert "tables are kept in" in first.stderr
    assert again.stderr == ""
    assert first.stdout == again.stdout


def test_info_names_each_rank_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "in" / name).mkdir(parents=True)
        event = f'{{"ph":"X","name":"{name}","pid":1,"tid":1,"ts":1,"dur":1}}'
        text = f'{{"distributedInfo":{{"rank":3}},"traceEvents":[{event}]}}'
        (tmp_path / "in" / name / "trace.json").write_text(text)
    text = tracekit("info", tmp_path / "in", cache=tmp_path / "cache").stdout
    assert "3 (2 sessions)" in text
    assert "3, 3" not in text


def test_a_sentence_ends_with_one_full_stop(cache: Path) -> None:
    assert ".." not in tracekit("info", NAIVE, cache=cache).stdout


def test_equal_notes_of_several_files_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"severity": "info", "code": "c", "message": "drift by 123456 ns", "session": "s"}
    rows = [{**row, "path": path, "session": path} for path in ("a.pb", "b.pb", "c.pb")]
    rows += [{**row, "message": "2 event(s) lost", "session": session} for session in ("s", "t")]
    output.print_notes(output.console(), NOTES.rows(rows))
    assert capsys.readouterr().out.splitlines() == [
        "Notes",
        "  info a.pb and 2 more files: drift by 123.5 µs",
        "  info 2 events lost (in each of 2 sessions)",
    ]


def test_endings_that_are_not_written_are_refused(tmp_path: Path, cache: Path) -> None:
    tracekit("show", "gaps", NAIVE, cache=cache)
    result = tracekit("show", "gaps", NAIVE, "-o", tmp_path / "x.xlsx", cache=cache)
    assert_one_line(result)
    assert ".xlsx files are not written" in result.stderr
    assert list(tmp_path.iterdir()) == []
