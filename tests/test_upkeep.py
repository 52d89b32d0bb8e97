from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

import tracekit
from tests.archive_data import NEURON, sample_archive, stored
from tracekit import archive as store
from tracekit import upkeep
from tracekit.errors import ArchiveError
from tracekit.profile import open_archive


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return sample_archive(tmp_path / "archive")


@pytest.fixture
def first(archive: Path) -> str:
    return store.profile_ids(archive)[0]


def test_what_was_ingested_is_sound(archive: Path) -> None:
    assert [p for i in store.profile_ids(archive) for p in upkeep.verify(archive, i)] == []


@pytest.mark.parametrize("table", sorted(t for t in ("events", "chains", "sessions", "notes")))
def test_every_flipped_byte_is_found(archive: Path, first: str, table: str) -> None:
    path = store.profile_path(archive, first) / f"{table}.parquet"
    whole = path.read_bytes()
    for position in range(0, len(whole), max(1, len(whole) // 40)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        assert upkeep.verify(archive, first), position
    path.write_bytes(whole)
    assert not upkeep.verify(archive, first)


def test_missing_cut_and_exchanged_files_are_told_apart(archive: Path, first: str) -> None:
    other = store.profile_ids(archive)[1]
    directory = store.profile_path(archive, first)
    (directory / "links.parquet").unlink()
    cut = directory / "chains.parquet"
    cut.write_bytes(cut.read_bytes()[:-9])
    (directory / "notes.parquet").write_bytes((store.profile_path(archive, other) / "flows.parquet").read_bytes())
    problems = {p["file"]: p["problem"] for p in upkeep.verify(archive, first, contents=False)}
    assert problems["links.parquet"] == "missing"
    assert "bytes instead of" in problems["chains.parquet"]
    assert set(problems) == {"links.parquet", "chains.parquet", "notes.parquet"}


def test_labels_are_set_and_removed_and_the_capture_stays_known(archive: Path, first: str) -> None:
    upkeep.relabel(archive, first, {"commit": None, "build": "7"})
    runs = open_archive(archive).runs.filter(pl.col("profile") == first).collect()
    assert runs["label_build"].item() == "7"
    assert runs["label_commit"].item() is None
    assert not upkeep.verify(archive, first)
    name = next(n for n in ("rms_compiled", "rms_fused", "rms_naive", "train_small") if _is(archive, first, n))
    assert tracekit.ingest([NEURON / name / "capture"], archive, labels={"commit": name}).was_stored


def _is(archive: Path, profile_id: str, name: str) -> bool:
    again = tracekit.ingest([NEURON / name / "capture"], archive, labels={"commit": name})
    return again.profile_id == profile_id


def test_renamed_profiles_keep_their_rows(archive: Path, first: str) -> None:
    before = open_archive(archive)[first].events.collect()
    upkeep.rename(archive, first, "better")
    found = open_archive(archive)
    assert first not in found and found["better"].id == "better"
    assert found["better"].events.collect().equals(before)
    assert not upkeep.verify(archive, "better")
    for bad in ("../x", "a/b", "", "a b", "x" * 65):
        with pytest.raises(ArchiveError):
            upkeep.rename(archive, "better", bad)
    with pytest.raises(ArchiveError, match="already"):
        upkeep.rename(archive, "better", store.profile_ids(archive)[1])


def test_removed_profiles_are_gone_and_others_stay(archive: Path, first: str) -> None:
    others = {k: v for k, v in stored(archive).items() if k != f"profile={first}"}
    upkeep.remove(archive, first)
    assert stored(archive) == others
    assert not [p for p in archive.iterdir() if p.name.startswith(".")]
    for bad in (first, "../archive", "..", ""):
        with pytest.raises(ArchiveError):
            upkeep.remove(archive, bad)


def test_compacted_profiles_hold_the_same_rows(archive: Path, first: str) -> None:
    before = {t: open_archive(archive)[first].table(t).collect() for t in tracekit.tables.TABLES}
    upkeep.compact(archive, first)
    for table, rows in before.items():
        assert open_archive(archive)[first].table(table).collect().equals(rows)
    assert not upkeep.verify(archive, first)
    changed = stored(archive)
    upkeep.compact(archive, first)
    assert stored(archive) == changed


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_only_what_dead_processes_left_is_removed(archive: Path) -> None:
    machine = store.machine_id()
    dead = archive / f".staging-a-{machine}.{dead_pid()}-00000000"
    alive = archive / f".staging-a-{machine}.{os.getpid()}-00000000"
    elsewhere = archive / ".staging-a-ffffffff.1-00000000"
    ancient = archive / ".staging-b-ffffffff.1-00000000"
    for path in (dead, alive, elsewhere, ancient):
        path.mkdir()
    long_ago = time.time() - 3 * 86400
    os.utime(ancient, (long_ago, long_ago))
    before = stored(archive)
    assert sorted(upkeep.clean(archive)) == sorted([dead.name, ancient.name])
    assert alive.is_dir() and elsewhere.is_dir()
    assert stored(archive) == before


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")
def test_a_process_that_ended_unnoticed_counts_as_dead(archive: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    left = archive / f".staging-a-{store.machine_id()}.{process.pid}-00000000"
    left.mkdir()
    try:
        assert upkeep.clean(archive) == [left.name]
    finally:
        process.wait()


def test_a_replaced_profile_comes_back_if_its_replacement_never_came(archive: Path, first: str) -> None:
    before = stored(archive)
    gone = archive / f".replaced-{first}-{store.machine_id()}.{dead_pid()}-00000000"
    store.profile_path(archive, first).rename(gone)
    assert upkeep.clean(archive) == [gone.name]
    assert stored(archive) == before


def _relabel_often(archive: Path, profile_id: str, key: str) -> None:
    for i in range(25):
        upkeep.relabel(archive, profile_id, {key: str(i)})


def test_two_processes_that_relabel_leave_a_sound_profile(archive: Path, first: str) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_relabel_often, args=(archive, first, key)) for key in ("a", "b")]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    upkeep.clean(archive)
    assert not upkeep.verify(archive, first)
    assert len(store.profile_ids(archive)) == 4


def flip(path: Path) -> None:
    """Change one byte in the middle of a file; its size stays."""
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)


