from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import tracekit
from tests.archive_data import run, small_trace, stored
from tests.test_batch import tree
from tracekit import archive as store


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tree(tmp_path_factory.mktemp("captures"), 4, bad=2)


def test_a_batch_reports_stores_and_goes_on(source: Path, tmp_path: Path) -> None:
    dry = run("batch", source, "-o", tmp_path / "runs", "--dry-run")
    assert "6 to do" in dry.output and not (tmp_path / "runs").exists()
    first = run(
        "batch", source, "-o", tmp_path / "runs", "--results", tmp_path / "r.json", "--label", "a=b", "--jobs", 1
    )
    assert first.exit_code == 1
    assert "4 stored, 2 failed" in first.output and "bad000" in first.output
    rows = json.loads((tmp_path / "r.json").read_text())
    assert sorted(r["status"] for r in rows) == ["failed"] * 2 + ["stored"] * 4
    assert all(r["problem"] for r in rows if r["status"] == "failed")
    again = run(
        "batch", source, "-o", tmp_path / "runs", "--results", tmp_path / "r.csv", "--label", "a=b", "--jobs", 1
    )
    assert "0 stored, 4 known, 2 failed" in again.output
    assert len((tmp_path / "r.csv").read_text().splitlines()) == 7
    assert (tmp_path / "runs" / ".index").is_dir()
    shutil.rmtree(tmp_path / "runs" / ".index")
    run("batch", source, "-o", tmp_path / "runs", "--label", "a=b", "--jobs", 1)
    assert (tmp_path / "runs" / ".index").is_dir(), "what a killed batch did not index is indexed by the next"


def test_a_dask_cluster_of_processes_gives_the_same_profiles(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    run("batch", source, "-o", tmp_path / "here", "--jobs", 1)
    run("batch", source, "-o", tmp_path / "cluster", "--jobs", 2, "--scheduler", "local")
    assert stored(tmp_path / "here") == stored(tmp_path / "cluster")
    assert len(stored(tmp_path / "cluster")) == 4


def test_the_corpus_answers_as_analysis_does(source: Path, tmp_path: Path) -> None:
    run("batch", source, "-o", tmp_path, "--jobs", 1)
    rows = json.loads(
        run("query", tmp_path, "SELECT profile, COUNT(*) n FROM events GROUP BY profile", "--format", "json").output
    )
    for row in rows:
        path = store.profile_path(tmp_path, row["profile"])
        opened = tracekit.open(path)
        assert row["n"] == opened.events.collect().height


@pytest.mark.parametrize(
    ("options", "code"),
    [
        pytest.param(["--limit-memory", "lots"], 2, id="size"),
        pytest.param(["--label", "nope"], 2, id="label"),
        pytest.param(["--results", "x.txt"], 2, id="results"),
        pytest.param(["--jobs", "0"], 2, id="jobs"),
        pytest.param(["--limit-memory", "1.5GB", "--retry", "1"], 1, id="fine"),
    ],
)
def test_options_are_checked(source: Path, tmp_path: Path, options: list[str], code: int) -> None:
    assert run("batch", source, "-o", tmp_path / "runs", "--jobs", 1, *options).exit_code == code


def test_nothing_to_read_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for source in (tmp_path / "empty", tmp_path / "missing", f"@{tmp_path / 'missing.txt'}"):
        result = run("batch", source, "-o", tmp_path / "runs", "--jobs", 1)
        assert result.exit_code == 1 and "failed" in result.output, source


def test_hostile_names_are_shown_safely(tmp_path: Path) -> None:
    for name in ("a\nb", "\x1b[31m", os.fsdecode(b"\xff\xfe"), "\u202ex"):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "trace.json").write_text("broken")
        small_trace(tmp_path / "in" / name / "ok.json", 3 + len(name), name=name.encode("ascii", "replace").decode())
    result = run("batch", tmp_path / "in", "-o", tmp_path / "runs", "--jobs", 1)
    assert "4 stored, 4 failed" in result.output, result.output
    assert "\x1b" not in result.output and "\u202e" not in result.output
    assert len(result.output.splitlines()) == 6  # four failures, the sum, and what to do next
