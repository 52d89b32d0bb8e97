"""A new user's walk: real traces as a batch, then the same questions in every way that the documentation names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl
import pytest

import tracekit
from tests.archive_data import run
from tests.shared_data import CORPUS, corpus_truth

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus beside the checkout")
duckdb = pytest.importorskip("duckdb")

SOURCES = ("tracelens/h100_qwen.json.gz", "hta/compare", "hta/two_ranks", "hta/triton_tiny.json.gz")
Analysed: TypeAlias = dict[str, dict[str, list[dict[str, Any]]]]
CAUSES = ("runtime", "dispatching", "not_dispatched", "collective", "copy", "model_switch", "unknown")
PAGE = (Path(__file__).parents[1] / "docs" / "queries.md").read_text(encoding="utf-8")
BUSY = next(sql for sql in re.findall(r'"""\n(.*?)"""', PAGE, re.DOTALL) if "until_ns" in sql)


def sources() -> list[Path]:
    """A few of the corpus: one device, one step, two ranks, two small ones of one folder."""
    found = [CORPUS / s for s in SOURCES if (CORPUS / s).exists()]
    return found or sorted(CORPUS.glob("*/*"))[:4]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("walk")
    done = run("batch", *sources(), "-o", root / "runs", "--label", "commit=4f2a", "--results", root / "done.json")
    assert done.exit_code == 0, (done.output, done.exception)
    assert "next: tracekit archive ls" in done.output
    return root


@pytest.fixture(scope="module")
def archive(place: Path) -> tracekit.Archive:
    opened = tracekit.open(place / "runs")
    assert isinstance(opened, tracekit.Archive)
    return opened


def shown(*words: object) -> list[dict[str, Any]]:
    result = run(*words, "--format", "json")
    assert result.exit_code == 0, (words, result.output, result.exception)
    rows: list[dict[str, Any]] = json.loads(result.output)
    return rows


@pytest.fixture(scope="module")
def analysed(place: Path, archive: tracekit.Archive) -> Analysed:
    """Profile → metrics, as ``tracekit analyze`` says of each alone."""
    answers = {}
    for profile in archive.ids:
        result = run("analyze", place / "runs", "--profile", profile, "--format", "json")
        assert result.exit_code == 0, result.exception
        answers[profile] = json.loads(result.output)["metrics"]
    return answers


def by_sql(place: Path, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in shown("query", place / "runs", sql)]


def test_every_capture_is_stored_and_listed(place: Path) -> None:
    done = json.loads((place / "done.json").read_text())
    assert {row["status"] for row in done} == {"stored"}
    listed = shown("archive", "ls", place / "runs")
    assert {row["profile"] for row in listed} == {row["profile"] for row in done}


def test_self_time_of_every_operator(place: Path, archive: tracekit.Archive, analysed: Analysed) -> None:
    total = pl.col("self_cpu_ns").sum()
    by_polars = archive.metric("ops").group_by("profile", "name").agg(total).collect().rows()
    assert sorted(by_sql(place, "SELECT profile, name, SUM(self_cpu_ns) FROM ops GROUP BY profile, name")) == sorted(
        by_polars
    )
    file = place / "ops.parquet"
    assert run("query", place / "runs", "SELECT * FROM ops", "-o", file).exit_code == 0
    asked = f"SELECT profile, name, SUM(self_cpu_ns)::BIGINT FROM '{file}' GROUP BY ALL"
    assert sorted(duckdb.sql(asked).fetchall()) == sorted(by_polars)
    for profile in archive.ids:
        sums: dict[str, int] = {}
        for row in analysed[profile]["ops"]:
            sums[row["name"]] = sums.get(row["name"], 0) + row["self_cpu_ns"]
        assert sums == {name: ns for owner, name, ns in by_polars if owner == profile}


def test_busy_time_of_devices(place: Path, archive: tracekit.Archive, analysed: Analysed) -> None:
    everything = archive.metric("devices", scope="all").group_by("profile").agg(pl.col("busy_ns").sum()).collect()
    busy = dict(everything.rows())
    for profile in archive.ids:
        own = BUSY.replace("'runs/", f"'{place}/runs/")
        assert duckdb.execute(own, [profile]).fetchall()[0][0] == busy[profile]
        rows = shown("show", "devices", place / "runs", "--profile", profile, "--all")
        assert sum(row["busy_ns"] for row in rows) == busy[profile]
        steps = by_sql(place, f"SELECT SUM(busy_ns) FROM devices WHERE profile = '{profile}'")
        assert steps == [(sum(row["busy_ns"] for row in analysed[profile]["devices"]),)]
    assert sum(busy.values()) > 0


def test_busy_time_is_the_independent_truth(archive: tracekit.Archive) -> None:
    truth = corpus_truth()
    busy = dict(
        archive.metric("devices", scope="all").group_by("profile").agg(pl.col("busy_ns").sum()).collect().rows()
    )
    checked = 0
    for label, expected in truth.items():
        stem = Path(label).name.partition(".")[0]
        match = [i for i in archive.ids if i.rpartition("-")[0] == stem and expected.get("device")]
        if match:
            assert busy[match[0]] == expected["device"]["busy_ns"], label
            checked += 1
    assert checked >= 2


def test_top_operators_by_device_time(place: Path, archive: tracekit.Archive) -> None:
    on_device = archive.chains.filter(pl.col("hardware_start_ns").is_not_null())
    totals = on_device.group_by("name").agg(pl.col("device_ns").sum())
    by_polars = totals.sort("device_ns", "name", descending=[True, False]).head(5).collect().rows()
    named = shown("query", place / "runs", "@top-ops", "--param", "limit=5")
    assert [(row["name"], row["device_ns"]) for row in named] == by_polars
    asked = f"""
        SELECT name, SUM(device_ns)::BIGINT AS device_ns
        FROM read_parquet('{place}/runs/profile=*/chains.parquet', hive_partitioning = true)
        WHERE hardware_start_ns IS NOT NULL GROUP BY name ORDER BY device_ns DESC, name LIMIT 5"""
    assert duckdb.sql(asked).fetchall() == by_polars
    work = [row for i in archive.ids for row in shown("show", "work", place / "runs", "--profile", i, "--all")]
    assert sum(row["device_ns"] for row in work) == totals.select(pl.col("device_ns").sum()).collect().item()


def test_idle_time_by_cause(place: Path, archive: tracekit.Archive, analysed: Analysed) -> None:
    columns = [f"{cause}_ns" for cause in CAUSES]
    sums = ", ".join(f"SUM({column})::BIGINT AS {column}" for column in columns)
    file = place / "gaps.parquet"
    assert run("query", place / "runs", "SELECT * FROM gaps", "-o", file).exit_code == 0
    gaps = archive.gaps().group_by("profile").agg(pl.col(columns).sum()).collect()
    by_polars = {row[0]: row[1:] for row in gaps.rows()}
    assert len(by_polars) >= 3
    for profile, parts in by_polars.items():
        assert by_sql(place, f"SELECT {sums} FROM gaps WHERE profile = '{profile}'") == [parts]
        assert duckdb.sql(f"SELECT {sums} FROM '{file}' WHERE profile = '{profile}'").fetchall() == [parts]
        groups = shown("show", "gaps", place / "runs", "--profile", profile, "--by", "cause")
        assert tuple(sum(row[column] for row in groups) for column in columns) == parts
        alone = analysed[profile]["gaps"]
        assert sum(row["gap_ns"] for row in alone) == sum(parts)
