"""A genuine PrivateUse1 trace: torch itself says which operator launched how much device time."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tracekit.ingestion import ingest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

PLAN_SIZES = {"aten::addmm": 3, "aten::mm": 2, "aten::mul": 1, "aten::relu": 1}


def record(path: Path, *, link_driver: bool) -> dict[str, int]:
    """Train a little on the simulated accelerator; gives ``self_device_time_total`` per operator, in ns."""
    from torch.profiler import profile

    from tests.privateuse1 import Launch, activities, load_backend

    backend = load_backend()
    plan = {op: [Launch(stream=n) for n in range(count)] for op, count in PLAN_SIZES.items()}
    backend.set_plan(plan, link_driver=link_driver, runtime_name="nrt_launch")
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    data = torch.randn(4, 8)
    try:
        with profile(activities=activities()) as profiler:
            for _ in range(3):
                (model(data) * 2).sum().backward()
            backend.synchronize()
    finally:
        backend.clear_plan()
    profiler.export_chrome_trace(str(path))
    rows = (row for row in profiler.key_averages() if row.device_type == torch.autograd.DeviceType.CPU)
    return {row.key: round(row.self_device_time_total * 1000) for row in rows if row.self_device_time_total}


@pytest.mark.parametrize("link_driver", [True, False])
def test_chains_give_each_operator_the_device_time_that_torch_gives_it(link_driver: bool, tmp_path: Path):
    wanted = record(tmp_path / "trace.json", link_driver=link_driver)
    stored = ingest([tmp_path / "trace.json"], tmp_path / "archive").path
    chains, events = (pl.read_parquet(stored / f"{name}.parquet") for name in ("chains", "events"))
    assert set(wanted) == set(PLAN_SIZES)
    assert dict(chains.group_by("name").agg(pl.col("device_ns").sum()).iter_rows()) == wanted
    assert chains["complete"].all()
    assert chains.select("dispatch_id", "launch_id", "stream_id", "submit_id").null_count().row(0) == (0, 0, 0, 0)
    work = events.filter(pl.col("lane") == "hardware", pl.col("kind") == "execution")
    assert sorted(chains["hardware_ids"].explode()) == sorted(work["event_id"])
    assert set(chains["method"]) == {"id"}
