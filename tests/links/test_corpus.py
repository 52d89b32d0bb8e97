"""Real CUDA, ROCm and MTIA traces: as many links by correlation as were counted independently."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.shared_data import CORPUS, corpus_truth, needs_shared
from tracekit.ingestion import ingest

FILES = {name: e.get("device") for name, e in corpus_truth().items()}

pytestmark = needs_shared


@pytest.mark.parametrize("name", FILES)
def test_links_by_correlation_and_every_device_event_once(name: str, cache: Path):
    path = ingest([CORPUS / name], cache).path
    events, chains, links = (pl.read_parquet(path / f"{t}.parquet") for t in ("events", "chains", "links"))
    work = events.filter(
        pl.col("lane") == "hardware",
        pl.col("kind").is_in(["execution", "collective", "copy_in", "copy_out", "copy", "memory"]),
    )
    held = chains["hardware_ids"].explode().drop_nulls()
    assert sorted(held) == sorted(work["event_id"])
    correlated = (
        links.filter(pl.col("method") == "id")
        .join(work.select(to_id="event_id", at="correlation_id"), on="to_id")
        .join(events.select(from_id="event_id", by="correlation_id"), on="from_id")
        .filter(pl.col("at") == pl.col("by"))
    )
    device = FILES[name] or {"linked_by_correlation": 0}
    assert correlated["to_id"].n_unique() == correlated.height == device["linked_by_correlation"]
    launched = chains.filter(pl.col("hardware_ids").list.len() > 0, pl.col("launch_id").is_not_null())
    assert launched.height >= device["linked_by_correlation"]
    assert (launched["submit_id"] == launched["launch_id"]).all()
    assert links.join(events.select(from_id="event_id"), on="from_id", how="anti").is_empty()
    assert_operators_hold_the_moment_of_their_launch(events, chains)


def assert_operators_hold_the_moment_of_their_launch(events: pl.DataFrame, chains: pl.DataFrame) -> None:
    call = events.select(launch_id="event_id", launch_thread="thread_id", launch_ns="start_ns")
    op = events.select(dispatch_id="event_id", op_thread="thread_id", op_kind="kind")
    launched = chains.join(call, on="launch_id").join(op, on="dispatch_id")
    assert (launched["op_kind"] == "op").all()
    assert (launched["op_thread"] == launched["launch_thread"]).all()
    assert launched["launch_ns"].is_between(launched["dispatch_start_ns"], launched["dispatch_end_ns"]).all()
