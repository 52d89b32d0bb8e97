"""Record the CPU sample traces with ``torch.profiler``, as a user would.

    python sample_traces/make_cpu.py [OUT]          # OUT defaults to sample_traces/cpu

Four captures: RMSNorm at shape (4, 512) in bfloat16 as six eager operations, as
``torch.nn.functional.rms_norm`` and under ``torch.compile``; and the training steps of a small
transformer. The times are whatever this machine took, so running it again gives other numbers.
Needs PyTorch and, for ``torch.compile``, a C++ compiler.

The only edit made to what the profiler wrote: the host's name and the absolute paths of the machine
are taken out, so that the files can be published.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

SHAPE = (4, 512)
EPSILON = 1e-6
MAX_BYTES = 400_000
Step = Callable[[], object]


def rms_naive(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return RMSNorm as six operations: mul, mean, add, rsqrt, mul, mul."""
    squared = x * x
    mean = squared.mean(-1, keepdim=True)
    shifted = mean + EPSILON
    reciprocal = torch.rsqrt(shifted)
    normalised = x * reciprocal
    return normalised * weight


def rms_fused(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return RMSNorm as PyTorch's own operation."""
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, EPSILON)


def rms_step(variant: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Step:
    """Return a step that normalises one fixed input with ``variant``."""
    torch.manual_seed(0)
    x = torch.randn(SHAPE, dtype=torch.bfloat16)
    weight = torch.ones(SHAPE[-1], dtype=torch.bfloat16)

    def step() -> torch.Tensor:
        with torch.no_grad():
            return variant(x, weight)

    return step


def train_step() -> Step:
    """Return a training step (forward, backward, optimizer) of a two-layer transformer."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(256, 64),
        torch.nn.TransformerEncoder(
            torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0),
            num_layers=2,
            enable_nested_tensor=False,
        ),
        torch.nn.Linear(64, 256),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    tokens = torch.randint(0, 256, (8, 33))

    def step() -> float:
        with torch.profiler.record_function("forward"):
            logits = model(tokens[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        with torch.profiler.record_function("backward"):
            torch.autograd.backward(loss)
        with torch.profiler.record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        return loss.item()

    return step


def publishable(text: str) -> str:
    """Return a trace's text without the host's name and without absolute paths."""
    text = re.sub(r'"host_name": "[^"]*"', '"host_name": "cpu-sample"', text)
    here = Path(__file__).resolve().parent.parent
    for prefix in (*sorted({p for p in sys.path if p.startswith("/")}, key=len, reverse=True), str(here)):
        text = text.replace(prefix.rstrip("/") + "/", "")
    return re.sub(r'(?<=["\s])/[^\s"()]*/', "", text)


def record(name: str, step: Step, out: Path, *, active: int, with_stack: bool = False) -> None:
    """Profile ``step`` with 2 waiting, 1 warm-up and ``active`` recorded steps, and write the trace."""
    path = out / name / f"{name}.pt.trace.json.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = path.with_suffix("")
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=2, warmup=1, active=active, repeat=1),
        on_trace_ready=lambda p: p.export_chrome_trace(str(raw)),
        record_shapes=True,
        with_stack=with_stack,
    ) as profiler:
        for _ in range(3 + active):
            step()
            profiler.step()
    text = publishable(raw.read_text(encoding="utf-8"))
    raw.unlink()
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
    size = path.stat().st_size
    print(f"{path}: {size / 1e3:.1f} kB")
    if size > MAX_BYTES:
        raise SystemExit(f"{path} is larger than the {MAX_BYTES / 1e3:.0f} kB a sample may have")


def main() -> None:
    """Record the four captures."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "cpu"
    torch.set_num_threads(1)
    record("rms_naive", rms_step(rms_naive), out, active=3, with_stack=True)
    record("rms_fused", rms_step(rms_fused), out, active=3)
    compiled: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch.compile(rms_naive)
    record("rms_compiled", rms_step(compiled), out, active=3)
    record("train", train_step(), out, active=3)


if __name__ == "__main__":
    main()
