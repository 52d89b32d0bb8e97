"""Metrics as tables over an archive: the same rows from the index, the spool, and profile by profile."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import tracekit
from tests.archive_data import NEURON, run, sample_archive
from tracekit import archive as store
from tracekit import durations, index, measured, upkeep
from tracekit.cli import main
from tracekit.metrics import METRICS
from tracekit.profile import Archive, open_archive


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return sample_archive(tmp_path / "archive")


def one_by_one(found: Archive, name: str) -> pl.DataFrame:
    spec = METRICS[name].table
    frames = [
        spec.conform(p.metric(name).collect()).select(pl.lit(i).alias("profile"), pl.all()) for i, p in found.items()
    ]
    return pl.concat(frames)


def check(left: pl.DataFrame, right: pl.DataFrame) -> None:
    """Equal but for the order of rows and the last bits of floats."""
    assert_frame_equal(left, right, check_row_order=False, rel_tol=1e-12)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The profiles with the most kinds of rows."""
    root = sample_archive(tmp_path_factory.mktemp("two"))
    for profile_id in store.profile_ids(root):
        if not profile_id.startswith(("rms_naive", "train_small")):
            upkeep.remove(root, profile_id)
    return root


@pytest.mark.parametrize("name", METRICS)
def test_spool_and_index_hold_what_each_profile_says(two: Path, name: str) -> None:
    found = open_archive(two)
    expected = one_by_one(found, name)
    check(found.metric(name).collect(), expected)
    assert found.unindexed(name) == 2
    assert measured.build(two, name, found.__getitem__) == 2
    assert found.unindexed(name) == 0
    check(found.sql_table(name).collect(), expected)
    assert measured.build(two, name, found.__getitem__) == 0


def test_what_is_indexed_is_not_computed_again(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = open_archive(archive)
    measured.build(archive, "gaps", found.__getitem__)
    monkeypatch.setattr(measured, "write", lambda *_, **__: pytest.fail("computed again"))
    assert found.query("SELECT SUM(gap_ns) FROM gaps").collect().item() > 0
    with pytest.raises(pytest.fail.Exception):
        found.metric("gaps", scope="all")
    with pytest.raises(pytest.fail.Exception):
        found.metric("gaps", longer_than=1)


def test_changes_of_the_archive_are_never_missed(archive: Path) -> None:
    measured.build(archive, "ops", open_archive(archive).__getitem__)
    first, second = store.profile_ids(archive)[:2]
    upkeep.remove(archive, first)
    upkeep.rename(archive, second, "other")
    tracekit.ingest([NEURON / "rms_naive"], archive, profile_id="new")
    found = open_archive(archive)
    assert found.unindexed("ops") == 2
    check(found.metric("ops").collect(), one_by_one(found, "ops"))
    assert measured.build(archive, "ops", found.__getitem__) == 2
    check(found.metric("ops").collect(), one_by_one(found, "ops"))


def test_rows_of_another_version_are_replaced(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = open_archive(archive)
    measured.build(archive, "work", found.__getitem__)
    monkeypatch.setattr(measured, "__version__", "0.0.next")
    assert found.unindexed("work") == 4
    assert measured.build(archive, "work", found.__getitem__) == 4
    assert len(list((archive / index.FOLDER).glob("metric-work-*"))) == 1


def test_a_damaged_index_is_passed_over(archive: Path) -> None:
    found = open_archive(archive)
    measured.build(archive, "work", found.__getitem__)
    for path in (archive / index.FOLDER).iterdir():
        path.write_bytes(path.read_bytes()[:-20])
    check(found.metric("work").collect(), one_by_one(found, "work"))


def spoil(archive: Path, profile_id: str) -> None:
    """Damage the events of a profile as a bad disk does: some bytes in the middle."""
    path = store.profile_path(archive, profile_id) / "events.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:200] + bytes(800) + whole[1000:])


def test_a_damaged_profile_keeps_no_other_from_the_index(archive: Path) -> None:
    first, second = store.profile_ids(archive)[:2]
    spoil(archive, first)
    (store.profile_path(archive, second) / "chains.parquet").unlink()
    found = open_archive(archive)
    with pytest.raises(tracekit.ArchiveError, match=r"not indexed: .*\(and 1 more\)"):
        measured.build(archive, "work", found.__getitem__)
    assert measured.covered(archive, "work", found.ids)[1] == [first, second]
    assert not list((archive / index.FOLDER).glob(".*"))
    with pytest.raises(tracekit.ArchiveError, match=f"not indexed: {first}"):
        durations.build(archive)
    assert run("archive", "index", archive, "--metric", "work").exit_code == 1
    assert run("batch", NEURON / "rms_naive", "-o", archive, "--label", "again=1", "--jobs", "1").exit_code == 0


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("query", "SELECT COUNT(*) FROM gaps"), id="metric"),
        pytest.param(("query", "SELECT * FROM events"), id="table"),
        pytest.param(("trend",), id="trend"),
        pytest.param(("show", "gaps", "--profile"), id="profile"),
    ],
)
def test_damage_is_one_line_and_no_traceback(
    archive: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = store.profile_ids(archive)[0]
    spoil(archive, first)
    command, *options = words
    where = [*options[:1], str(archive), *options[1:], first] if command == "show" else [str(archive), *options]
    monkeypatch.setattr("sys.argv", ["tracekit", command, *where])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == 1
    told = capsys.readouterr().err
    assert "damaged" in told and "tracekit archive verify" in told and "Traceback" not in told
    assert len(told.splitlines()) == 1


def test_command_keeps_metrics_and_a_batch_renews_them(archive: Path) -> None:
    shown = run("archive", "index", archive, "--metric", "gaps", "--metric", "ops").output
    assert "durations: 4 profiles" in shown and "gaps: 4" in shown and "ops: 4" in shown
    assert "no metric 'nope'" in str(run("archive", "index", archive, "--metric", "nope").exception)
    assert run("batch", NEURON / "rms_naive", "-o", archive, "--label", "again=1", "--jobs", "1").exit_code == 0
    found = open_archive(archive)
    assert len(found) == 5
    assert found.unindexed("gaps") == 0 and found.unindexed("split") == 5


def test_a_query_says_what_takes_long(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracekit.cli.query._MANY", 4)
    told = run("query", archive, "SELECT COUNT(*) FROM gaps", "--format", "json")
    assert "computing gaps of 4 profiles" in told.stderr and "--metric gaps" in told.stderr
    run("archive", "index", archive, "--metric", "gaps")
    assert run("query", archive, "SELECT COUNT(*) FROM gaps", "--format", "json").stderr == ""