def test_no_change_hides_damage(archive: Path, first: str) -> None:
    directory = store.profile_path(archive, first)
    flip(directory / "chains.parquet")
    damaged = [(p["file"], p["problem"]) for p in upkeep.verify(archive, first)]
    assert [file for file, _ in damaged] == ["chains.parquet"]
    upkeep.relabel(archive, first, {"build": "7"})
    assert [(p["file"], p["problem"]) for p in upkeep.verify(archive, first)] == damaged
    upkeep.rename(archive, first, "other")
    assert [(p["file"], p["problem"]) for p in upkeep.verify(archive, "other")] == damaged
    with pytest.raises(ArchiveError, match=r"chains.parquet: damaged: its content has changed"):
        upkeep.compact(archive, "other")
    assert [(p["file"], p["problem"]) for p in upkeep.verify(archive, "other")] == damaged
    flip(store.profile_path(archive, "other") / "sessions.parquet")
    with pytest.raises(ArchiveError, match=r"sessions.parquet: damaged"):
        upkeep.relabel(archive, "other", {"build": "8"})


@pytest.mark.parametrize("harm", ["cut", "missing", "no manifest", "half a manifest", "older"])
def test_ingesting_again_mends_what_shows(archive: Path, harm: str) -> None:
    name = "rms_fused"
    done = tracekit.ingest([NEURON / name / "capture"], archive, labels={"commit": name})
    sound = stored(archive)
    events, manifest = done.path / "events.parquet", done.path / store.MANIFEST
    if harm == "cut":
        events.write_bytes(events.read_bytes()[:100])
    elif harm == "missing":
        events.unlink()
    elif harm == "no manifest":
        manifest.unlink()
    elif harm == "half a manifest":
        manifest.write_text(manifest.read_text()[:200])
    else:
        manifest.write_text(manifest.read_text().replace('"schema_version": 1', '"schema_version": 0'))
    again = tracekit.ingest([NEURON / name / "capture"], archive, labels={"commit": name})
    assert again.path == done.path and not again.was_stored
    assert stored(archive) == sound


def test_what_cannot_be_seen_is_mended_by_force(archive: Path) -> None:
    capture, labels = [NEURON / "rms_fused" / "capture"], {"commit": "rms_fused"}
    done = tracekit.ingest(capture, archive, labels=labels)
    flip(done.path / "chains.parquet")
    assert "--force" in str(upkeep.verify(archive, done.profile_id)[0]["hint"])
    tracekit.ingest(capture, archive, labels=labels, force=True)
    assert not upkeep.verify(archive, done.profile_id)
