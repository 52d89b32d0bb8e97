from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import tracekit
from tests.archive_data import NEURON, sample_archive
from tracekit import archive as store
from tracekit import durations, index, upkeep
from tracekit.profile import open_archive


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return sample_archive(tmp_path / "archive")


def rows(frame: pl.LazyFrame) -> list[tuple[object, ...]]:
    return frame.collect().sort(durations.DURATIONS.names).rows()


def plain(archive: Path) -> list[tuple[object, ...]]:
    return rows(durations.durations(open_archive(archive).events))


def test_index_and_events_hold_the_same(archive: Path) -> None:
    assert rows(open_archive(archive).durations) == plain(archive)
    assert durations.build(archive) == 4
    assert rows(open_archive(archive).durations) == plain(archive)
    assert durations.build(archive) == 0


def test_changes_of_the_archive_are_never_missed(archive: Path) -> None:
    durations.build(archive)
    first, second = store.profile_ids(archive)[:2]
    upkeep.remove(archive, first)
    assert rows(open_archive(archive).durations) == plain(archive)
    upkeep.rename(archive, second, "other")
    assert rows(open_archive(archive).durations) == plain(archive)
    tracekit.ingest([NEURON / "rms_naive"], archive, profile_id="other", force=True)
    tracekit.ingest([NEURON / "train_small"], archive)
    assert rows(open_archive(archive).durations) == plain(archive)
    assert durations.build(archive) == 2
    assert rows(open_archive(archive).durations) == plain(archive)


def test_profiles_indexed_twice_count_once(archive: Path) -> None:
    durations.build(archive)
    ids = store.profile_ids(archive)
    contents = {i: str(store.read_manifest(store.profile_path(archive, i))["content_id"]) for i in ids[:2]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "_segments", lambda *_: [])
        patch.setattr(index, "contents", lambda *_: contents)
        assert durations.build(archive) == 2
    assert len(list((archive / index.FOLDER).iterdir())) == 2
    assert rows(open_archive(archive).durations) == plain(archive)


def test_a_damaged_index_is_passed_over(archive: Path) -> None:
    durations.build(archive)
    for path in (archive / index.FOLDER).iterdir():
        path.write_bytes(path.read_bytes()[:-20])
    assert rows(open_archive(archive).durations) == plain(archive)


def test_named_query_equals_one_over_events(archive: Path) -> None:
    durations.build(archive)
    found = open_archive(archive)
    short = found.query("SELECT COUNT(*), QUANTILE_CONT(duration_ns, 0.95) FROM durations WHERE name = 'aten::mm'")
    long = found.query("SELECT COUNT(*), QUANTILE_CONT(end_ns - start_ns, 0.95) FROM events WHERE name = 'aten::mm'")
    assert short.collect().rows() == long.collect().rows()
    assert short.collect().row(0)[0] > 0
