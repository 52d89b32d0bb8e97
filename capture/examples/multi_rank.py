"""Data-parallel training; each rank captures into a directory of its own.

    torchrun --nproc-per-node 4 capture/examples/multi_rank.py

Only some ranks: add --ranks 0,3. Then: tracekit-capture check multi_rank
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist

import capture


def start_job() -> str:
    """Join the process group and return the device of this rank."""
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    try:
        import torch_neuronx  # noqa: F401  # registers the "neuron" device and its collectives
    except ImportError:
        if torch.cuda.is_available():
            torch.cuda.set_device(local_rank)
            dist.init_process_group("nccl")
            return f"cuda:{local_rank}"
        dist.init_process_group("gloo")
        return "cpu"
    dist.init_process_group("neuron")
    return "neuron"


def main() -> None:
    """Train by a few steps and capture them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", help='ranks to capture, such as "0,4-7"; all when left out')
    ranks = parser.parse_args().ranks
    device = start_job()
    model = torch.nn.Linear(128, 128).to(device)
    inputs = torch.randn(32, 128).to(device)
    with capture.session("multi_rank", wait=1, warmup=1, active=2, ranks=ranks) as session:
        for _ in range(5):
            model.zero_grad()
            torch.autograd.backward(model(inputs).square().mean())
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            session.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
