"""Whose events they are, where a system trace names no process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

import tracekit
from tests.sources.neuron_captures import CAPTURES, INSTANCE, requires_captures

pytestmark = requires_captures
PROCESSES = [f"{INSTANCE}_pid_4242", f"{INSTANCE}_pid_4243"]


def framework(capture: str, into: Path) -> Path:
    """A capture without any system trace."""
    shutil.copytree(CAPTURES / capture / "capture", into / "capture", ignore=shutil.ignore_patterns("ntrace.pb"))
    return into


def without_process(capture: str, into: Path) -> None:
    """Explorer's export without its column ``process_id``."""
    (into / "explorer").mkdir()
    rows = pl.read_parquet(CAPTURES / capture / "explorer" / "SystemProfileEvents.parquet")
    rows.drop("process_id").write_parquet(into / "explorer" / "SystemProfileEvents.parquet")


def opened(directory: Path) -> tracekit.Profile:
    stored = tracekit.open(tracekit.ingest([directory], directory.parent / f"{directory.name}-archive").path)
    assert isinstance(stored, tracekit.Profile)
    return stored


def system(profile: tracekit.Profile) -> dict[str, int]:
    """Events of the system trace by session."""
    rows = profile.events.filter(pl.col("lane").is_in(["runtime", "hardware"])).collect()
    return dict(rows.group_by("session").len().rows())


def counts(profile: tracekit.Profile, code: str) -> list[int | None]:
    return profile.notes.filter(code=code).sort("session").collect()["event_count"].to_list()


@pytest.mark.parametrize("export", ["fetch", "explorer"])
def test_the_only_process_gets_the_events_that_name_none(tmp_path: Path, export: str) -> None:
    source = framework("rms_naive", tmp_path / "in")
    if export == "fetch":
        shutil.copy(CAPTURES / "rms_naive" / "fetch_pid_4242.json", source / "fetch.json")
    else:
        without_process("rms_naive", source)
    profile = opened(source)
    assert system(profile) == {PROCESSES[0]: 44}
    assert profile.events.collect()["process_id"].unique().to_list() == [4242]
    assert profile.chains.collect()["complete"].to_list() == [True] * 6
    assert counts(profile, "process_assumed") == [44]
    assert profile.sessions.collect().height == 1


def fetched(into: Path, *, threads_from: int) -> None:
    """The fetch files of two processes, their names not telling whose; threads are numbered anew."""
    for name, process in (("a", 4242), ("b", 4243)):
        whole = json.loads((CAPTURES / "train_2proc" / f"fetch_pid_{process}.json").read_text())
        for event in whole["events"]:
            event["thread_id"] += threads_from
        (into / f"{name}.json").write_text(json.dumps(whole))


def test_the_main_thread_tells_which_of_several_processes_it_is(tmp_path: Path) -> None:
    source = framework("train_2proc", tmp_path / "in")
    fetched(source, threads_from=0)
    profile = opened(source)
    assert system(profile) == dict.fromkeys(PROCESSES, 531)
    chains = profile.chains.collect()
    assert (chains.height, chains["complete"].sum()) == (150, 144)


def test_files_that_name_no_process_are_kept_apart(tmp_path: Path) -> None:
    source = framework("train_2proc", tmp_path / "in")
    fetched(source, threads_from=100_000)
    profile = opened(source)
    assert system(profile) == {"a": 531, "b": 531}
    assert counts(profile, "unknown_process") == [531, 531]
    assert counts(profile, "clock_not_aligned") == []


def test_framework_rows_of_unknown_processes_do_not_count_beside_traces(tmp_path: Path) -> None:
    source = framework("train_2proc", tmp_path / "in")
    without_process("train_2proc", source)
    profile = opened(source)
    dispatch = profile.events.filter(pl.col("lane").is_in(["dispatch", "stream"])).collect()
    assert dispatch["source"].unique().to_list() == ["kineto"]
    assert system(profile) == {"explorer": 1062}
    notes = profile.notes.filter(code="missing_column").collect()
    assert "no column process_id" in notes["message"][0]
