"""Real traces of public projects, against numbers that a separate program computed in exact integers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pytest

import tracekit
from tests.shared_data import CORPUS, corpus_truth
from tracekit.activity import device_work

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus beside the checkout")
TRUTH = corpus_truth()
ON_DEVICE = {name: truth["device"] for name, truth in TRUTH.items() if "device" in truth}


def profile(name: str, cache: Path) -> tracekit.Profile:
    opened = tracekit.open(tracekit.ingest([CORPUS / name], cache).path)
    assert isinstance(opened, tracekit.Profile)
    return opened


@pytest.mark.parametrize("name", TRUTH)
def test_events_by_phase_and_category(name: str, cache: Path) -> None:
    stored = profile(name, cache)
    by_phase: Counter[str] = Counter()
    by_category: Counter[str] = Counter()
    for key, count in stored.manifest["sources"][0]["events"].items():  # type: ignore[index]
        phase, _, category = key.partition(" ")
        by_phase[phase] += count
        if phase == "X":
            by_category[category] += count
    assert by_phase == TRUTH[name]["by_ph"]
    assert {k or None: n for k, n in by_category.items()} == {
        k if k not in ("", "None") else None: n for k, n in TRUTH[name]["x_by_cat"].items()
    }
    complete = stored.events.filter(pl.col("phase") == "complete")
    stored_by_category = dict(complete.group_by("category").len().collect().iter_rows())
    assert {k or None: n for k, n in stored_by_category.items()} == {k or None: n for k, n in by_category.items()}


@pytest.mark.parametrize("name", TRUTH)
def test_first_start_and_last_end(name: str, cache: Path) -> None:
    complete = profile(name, cache).events.filter(pl.col("phase") == "complete")
    first, last = complete.select(pl.col("start_ns").min(), pl.col("end_ns").max()).collect().row(0)
    assert (first, last) == (TRUTH[name]["first_start_ns"], TRUTH[name]["last_end_ns"])


@pytest.mark.parametrize("name", ON_DEVICE)
def test_device_window_busy_and_idle(name: str, cache: Path) -> None:
    truth = ON_DEVICE[name]
    stored = profile(name, cache)
    work = device_work(stored.events).collect()
    assert work.height == truth["event_count"]
    assert work["end_ns"].max() - work["start_ns"].min() == truth["window_ns"]  # type: ignore[operator]
    devices = stored.metric("devices", scope="all").collect()
    assert devices["summed_ns"].sum() == truth["sum_ns"]
    assert devices.height == 1, "the corpus has one device per file"
    assert devices.select("window_ns", "busy_ns", "idle_ns").row(0) == (
        truth["window_ns"],
        truth["busy_ns"],
        truth["idle_ns"],
    )


@pytest.mark.parametrize("name", ON_DEVICE)
def test_compute_collective_copy_and_what_is_exposed(name: str, cache: Path) -> None:
    parts = ("compute_ns", "collective_ns", "copy_ns", "exposed_collective_ns", "exposed_copy_ns")
    split = profile(name, cache).metric("split", scope="all").collect()
    assert {part: split[part].sum() for part in parts} == {part: ON_DEVICE[name][part] for part in parts}


@pytest.mark.parametrize("name", ON_DEVICE)
def test_top_device_names(name: str, cache: Path) -> None:
    work = (
        device_work(profile(name, cache).events)
        .group_by("name")
        .agg(count=pl.len().cast(pl.Int64), total=(pl.col("end_ns") - pl.col("start_ns")).sum())
    )
    found = {row[0]: list(row[1:]) for row in work.collect().iter_rows()}
    top = ON_DEVICE[name]["top_by_time"]
    assert {row[0]: found.get(row[0]) for row in top} == {row[0]: row[1:] for row in top}
    assert min((row[2] for row in top), default=0) >= max(
        (v[1] for k, v in found.items() if k not in {r[0] for r in top}), default=0
    )


@pytest.mark.parametrize("name", ON_DEVICE)
def test_every_device_event_is_in_one_chain_and_linked_by_correlation(name: str, cache: Path) -> None:
    stored = profile(name, cache)
    ids = stored.chains.select(pl.col("hardware_ids").explode()).drop_nulls().collect()["hardware_ids"].to_list()
    assert sorted(ids) == sorted(device_work(stored.events).select("event_id").collect()["event_id"].to_list())
    linked = stored.chains.filter(pl.col("launch_id").is_not_null() & (pl.col("hardware_ids").list.len() > 0))
    assert linked.select(pl.len()).collect().item() == ON_DEVICE[name]["linked_by_correlation"]


@pytest.mark.parametrize("name", [n for n, truth in TRUTH.items() if truth.get("steps")])
def test_steps(name: str, cache: Path) -> None:
    steps = profile(name, cache).metric("steps").collect()
    found = Counter(zip(steps["step"].to_list(), steps["duration_ns"].to_list(), strict=True))
    assert found == Counter((int(n.split("#")[1]), ns) for n, ns in TRUTH[name]["steps"])
