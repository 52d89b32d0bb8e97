"""capture → check → pack → move → analyse: the answer is that of the program that was captured."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from tests.capture.conftest import Workplace

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

CPU = """
    import torch, capture
    x = torch.ones(4, 512)
    capture.profile(lambda: x.neg().neg(), output_dir="out", wait=1, warmup=1, active=2, labels={"variant": "cpu"})
"""

# Two executions of 30 ms and 10 ms per step; the host waits for neither by itself.
PRIVATEUSE1 = """
    import torch, capture
    from tests.privateuse1 import Launch, load_backend
    load_backend().set_plan(
        {"aten::mul": Launch(duration_ns=30_000_000), "aten::neg": Launch(duration_ns=10_000_000)}
    )
    x = torch.ones(4, 512)
    capture.profile(lambda: (x * x).neg(), output_dir="out", wait=1, warmup=1, active=2)
"""

# The same on the stand-in of the vendor's package, whose system trace holds the executions.
STANDIN = """
    import torch, torch_neuronx, capture
    x = torch.ones(4, 512)
    def step():
        torch_neuronx.launch("aten::mul", 30_000_000)
        torch_neuronx.launch("aten::neg", 10_000_000)
        return (x * x).neg()
    capture.profile(step, output_dir="out", wait=1, warmup=1, active=2, labels={"variant": "standin"})
"""


def capture_and_analyse(workplace: Workplace, code: str, standin: str | None = None) -> dict[str, Any]:
    """All steps as commands; the analysis sees only the archive, elsewhere."""
    captured = workplace.python(workplace.script(code), standin=standin)
    assert captured.returncode == 0, captured.stderr
    checked = workplace.command("check", "out")
    assert checked.returncode == 0, checked.stdout
    packed = workplace.command("pack", "out", "-o", "out.tar.zst")
    assert packed.returncode == 0, packed.stderr
    elsewhere = workplace.path.parent / "elsewhere"
    elsewhere.mkdir()
    shutil.move(workplace.path / "out.tar.zst", elsewhere / "moved.tar.zst")
    shutil.rmtree(workplace.path / "out")
    place = Workplace(elsewhere, workplace.find_zygote)
    analysed = place.tracekit("analyze", "moved.tar.zst", "--all", "--format", "json", "--cache", "cache")
    answer: dict[str, Any] = json.loads(analysed)
    return answer


def operators(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in answer["metrics"]["ops"] if row["kind"] == "op"}


def test_cpu(workplace: Workplace) -> None:
    answer = capture_and_analyse(workplace, CPU)
    assert answer["answer"][0].startswith("No device work")
    assert [row["step"] for row in answer["metrics"]["steps"]] == [2, 3]
    assert operators(answer)["aten::neg"]["call_count"] == 4
    assert not answer["metrics"]["devices"]


def test_privateuse1_backend(workplace: Workplace) -> None:
    from tests.privateuse1.build import load_extension

    load_extension()
    answer = capture_and_analyse(workplace, PRIVATEUSE1)
    (device,) = answer["metrics"]["devices"]
    assert device["busy_ns"] == 2 * 40_000_000
    ops = operators(answer)
    assert (ops["aten::mul"]["self_device_ns"], ops["aten::neg"]["self_device_ns"]) == (60_000_000, 20_000_000)
    assert answer["answer"][0].startswith("Device-bound")


@pytest.mark.parametrize("version", ["old", "new"])
def test_stand_in_of_torch_neuronx(workplace: Workplace, version: str) -> None:
    answer = capture_and_analyse(workplace, STANDIN, standin=version)
    (device,) = answer["metrics"]["devices"]
    assert (device["source"], device["busy_ns"]) == ("ntrace", 2 * 40_000_000)
    work = {row["name"]: row for row in answer["metrics"]["work"]}
    assert work["aten::mul"]["execution_count"] == work["aten::neg"]["execution_count"] == 2
    assert work["aten::mul"]["device_ns"] == 60_000_000
    assert answer["answer"][0].startswith("Device-bound")
