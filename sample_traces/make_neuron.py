"""Write the made-up Neuron profile directories.

    python sample_traces/make_neuron.py [OUT]       # OUT defaults to sample_traces/neuron

No Neuron device was used. ``rms_naive``, ``rms_fused`` and ``rms_compiled`` carry the published totals
of RMSNorm at shape (4, 512) in bfloat16: 6 executions in 2355.0 us, 1 in 403.3 us, 1 in 375.5 us.
``train_small`` is a training loop of two processes that shows every cause of a gap. Each folder holds
capture/ (the profile directory), explorer/ (the same run as Neuron Explorer exports it) and truth.json
(what this script knows). The output is the same byte for byte every time. Needs pyarrow.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from neuron_files import write_explorer, write_process
from neuron_plan import Process
from neuron_truth import truth

NAIVE = (
    ("aten::mul", 388_200),
    ("aten::mean", 396_900),
    ("aten::add", 396_800),
    ("aten::rsqrt", 396_800),
    ("aten::mul", 388_100),
    ("aten::mul", 388_200),
)
FORWARD = (
    ("aten::embedding", 61_000, None),
    ("aten::mul", 38_800, None),
    ("aten::mean", 39_600, None),
    ("aten::add", 39_600, None),
    ("aten::rsqrt", 39_700, None),
    ("aten::mul", 38_800, None),
    ("aten::mul", 38_800, None),
    ("aten::mm", 122_000, "aten::linear"),
    ("aten::_softmax", 84_000, None),
    ("aten::mm", 118_000, "aten::linear"),
)
BACKWARD = (("aten::mm", 131_000), ("aten::_softmax_backward_data", 93_000), ("aten::mm", 127_000))
OPTIMIZER = (("aten::lerp_", 47_000), ("aten::addcmul_", 46_000), ("aten::addcdiv_", 52_000))
BATCH_BYTES, EPSILON_BYTES, GRADIENT_BYTES = 524_288, 4, 4_194_304
STEPS = 3


def rms(ops: tuple[tuple[str, int], ...], wrapper: str | None = None) -> list[Process]:
    """Play one profiled step (2 wait, 1 warm-up, 1 active) of a variant of RMSNorm."""
    process = Process(6161, 0, depth=1, seed=7)
    start = process.host_ns
    process.host_ns += 4_000
    for op, device_ns in ops:
        process.launch(op, device_ns, wrapper=wrapper)
    process.synchronize()
    process.step(3, start)
    return [process]


def forward_and_backward(process: Process, step: int) -> None:
    """Play a step up to its gradients: copies, forward, a pause of the host, the loss, backward."""
    if step == 0:
        names = [op for op, *_ in (*FORWARD, *BACKWARD, *OPTIMIZER)]
        process.compile_and_load(list(dict.fromkeys([*names, "aten::_log_softmax"])))
    process.copy_in(BATCH_BYTES)
    process.copy_in(EPSILON_BYTES)
    for op, device_ns, wrapper in FORWARD:
        process.launch(op, device_ns, [[256, 512]], wrapper)
    process.host_ns = max(process.host_ns, process.device_free_ns) + 210_000
    process.launch("aten::_log_softmax", 57_000, [[256, 512]])
    process.thread = process.pid + 3
    for op, device_ns in BACKWARD:
        process.launch(op, device_ns, [[256, 512]])
    process.thread = process.pid


def update(process: Process, stops_early: bool) -> None:
    """Play the rest of a step: a model switch, the optimizer, reading the loss."""
    process.switch_model()
    launched = [process.launch(op, device_ns, [[512, 512]]) for op, device_ns in OPTIMIZER]
    if stops_early:
        process.stop_without_synchronizing(launched[0])
    else:
        process.read_scalar()
        process.synchronize()


def train() -> list[Process]:
    """Play three steps of two processes; an all-reduce ends when the slower of them has joined."""
    processes = [Process(6171, 0, depth=2, seed=11), Process(6172, 1, depth=2, seed=13, slow_percent=9)]
    for step in range(STEPS):
        starts = [p.host_ns for p in processes]
        for process in processes:
            forward_and_backward(process, step)
        joined = [p.collective_start() for p in processes]
        for process, at in zip(processes, joined, strict=True):
            process.collective((at, max(joined) + 165_000), GRADIENT_BYTES)
        for process, start in zip(processes, starts, strict=True):
            update(process, stops_early=step == STEPS - 1 and process.rank == 1)
            process.step(step, start)
    return processes


def write(name: str, processes: list[Process], out: Path) -> None:
    """Write one sample: capture/, explorer/, truth.json."""
    folder = out / name
    for process in processes:
        write_process(process, len(processes), name, folder / "capture")
    write_explorer(processes, folder / "explorer")
    text = json.dumps(truth(name, processes), indent=1) + "\n"
    (folder / "truth.json").write_text(text, encoding="utf-8")


def main() -> None:
    """Write the four samples."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "neuron"
    write("rms_naive", rms(NAIVE), out)
    write("rms_fused", rms((("aten::_fused_rms_norm", 403_300),)), out)
    write("rms_compiled", rms((("CompiledFunction", 375_500),), "Torch-Compiled Region: 0/0"), out)
    write("train_small", train(), out)


if __name__ == "__main__":
    main()
