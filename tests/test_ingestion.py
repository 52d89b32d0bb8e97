from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

import tracekit
from tests.shared_data import SAMPLES
from tracekit import archive as store
from tracekit.errors import ArchiveError

NAIVE = SAMPLES / "neuron" / "rms_naive"


def trace(path: Path, events: list[dict[str, object]], **header: object) -> Path:
    path.write_text(json.dumps({"baseTimeNanoseconds": 1_000, **header, "traceEvents": events}))
    return path


def op(name: str = "aten::mul", ts: float = 1.0, **args: object) -> dict[str, object]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": 2.5, "args": args}


def digest(profile: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(profile.iterdir())}


@pytest.fixture(scope="module")
def naive(tmp_path_factory: pytest.TempPathFactory) -> tracekit.Profile:
    opened = tracekit.open(tracekit.ingest([NAIVE / "capture"], tmp_path_factory.mktemp("naive")).path)
    assert isinstance(opened, tracekit.Profile)
    return opened


def test_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    first = tracekit.ingest([NAIVE], tmp_path / "a")
    second = tracekit.ingest([NAIVE], tmp_path / "b")
    assert first.profile_id == second.profile_id
    assert digest(first.path) == digest(second.path)


def test_ingesting_again_does_nothing_unless_forced(tmp_path: Path) -> None:
    first = tracekit.ingest([NAIVE / "capture"], tmp_path)
    written = (first.path / "events.parquet").stat().st_mtime_ns
    again = tracekit.ingest([NAIVE / "capture"], tmp_path)
    assert again.was_stored and again.event_count == first.event_count
    assert (first.path / "events.parquet").stat().st_mtime_ns == written
    forced = tracekit.ingest([NAIVE / "capture"], tmp_path, force=True)
    assert not forced.was_stored
    assert (first.path / "events.parquet").stat().st_mtime_ns != written


def test_a_name_is_taken_by_other_input_only_when_forced(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    first = tracekit.ingest([trace(tmp_path / "a.json", [op()])], archive, profile_id="x")
    before = digest(first.path)
    other = trace(tmp_path / "b.json", [op(), op()])
    with pytest.raises(ArchiveError, match="there is a profile x already, of another input"):
        tracekit.ingest([other], archive, profile_id="x")
    assert digest(first.path) == before
    assert tracekit.ingest([other], archive, profile_id="x", force=True).event_count == 2


@pytest.mark.parametrize("name", ["nightly x", "a/../b", "ü", "", "..", "x" * 65])
def test_names_that_would_have_to_be_changed_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArchiveError, match="is no name for a profile"):
        tracekit.ingest([trace(tmp_path / "a.json", [op()])], tmp_path / "archive", profile_id=name)
    assert not (tmp_path / "archive").exists()


def test_changed_content_is_another_profile(tmp_path: Path) -> None:
    source = trace(tmp_path / "t.json", [op()])
    first = tracekit.ingest([source], tmp_path / "a")
    trace(source, [op(), op(ts=9)])
    second = tracekit.ingest([source], tmp_path / "a")
    assert first.profile_id != second.profile_id
    assert store.profile_ids(tmp_path / "a") == sorted([first.profile_id, second.profile_id])


def test_times_are_exact_nanoseconds(tmp_path: Path) -> None:
    base = 1_790_857_026_000_000_000
    text = '{"baseTimeNanoseconds": %d, "traceEvents": [%s]}'
    event = '{"ph":"X","cat":"cpu_op","name":"x","pid":1,"tid":1,"ts":5195674157883.833,"dur":0.001}'
    (tmp_path / "t.json").write_text(text % (base, event))
    stored = tracekit.open(tracekit.ingest([tmp_path / "t.json"], tmp_path / "a").path)
    row = stored.events.select("start_ns", "end_ns").collect().row(0)
    assert row == (base + 5_195_674_157_883_833, base + 5_195_674_157_883_834)


def test_sources_that_agree_change_no_number(tmp_path: Path, naive: tracekit.Profile) -> None:
    everything = tracekit.open(tracekit.ingest([NAIVE], tmp_path).path)
    columns = ["name", "lane", "kind", "start_ns", "end_ns", "core_index", "physical_core", "execution_id"]
    order = {"by": columns, "nulls_last": True}
    one = naive.events.filter("is_primary").select(columns).sort(**order).collect()
    several = everything.events.filter("is_primary").select(columns).sort(**order).collect()
    assert one.equals(several)
    codes = everything.notes.filter(pl.col("code") == "duplicate_source").collect()
    assert codes.height and not everything.notes.filter(pl.col("code") == "sources_disagree").collect().height


def test_sources_that_disagree_are_reported_with_the_difference(tmp_path: Path) -> None:
    shutil.copytree(NAIVE, tmp_path / "capture")
    path = tmp_path / "capture" / "explorer" / "SystemProfileEvents.parquet"
    rows = pl.read_parquet(path)
    is_execution = pl.col("name") == "nc_exec_running"
    longer = pl.when(is_execution).then(pl.col("end_ts") + 100).otherwise(pl.col("end_ts"))
    rows.with_columns(end_ts=longer, duration_ns=longer - pl.col("start_ts")).write_parquet(path)
    stored = tracekit.open(tracekit.ingest([tmp_path / "capture"], tmp_path / "a").path)
    notes = stored.notes.filter(pl.col("code") == "sources_disagree").collect()
    assert notes.height == 1
    assert "nc_exec_running has 12 events" in notes["message"][0]
    assert stored.events.filter(is_execution, pl.col("source") != "explorer").collect().is_empty()


