"""A small training loop, captured by steps; with --overhead, what the capture costs.

tracekit-capture run capture/examples/train_loop.py
python capture/examples/train_loop.py --overhead
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

import capture
from capture import devices


def find_device() -> str:
    """Name of the device to run on: Neuron, CUDA or CPU."""
    try:
        import torch_neuronx  # noqa: F401  # registers the "neuron" device
    except ImportError:
        return "cuda" if torch.cuda.is_available() else "cpu"
    return "neuron"


def make_step(device: str) -> Callable[[], None]:
    """Build a model; the function returned trains it by one step."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = torch.randn(64, 256).to(device), torch.randint(10, (64,)).to(device)

    def step() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(torch.nn.functional.cross_entropy(model(inputs), targets))
        optimizer.step()

    return step


def step_times_ms(step: Callable[[], None], count: int, end_step: Callable[[], None]) -> list[float]:
    """Time of each step in ms, with what ends it."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        end_step()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def show_overhead(step: Callable[[], None]) -> None:
    """Time the same steps bare, and recorded with each set of options."""
    settings = {
        "recorded, bare": {"record_shapes": False},
        "+ shapes": {},
        "+ memory": {"profile_memory": True},
        "+ stacks": {"with_stack": True},
    }
    bare = statistics.median(step_times_ms(step, 30, devices.detect().synchronize))
    print(f"{'not captured':<16} {bare:8.3f} ms/step")
    for name, options in settings.items():
        with capture.session("overhead", wait=0, warmup=2, active=20, check=False, **options) as session:
            times = step_times_ms(step, 22, session.step)[2:-1]  # the last one exports
        median = statistics.median(times)
        size = sum(path.stat().st_size for path in session.directories[-1].glob("trace.json"))
        print(f"{name:<16} {median:8.3f} ms/step  x{median / bare:.2f}  {size / 20e3:8.1f} kB of trace per step")


def main() -> None:
    """Train and capture, or measure what the capture costs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--overhead", action="store_true", help="measure the cost of capturing")
    step = make_step(find_device())
    if parser.parse_args().overhead:
        show_overhead(step)
        return
    with capture.session("train", wait=2, warmup=1, active=3, labels={"batch": "64"}) as session:
        for _ in range(8):
            step()
            session.step()


if __name__ == "__main__":
    main()
