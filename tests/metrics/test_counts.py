from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import tracekit
from tests.metrics.build import chain, event, inputs, window
from tests.shared_data import NEURON, SAMPLES, needs_shared
from tracekit.metrics.counts import COUNTS, counts


def test_counts_per_operator_and_step() -> None:
    rows = [event("op", t, t + 1, lane="dispatch", name=n) for t, n in ((1, "a"), (2, "b"), (11, "a"))]
    chains = [
        chain([9], name="a", launch_id=1, submit_id=2, dispatch_start_ns=1, hardware_start_ns=12),
        chain([], name="a", launch_id=3, dispatch_start_ns=11),
        chain([8], name="kernel", hardware_start_ns=13),
    ]
    given = inputs(rows, chains, [window(0, 10, 0), window(10, 20, 1)])
    found = counts(given.events, given.chains, given.scope, per_step=True).collect()
    columns = ("step", "name", "operator_count", "launch_count", "submit_count", "execution_count", "never_ran_count")
    assert found.select(columns).rows() == [
        (0, "a", 1, 1, 1, 1, 0),
        (0, "b", 1, 0, 0, 0, 0),
        (1, "a", 1, 1, 0, 0, 1),
        (1, "kernel", 0, 0, 0, 1, 0),
    ]
    total = counts(given.events, given.chains, given.scope, by="total").collect()
    assert total.select(columns[2:]).row(0) == tuple(found[c].sum() for c in columns[2:])
    assert total["executions_per_call"].to_list() == [pytest.approx(2 / 3)]
    assert found.schema == COUNTS.schema


@needs_shared
@pytest.mark.parametrize(("name", "expected"), [("rms_naive", 6), ("rms_fused", 1), ("rms_compiled", 1)])
def test_rmsnorm_is_six_executions_or_one(cache: Path, name: str, expected: int) -> None:
    profile = tracekit.open(NEURON / name / "capture", cache=cache)
    assert isinstance(profile, tracekit.Profile)
    total = profile.metric("counts", by="total").collect()
    assert total["execution_count"].to_list() == [expected]


@needs_shared
def test_three_multiplications_are_half_of_the_device_time(cache: Path) -> None:
    profile = tracekit.open(NEURON / "rms_naive" / "capture", cache=cache)
    assert isinstance(profile, tracekit.Profile)
    work = profile.metric("work").collect()
    mul = work.row(by_predicate=pl.col("name") == "aten::mul", named=True)
    assert (mul["execution_count"], mul["device_ns"]) == (3, 1_164_500)
    assert round(100 * mul["share_ratio"], 1) == 49.4
    assert work["device_ns"].sum() == 2_355_000


@pytest.mark.parametrize(
    ("name", "device_ns"), [("rms_naive", 2_355_000), ("rms_fused", 403_300), ("rms_compiled", 375_500)]
)
def test_published_device_times(cache: Path, name: str, device_ns: int) -> None:
    profile = tracekit.open(SAMPLES / "neuron" / name / "capture", cache=cache)
    assert isinstance(profile, tracekit.Profile)
    assert profile.metric("devices").collect()["busy_ns"].to_list() == [device_ns]
