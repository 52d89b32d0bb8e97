"""``tracekit report``: from a capture to one file."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.shared_data import SAMPLES
from tracekit.cli import cli
from tracekit.errors import TracekitError

NEURON = SAMPLES / "neuron"


def run(tmp_path: Path, *arguments: str) -> str:
    result = CliRunner().invoke(cli, ["report", *arguments, "--cache", str(tmp_path / "cache")], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_capture_becomes_one_file(tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    said = run(tmp_path, str(NEURON / "rms_naive" / "capture"), "-o", str(out))
    assert said.startswith(f"{out}: ")
    text = out.read_text("utf-8")
    assert "Device-bound: the device works for 92.5" in text
    assert "rms_norm" in text
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".part"] == []


def test_two_captures_stand_side_by_side(tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    naive, fused = (str(NEURON / name / "capture") for name in ("rms_naive", "rms_fused"))
    run(tmp_path, naive, "--compare", fused, "-o", str(out))
    text = out.read_text("utf-8")
    assert "Device time 2.355\u00a0ms → 403.3\u00a0µs (−82.9\u00a0%)." in text
    assert "Hardware executions: 6 → 1." in text
    assert "Where A runs 3 × aten::mul, aten::mean, aten::add and aten::rsqrt, B runs aten::_fused_rms_norm." in text


def test_a_step_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TracekitError):
        run(tmp_path, str(NEURON / "rms_naive" / "capture"), "--step", "99", "-o", str(tmp_path / "r.html"))


def test_a_place_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TracekitError, match="there is no directory"):
        run(tmp_path, str(NEURON / "rms_fused" / "capture"), "-o", str(tmp_path / "no" / "r.html"))
    assert not (tmp_path / "no").exists()
