"""Chains of the made-up Neuron captures, by every source alone and all together, against their truth."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from tests.shared_data import NEURON, needs_shared
from tracekit.ingestion import ingest

CAPTURES = sorted(p.parent.name for p in NEURON.glob("*/truth.json"))
SYSTEM = {
    "explorer": ("explorer",),
    "system_json": ("system_profile.json",),
    "fetch_json": ("fetch_pid_*.json",),
    "ntrace": ("capture/*/*/ntrace.pb", "capture/*/*/trace_info.pb"),
}
FRAMEWORK = ("capture/*/*/trace.json",)
EVERYTHING = tuple(p for patterns in SYSTEM.values() for p in patterns) + FRAMEWORK

pytestmark = needs_shared


@dataclass(frozen=True)
class Ingested:
    chains: pl.DataFrame
    links: pl.DataFrame
    events: pl.DataFrame
    notes: pl.DataFrame
    truth: list[dict[str, object]]


def ingested(capture: str, patterns: tuple[str, ...], tmp_path: Path) -> Ingested:
    """Ingest the files of a capture that match, in a directory of their own."""
    source = tmp_path / capture
    for pattern in patterns:
        for path in sorted((NEURON / capture).glob(pattern)):
            target = source / path.relative_to(NEURON / capture)
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if path.is_dir() else shutil.copy)(path, target)
    stored = ingest([source], tmp_path / "archive").path
    tables = [pl.read_parquet(stored / f"{name}.parquet") for name in ("chains", "links", "events", "notes")]
    truth = json.loads((NEURON / capture / "truth.json").read_text())["processes"]
    return Ingested(
        *tables, [c | {"process_id": p["process_id"], "nc_idx": p["nc_idx"]} for p in truth for c in p["chains"]]
    )


def expected(truth: list[dict[str, object]], *, framework: bool, system: bool) -> list[dict[str, object]]:
    """What a capture with these parts can know of the truth."""
    rows = []
    for chain in truth:
        spans = {name: chain[name] or [None, None] for name in ("dispatch", "submit", "wait", "hardware")}
        if not framework:
            spans["dispatch"] = [None, None]
        if not system:
            spans |= {key: [None, None] for key in ("submit", "wait", "hardware")}
        cut = system and chain["hardware"] is None
        rows.append(
            {
                "process_id": chain["process_id"],
                "core_index": chain["nc_idx"] if system else None,
                "name": chain["op"] if framework else ("nrta_execute_schedule" if cut else "nc_exec_running"),
                "execution_id": chain["exec_id"] if system else None,
                "dispatch_start_ns": spans["dispatch"][0],
                "dispatch_end_ns": spans["dispatch"][1],
                "submit_ns": spans["submit"][0],
                "submit_end_ns": spans["submit"][1],
                "wait_start_ns": spans["wait"][0],
                "wait_end_ns": spans["wait"][1],
                "hardware_start_ns": spans["hardware"][0],
                "hardware_end_ns": spans["hardware"][1],
                "device_ns": chain["device_ns"] if system else 0,
                "cores": chain["pcores"] if system else 0,
                "complete": not cut,
                "missing": "hardware" if cut else None,
            }
        )
    return ordered(rows)


def ordered(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=lambda r: (r["process_id"], r["dispatch_start_ns"] or 0, r["submit_ns"] or 0))


def actual(got: Ingested, columns: list[str]) -> list[dict[str, object]]:
    counted = got.chains.with_columns(cores=pl.col("hardware_ids").list.len().cast(pl.Int64))
    return ordered(counted.select(columns).to_dicts())


def assert_true_ids(got: Ingested, *, framework: bool, system: bool) -> None:
    """The ids on the events of each chain are those of one operation, and no link leaves its process."""
    by_id = {row["event_id"]: row for row in got.events.iter_rows(named=True)}
    truth = {(c["process_id"], (c["dispatch"] if framework else c["submit"])[0]): c for c in got.truth}  # type: ignore[index]
    for chain in got.chains.iter_rows(named=True):
        key = (chain["process_id"], chain["dispatch_start_ns"] if framework else chain["submit_ns"])
        wanted = truth[key]
        if framework:
            assert by_id[chain["dispatch_id"]]["external_id"] == wanted["external_id"]
            for part in ("launch_id", "stream_id"):
                assert by_id[chain[part]]["sequence_id"] == wanted["nrt_sequence_id"]
        if system:
            assert by_id[chain["submit_id"]]["sequence_id"] == wanted["nrt_sequence_id"]
            for event in (chain["wait_id"], *chain["hardware_ids"]):
                assert by_id[event]["execution_id"] == wanted["exec_id"]
                assert by_id[event]["model_id"] == wanted["model_id"] == chain["model_id"]
    for session, cause, effect in got.links.select("session", "from_id", "to_id").iter_rows():
        assert by_id[cause]["process_id"] == by_id[effect]["process_id"]
        assert by_id[cause]["session"] == by_id[effect]["session"] == session


def assert_truth(got: Ingested, *, framework: bool, system: bool) -> None:
    wanted = expected(got.truth, framework=framework, system=system)
    assert actual(got, list(wanted[0])) == wanted
    assert_true_ids(got, framework=framework, system=system)
    work = got.events.filter("is_primary", pl.col("lane") == "hardware", pl.col("kind") == "execution")
    held = got.chains["hardware_ids"].explode().drop_nulls()
    assert sorted(held) == sorted(work["event_id"])


@pytest.mark.parametrize("source", SYSTEM)
@pytest.mark.parametrize("capture", CAPTURES)
def test_each_system_source_with_the_framework_trace_gives_the_truth(capture: str, source: str, tmp_path: Path):
    got = ingested(capture, SYSTEM[source] + FRAMEWORK, tmp_path)
    assert_truth(got, framework=True, system=True)


@pytest.mark.parametrize("source", SYSTEM)
@pytest.mark.parametrize("capture", CAPTURES)
def test_each_system_source_alone_gives_what_it_can_know(capture: str, source: str, tmp_path: Path):
    got = ingested(capture, SYSTEM[source], tmp_path)
    assert_truth(got, framework=source == "explorer", system=True)
    absent = got.notes.filter(pl.col("code") == "no_framework_events")
    assert absent.is_empty() == (source == "explorer")


@pytest.mark.parametrize("capture", CAPTURES)
def test_several_sources_at_once_change_no_number(capture: str, tmp_path: Path):
    got = ingested(capture, EVERYTHING, tmp_path)
    assert_truth(got, framework=True, system=True)


@pytest.mark.parametrize("capture", CAPTURES)
def test_framework_alone_ends_at_the_stream_and_says_what_lacks(capture: str, tmp_path: Path):
    got = ingested(capture, FRAMEWORK, tmp_path)
    assert_truth(got, framework=True, system=False)
    assert got.chains["stream_id"].null_count() == 0
    assert "no_device_events" in got.notes["code"].to_list()
