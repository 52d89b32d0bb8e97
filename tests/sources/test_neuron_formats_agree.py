"""All formats of the system trace give the same rows, and those are the truth."""

from __future__ import annotations

from itertools import combinations

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.sources import neuron_captures as captures

COMPARED = (
    *("session", "process_id", "thread_id", "lane", "kind", "name", "start_ns", "end_ns", "core_index"),
    *("physical_core", "execution_id", "model_id", "sequence_id", "moved_bytes"),
)
pytestmark = captures.requires_captures


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str], pl.DataFrame]:
    read = {}
    for capture in captures.NAMES:
        for form in captures.FORMATS:
            events = captures.read_capture(capture, form).filter(pl.col("lane").is_in(["runtime", "hardware"]))
            read[capture, form] = events.select(COMPARED).sort(COMPARED)
    return read


@pytest.mark.parametrize("capture", captures.NAMES)
@pytest.mark.parametrize(("one", "other"), list(combinations(captures.FORMATS, 2)))
def test_formats_give_equal_rows(rows, capture, one, other):
    assert rows[capture, one].height > 0
    assert_frame_equal(rows[capture, one], rows[capture, other])


@pytest.mark.parametrize("capture", captures.NAMES)
@pytest.mark.parametrize("form", captures.FORMATS)
def test_hardware_rows_are_the_truth(rows, capture, form):
    hardware = rows[capture, form].filter(lane="hardware", kind="execution")
    chains = [chain for chain in captures.truth(capture) if chain["hardware"]]
    assert chains
    key = ("process_id", "execution_id", "model_id")
    executions = {
        keys: (frame["start_ns"].min(), frame["end_ns"].max(), frame.height, _union_ns(frame))
        for keys, frame in hardware.partition_by(key, as_dict=True).items()
    }
    expected = {
        (c["process_id"], c["exec_id"], c["model_id"]): (*c["hardware"], c["pcores"], c["device_ns"]) for c in chains
    }
    assert executions == expected


@pytest.mark.parametrize("capture", captures.NAMES)
@pytest.mark.parametrize("form", captures.FORMATS)
def test_submits_and_waits_are_the_truth(rows, capture, form):
    runtime = rows[capture, form].filter(lane="runtime")
    submits = runtime.filter(name="nrta_execute_schedule")
    waits = runtime.filter(name="kbl_exec_wait", kind="sync")
    chains = captures.truth(capture)
    assert sorted(submits.select("process_id", "sequence_id", "start_ns", "end_ns").rows()) == sorted(
        (c["process_id"], c["nrt_sequence_id"], *c["submit"]) for c in chains if c["submit"]
    )
    assert sorted(waits.select("process_id", "execution_id", "start_ns", "end_ns").rows()) == sorted(
        (c["process_id"], c["exec_id"], *c["wait"]) for c in chains if c["wait"]
    )


FRAMEWORK = ("session", "lane", "kind", "name", "start_ns", "end_ns", "thread_id", "stream_id")
FRAMEWORK_IDS = ("external_id", "sequence_id", "model_id")


@pytest.mark.parametrize("capture", captures.NAMES)
def test_explorers_framework_rows_repeat_the_trace(capture):
    """Where there is no trace.json, Explorer's rows take its place: lane, kind, times and ids are the same."""
    columns = (*FRAMEWORK, *FRAMEWORK_IDS)
    explorer = captures.read_capture(capture, "explorer").filter(pl.col("lane").is_in(["dispatch", "stream"]))
    kineto = captures.read_capture(capture, "kineto")
    assert kineto.height > 0
    assert_frame_equal(explorer.select(columns).sort(columns), kineto.select(columns).sort(columns))


def _union_ns(frame: pl.DataFrame) -> int:
    """Nanoseconds covered by at least one physical core."""
    total, until = 0, 0
    for start, end in frame.select("start_ns", "end_ns").sort("start_ns").rows():
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total
