"""Sessions on a real PrivateUse1 backend: Kineto's own events, and work that ends after the host has gone on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from capture import checks, tracefile
from tests.capture.conftest import Workplace

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

# Three steps, each launching 50 ms of work that the host does not wait for by itself.
STEPS = """
    import sys, torch, capture
    from tests.privateuse1 import Launch, load_backend
    backend = load_backend()
    backend.set_plan({{"aten::mul": Launch(duration_ns=50_000_000)}})
    CONFIG = '{{"max_events_per_nc": 1000}}'
    x = torch.ones(4, 512)
    {before}
    with capture.session("out", wait=0, warmup=1, active=2, custom_profiler_config=CONFIG) as s:
        for _ in range(3):
            x * x
            s.step()
    assert backend.synchronize_calls.count("program") == {synchronize_count}, backend.synchronize_calls
    assert CONFIG in backend.configs()
"""
# What a capture tool would do that forgets to wait.
FORGETFUL = """
    import dataclasses, capture.devices as devices
    real = devices.detect
    devices.detect = lambda wanted: dataclasses.replace(real(wanted), synchronize=lambda: None)
"""


@pytest.fixture(scope="module", autouse=True)
def _built_backend() -> None:
    from tests.privateuse1.build import load_extension

    load_extension()  # compiled once here, not in every program; skips without a compiler


def run_steps(workplace: Workplace, *, before: str, synchronize_count: int) -> Path:
    before = before.replace("\n", "\n    ").strip()
    code = STEPS.format(before=before, synchronize_count=synchronize_count)
    done = workplace.python(workplace.script(code))
    assert done.returncode == 0, done.stderr
    (trace,) = workplace.path.rglob("trace.json")
    return trace


def kernels_and_steps(trace: Path) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    events = [event for event in json.loads(trace.read_bytes())["traceEvents"] if event.get("ph") == "X"]

    def spans(keep: Callable[[dict[str, object]], bool]) -> list[tuple[float, float]]:
        return sorted((event["ts"], event["ts"] + event["dur"]) for event in events if keep(event))

    kernels = spans(lambda event: event["cat"] == "kernel")
    steps = spans(lambda event: event["cat"] == "user_annotation" and str(event["name"]).startswith("ProfilerStep"))
    return kernels, steps


def test_every_step_waits_for_the_device(workplace: Workplace) -> None:
    trace = run_steps(workplace, before="", synchronize_count=4)
    kernels, steps = kernels_and_steps(trace)
    assert len(kernels) == len(steps) == 2
    for (start, end), (step_start, step_end) in zip(kernels, steps, strict=True):
        assert step_start <= start and end <= step_end
    (record,) = workplace.manifests()
    assert record.status == "complete"
    assert (record.device["kind"], record.device["name"]) == ("privateuse1", "neuron")
    report = checks.check(workplace.path / "out")
    assert report.is_good
    assert tracefile.scan(trace).event_counts["kernel"] == 2


def test_without_waiting_the_same_steps_lose_their_device_work(workplace: Workplace) -> None:
    """The test above can fail: this is what it looks like when nobody synchronises."""
    before = FORGETFUL.replace("\n    ", "\n")
    trace = run_steps(workplace, before=before, synchronize_count=0)
    kernels, _ = kernels_and_steps(trace)
    assert len(kernels) < 2


def test_work_that_never_reached_the_device_is_an_error(workplace: Workplace) -> None:
    code = """
        import torch, capture
        from tests.privateuse1 import load_backend
        load_backend().clear_plan()
        capture.profile(lambda: torch.ones(8).sum(), output_dir="out", wait=0, warmup=0)
    """
    done = workplace.python(workplace.script(code))
    (finding,) = checks.check(workplace.path / "out").findings
    assert finding.code == "no-device-events" and finding.severity == "error" and finding.fix
    assert "none of them on the privateuse1 device" in done.stderr
