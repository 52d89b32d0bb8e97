"""Small archives that tests share: real profiles of the sample traces and made-up ones."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import tempfile
from pathlib import Path

from click.testing import CliRunner, Result

import tracekit
from tests.shared_data import SAMPLES
from tracekit.cli import cli

NEURON = SAMPLES / "neuron"
SAMPLE_NAMES = ("rms_compiled", "rms_fused", "rms_naive", "train_small")


def sample_archive(root: Path) -> Path:
    """The Neuron samples, each with its name as a label; ingested once per test run, then copied."""
    shutil.copytree(_samples(), root, dirs_exist_ok=True)
    return root


@functools.cache
def _samples() -> Path:
    root = Path(tempfile.mkdtemp(prefix="tracekit-samples-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    for name in SAMPLE_NAMES:
        tracekit.ingest([NEURON / name / "capture"], root, labels={"commit": name})
    return root


def small_trace(path: Path, count: int = 5, *, name: str = "aten::mul", step_us: float = 10.0, gap: float = 2) -> Path:
    """A trace of ``count`` operators, each ``step_us - gap`` long."""
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": i * step_us, "dur": step_us - gap}
        for i in range(count)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"baseTimeNanoseconds": 1_767_225_600_000_000_000, "traceEvents": events}))
    return path


def run(*args: object, input: str | None = None) -> Result:
    """Run the command line in this process; a user's error is an exception of the result."""
    return CliRunner().invoke(cli, [str(a) for a in args], input=input)


def stored(archive: Path) -> dict[str, dict[str, bytes]]:
    """Every byte of every profile."""
    return {p.name: {f.name: f.read_bytes() for f in sorted(p.iterdir())} for p in sorted(archive.glob("profile=*"))}
