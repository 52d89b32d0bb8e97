"""A program that knows nothing of profiling, for the two ways that need no change.

tracekit-capture run --optimizer-steps capture/examples/unchanged.py   torch.profiler, by optimizer steps
tracekit-capture run --env-only capture/examples/unchanged.py          the Neuron runtime's variables only
"""

from __future__ import annotations

import torch


def find_device() -> str:
    """Name of the device to run on: Neuron, CUDA or CPU."""
    try:
        import torch_neuronx  # noqa: F401  # registers the "neuron" device
    except ImportError:
        return "cuda" if torch.cuda.is_available() else "cpu"
    return "neuron"


def main() -> None:
    """Fit a line."""
    device = find_device()
    model = torch.nn.Linear(16, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(128, 16).to(device)
    targets = inputs.sum(-1, keepdim=True)
    for _ in range(10):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        torch.autograd.backward(loss)
        optimizer.step()
    print(f"loss {float(loss):.4f}")


if __name__ == "__main__":
    main()
