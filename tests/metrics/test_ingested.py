"""The same metrics on captures that went through the whole of tracekit, against truth by another route."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tracekit
from tests.shared_data import CORPUS, NEURON, SAMPLES, corpus_truth, needs_shared
from tracekit import activity, intervals
from tracekit.metrics import collectives, copies, gaps, queue, split, waits
from tracekit.metrics.base import Metric

MADE_UP = [SAMPLES / "neuron" / n for n in ("rms_naive", "rms_fused", "rms_compiled", "train_small")]
SHARED = [NEURON / n for n in ("rms_naive", "rms_fused", "rms_compiled", "train_2proc")]
FEW = ("nccl_a100", "mtia_inference", "mi250_minitoy", "h100_bert_small")
ON_DEVICE = [name for name in corpus_truth() if Path(name).name.split(".")[0] in FEW]
Rows = list[dict[str, Any]]
Span = tuple[int, int]


def rows(metric: Metric, path: Path, cache: Path, scope: str = "all", **options: str) -> Rows:
    profile = tracekit.open(path, cache=cache)
    assert isinstance(profile, tracekit.Profile)
    return metric.compute(profile.inputs(scope), options).collect().to_dicts()


def processes(folder: Path, found: Rows) -> Iterator[tuple[dict[str, Any], Rows]]:
    """Each process of truth.json with the rows of its session."""
    for process in json.loads((folder / "truth.json").read_text())["processes"]:
        ending = f"_pid_{process['process_id']}"
        yield process, [r for r in found if r["session"].endswith(ending)]


def copy_spans(folder: Path, process_id: int) -> list[Span]:
    """Copies of a process as the older JSON export describes them."""
    events = json.loads((folder / "system_profile.json").read_text())["trace_event"]
    return [
        (e["timestamp"], e["timestamp"] + e["duration"])
        for e in events
        if int(e["process_id"]) == process_id and e["name"].startswith(("nrt_tensor_", "dmem_buf_copy"))
    ]


def parts_of(gap: Span, after: dict[str, Any], copied: list[Span]) -> dict[str, int]:
    """A gap's parts, piece by piece; the shared captures have neither collectives nor model switches."""
    parts = dict.fromkeys(gaps.CAUSES, 0)
    marks = [after["dispatch"][0], after["submit"][0], *(at for span in copied for at in span)]
    for start, end in pairwise(sorted({*gap, *(at for at in marks if gap[0] < at < gap[1])})):
        if any(s <= start < e for s, e in copied):
            cause = "copy"
        elif start < after["dispatch"][0]:
            cause = "not_dispatched"
        else:
            cause = "dispatching" if start < after["submit"][0] else "runtime"
        parts[cause] += end - start
    return parts


@pytest.mark.parametrize("folder", MADE_UP, ids=lambda f: f.name)
def test_gaps_and_split_of_the_samples_equal_their_truth(folder: Path, cache: Path) -> None:
    for process, mine in processes(folder, rows(gaps.METRIC, folder, cache)):
        found = [(r["start_ns"], r["end_ns"], {c: r[f"{c}_ns"] for c in gaps.CAUSES}) for r in mine]
        assert found == [(g["start_ns"], g["end_ns"], g["parts"] | {"unknown": 0}) for g in process["gaps"]]
    for process, mine in processes(folder, rows(split.METRIC, folder, cache, "steps", per="step")):
        truth = {int(s["name"].rpartition("#")[2]): s["split"] for s in process["steps"]}
        assert mine
        for row in mine:
            assert {key: row[f"{key}_ns"] for key in truth[row["step"]]} == truth[row["step"]]


def test_communication_of_the_training_sample_equals_its_truth(cache: Path) -> None:
    folder = SAMPLES / "neuron" / "train_small"
    for process, mine in processes(folder, rows(copies.METRIC, folder, cache)):
        assert sum(r["copy_count"] for r in mine) == len(process["copies"])
        assert sum(r["moved_bytes"] for r in mine) == sum(c["bytes"] for c in process["copies"])
    for process, (row,) in processes(folder, rows(collectives.METRIC, folder, cache)):
        assert row["collective_ns"] == sum(c["end_ns"] - c["start_ns"] for c in process["collectives"])
        assert (row["collective_count"], row["matched_count"], row["rank"]) == (3, 3, process["rank"])


@needs_shared
@pytest.mark.parametrize("folder", SHARED, ids=lambda f: f.name)
def test_gaps_of_the_shared_captures_equal_their_truth(folder: Path, cache: Path) -> None:
    for process, mine in processes(folder, rows(gaps.METRIC, folder, cache)):
        copied = copy_spans(folder, process["process_id"])
        ran = sorted((c for c in process["chains"] if c["hardware"]), key=lambda c: c["hardware"][0])
        expected = []
        for before, after in pairwise(ran):
            gap = (before["hardware"][1], after["hardware"][0])
            if gap[0] < gap[1]:
                expected.append((*gap, before["op"], after["op"], parts_of(gap, after, copied)))
        columns = ("start_ns", "end_ns", "before_name", "after_name")
        assert [(*(r[c] for c in columns), {c: r[f"{c}_ns"] for c in gaps.CAUSES}) for r in mine] == expected


@needs_shared
@pytest.mark.parametrize("folder", SHARED, ids=lambda f: f.name)
def test_copies_and_queue_of_the_shared_captures_equal_their_truth(folder: Path, cache: Path) -> None:
    moved = processes(folder, rows(copies.METRIC, folder, cache))
    queued = processes(folder, rows(queue.METRIC, folder, cache))
    for (process, mine), (_, (row,)) in zip(moved, queued, strict=True):
        calls = copy_spans(folder, process["process_id"])
        assert sum(r["copy_count"] for r in mine) == len(calls) / 2
        delays = [c["hardware"][0] - c["submit"][0] for c in process["chains"] if c["hardware"]]
        assert (row["submit_count"], row["delay_ns"]) == (len(process["chains"]), sum(delays))
        assert row["unfinished_count"] == len(process["chains"]) - len(delays)


@pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus beside the checkout")
@pytest.mark.parametrize("name", ON_DEVICE)
def test_gaps_of_the_corpus_are_what_executions_leave_idle(name: str, cache: Path) -> None:
    profile = tracekit.open(CORPUS / name, cache=cache)
    assert isinstance(profile, tracekit.Profile)
    found = rows(gaps.METRIC, CORPUS / name, cache)
    work = activity.compute(profile.events).select("session", "core_index", "start_ns", "end_ns")
    lasting = work.filter(pl.col("end_ns") > pl.col("start_ns"))
    extent = lasting.group_by(gaps.CORE).agg(extent=pl.col("end_ns").max() - pl.col("start_ns").min())
    busy = intervals.length(work, gaps.CORE)
    idle = extent.join(busy, on=gaps.CORE).select((pl.col("extent") - pl.col("length_ns")).sum()).collect().item()
    assert sum(r["gap_ns"] for r in found) == idle
    assert all(r["gap_ns"] == sum(r[part] for part in gaps.PARTS) for r in found)
    assert sum(r["gap_ns"] for r in rows(gaps.METRIC, CORPUS / name, cache, by="host")) == idle
    assert all(
        r["wait_ns"] == r["device_busy_ns"] + r["device_idle_ns"] for r in rows(waits.METRIC, CORPUS / name, cache)
    )