def test_framework_rows_of_explorer_are_used_when_the_trace_cannot_be_read(tmp_path: Path) -> None:
    shutil.copytree(NAIVE, tmp_path / "capture")
    (damaged,) = (tmp_path / "capture").rglob("trace.json")
    damaged.write_text("this is no trace")
    stored = tracekit.open(tracekit.ingest([tmp_path / "capture"], tmp_path / "a").path)
    dispatch = stored.events.filter(pl.col("lane") == "dispatch", pl.col("kind") == "op").collect()
    assert dispatch["source"].unique().to_list() == ["explorer"]
    assert dispatch.height == 6
    assert stored.events.select(pl.col("event_id").is_duplicated().any()).collect().item() is False
    assert stored.metric("counts", by="total").collect()["execution_count"].to_list() == [6]


def test_one_unreadable_file_is_a_note_and_the_rest_is_read(tmp_path: Path) -> None:
    trace(tmp_path / "rank0.json", [op()])
    (tmp_path / "rank1.json").write_text('{"traceEvents": 7}')
    stored = tracekit.open(tracekit.ingest([tmp_path], tmp_path.parent / f"{tmp_path.name}-a").path)
    assert stored.events.select(pl.len()).collect().item() == 1
    errors = stored.notes.filter(pl.col("severity") == "error").collect()
    assert errors["path"].to_list() == ["rank1.json"]


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b"\x00" * 100, gzip.compress(b"no json"), b'{"a": 1}', b"[1, 2, 3]"],
    ids=["empty", "text", "zeros", "gzip", "object", "numbers"],
)
def test_input_that_is_no_trace_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "trace.json").write_bytes(content)
    with pytest.raises(tracekit.TracekitError) as caught:
        tracekit.ingest([tmp_path / "trace.json"], tmp_path / "archive")
    assert "trace.json" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "archive").exists() or not list((tmp_path / "archive").iterdir())


def test_labels_are_stored_and_make_another_profile(tmp_path: Path) -> None:
    source = trace(tmp_path / "t.json", [op()])
    plain = tracekit.ingest([source], tmp_path / "a")
    labelled = tracekit.ingest([source], tmp_path / "a", labels={"commit": "4f2a"})
    assert plain.profile_id != labelled.profile_id
    sessions = tracekit.open(labelled.path).sessions.collect()
    assert json.loads(sessions["labels_json"][0]) == {"commit": "4f2a"}


def test_event_ids_name_the_file_and_rise(tmp_path: Path) -> None:
    trace(tmp_path / "rank0.json", [op(), op(ts=7)])
    trace(tmp_path / "rank1.json", [op()])
    stored = tracekit.open(tracekit.ingest([tmp_path], tmp_path.parent / f"{tmp_path.name}-a").path)
    ids = stored.events.select("event_id", "session").collect()
    assert ids["event_id"].is_sorted() and ids["event_id"].n_unique() == 3
    ordinals = {s["ordinal"]: s["path"] for s in stored.manifest["sources"]}  # type: ignore[union-attr]
    assert {ordinals[i >> 40].removesuffix(".json") for i in ids["event_id"]} == set(ids["session"])


def test_device_tables_are_queried_where_they_lie(tmp_path: Path) -> None:
    shutil.copytree(NAIVE / "explorer", tmp_path / "explorer")
    for part in range(2):
        rows = pl.DataFrame({"opcode": ["MATMUL"], "count": [part]})
        rows.write_parquet(tmp_path / "explorer" / f"OpcodeSummary_{part}.parquet")
    stored = tracekit.open(tracekit.ingest([tmp_path / "explorer"], tmp_path / "a").path)
    assert list(stored.device_tables) == ["OpcodeSummary"]
    assert stored.device_table("OpcodeSummary").select(pl.col("count").sum()).collect().item() == 1
    assert not list((tmp_path / "a").rglob("OpcodeSummary*"))
    shutil.rmtree(tmp_path / "explorer")
    with pytest.raises(tracekit.ArchiveError, match="moved or deleted"):
        stored.device_table("OpcodeSummary")


def test_a_killed_ingest_leaves_nothing_that_looks_finished(tmp_path: Path) -> None:
    events = [op(ts=float(i)) for i in range(150_000)]
    source = trace(tmp_path / "big.json", events)
    code = f"import tracekit; tracekit.ingest([{str(source)!r}], {str(tmp_path / 'a')!r})"
    for delay in (0.6, 1.2):
        process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for profile in (tmp_path / "a").glob("profile=*"):
            assert store.scan([profile], "events").select(pl.len()).collect().item() == len(events)
    result = tracekit.ingest([source], tmp_path / "a")
    assert tracekit.open(result.path).events.select(pl.len()).collect().item() == len(events)
