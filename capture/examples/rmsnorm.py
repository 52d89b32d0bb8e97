"""Three ways to compute RMSNorm, captured in the same conditions, and how to compare them.

naive: one operator per line, each a launch of its own; rms_norm: PyTorch's own operator; compiled: the naive
function through torch.compile. Shape (4, 512), bfloat16; 2 steps wait, 1 warm-up, 1 active for each.

    tracekit-capture run capture/examples/rmsnorm.py
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import torch

import capture

SHAPE = (4, 512)
EPSILON = 1e-6


def naive(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Compute RMSNorm operator by operator."""
    mean_square = (x * x).mean(-1, keepdim=True)
    return x * torch.rsqrt(mean_square + EPSILON) * weight


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Compute RMSNorm with PyTorch's own operator."""
    return torch.nn.functional.rms_norm(x, SHAPE[-1:], weight, EPSILON)


def find_device() -> str:
    """Name of the device to run on: Neuron, CUDA or CPU."""
    try:
        import torch_neuronx  # noqa: F401  # registers the "neuron" device
    except ImportError:
        return "cuda" if torch.cuda.is_available() else "cpu"
    return "neuron"


def compiled(device: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None:
    """Compile the naive function; None where there is no compiler."""
    if device == "neuron":
        return torch.compile(naive, backend="neuron")
    if device == "cpu" and shutil.which("g++") is None:
        return None
    return torch.compile(naive)


def main() -> None:
    """Capture the three variants and print what to type next."""
    device = find_device()
    x = torch.randn(SHAPE, dtype=torch.bfloat16).to(device)
    weight = torch.ones(SHAPE[-1:], dtype=torch.bfloat16).to(device)
    variants = {"naive": naive, "rms_norm": rms_norm, "compiled": compiled(device)}
    directories = {}
    for name, function in variants.items():
        if function is None:
            print(f"{name}: left out, torch.compile needs a C++ compiler (apt-get install g++)")
            continue
        with torch.no_grad():
            done = capture.profile(
                function, x, weight, output_dir=f"rmsnorm/{name}", wait=2, warmup=1, active=1, labels={"variant": name}
            )
        directories[name] = os.path.relpath(done.output_dir)
    print("\nCompare them:")
    for name in list(directories)[1:]:
        print(f"  tracekit diff {directories['naive']} {directories[name]}")


if __name__ == "__main__":
    main()
