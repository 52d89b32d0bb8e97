"""Noise and change on captures that are recorded here: the same program twice, and one made 30 % slower."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import tracekit
from tracekit.comparison import Side, diff, side

pytestmark = pytest.mark.torch
STEPS = 20


def pausing_operator() -> Any:
    """An operator whose length hardly depends on what else the machine does: it sleeps."""
    torch = pytest.importorskip("torch")
    if not hasattr(torch.ops.tracekit_test, "pause"):

        @torch.library.custom_op("tracekit_test::pause", mutates_args=(), schema="(Tensor x, float seconds) -> Tensor")
        def pause(x: Any, seconds: float) -> Any:
            time.sleep(seconds)
            return x.clone()

    return torch.ops.tracekit_test.pause


def record(path: Path, seconds: float) -> Path:
    """Record ``STEPS`` steps that take ``seconds`` each, and a little more."""
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile, schedule

    pause, x = pausing_operator(), torch.ones(8, 8)
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=2, active=STEPS)) as recorded:
        for _ in range(STEPS + 3):
            torch.mm(pause(x, seconds), x)
            recorded.step()
    recorded.export_chrome_trace(str(path))
    return path


def measured(trace: Path, archive: Path) -> Side:
    profile = tracekit.open(tracekit.ingest([trace], archive).path)
    assert isinstance(profile, tracekit.Profile)
    return side(profile.id, profile.inputs())


def test_the_same_program_is_noise_and_a_slower_one_is_not(tmp_path: Path) -> None:
    first = measured(record(tmp_path / "first.json", 0.020), tmp_path / "a")
    slower = measured(record(tmp_path / "slower.json", 0.026), tmp_path / "a")
    again = measured(record(tmp_path / "again.json", 0.020), tmp_path / "a")
    assert len(first.samples["window"]) >= STEPS - 3

    same = diff(first, again)
    assert same.total("operators")["verdict"] == "same"
    for measure in ("window", "host_time", "host_self_time"):
        assert same.total(measure)["verdict"] in ("noise", "same"), same.total(measure)

    worse = diff(first, slower)
    assert worse.total("operators")["verdict"] == "same"
    for measure in ("window", "host_self_time"):
        row = worse.total(measure)
        assert row["verdict"] == "changed", row
        assert 0.05 < float(str(row["change_ratio"])) < 1, row
    assert worse.ops["host_change_ns"].sum() == pytest.approx(worse.total("host_self_time")["change"], abs=1e-3)
