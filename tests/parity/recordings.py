"""Record traces with torch.profiler, together with what torch itself computes from them.

Every function records into a directory and returns a ``Recording``: the exported trace and the rows of
``key_averages()`` in exact nanoseconds.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Recording:
    """A trace and torch's own statistics of it.

    Attributes:
        trace: the exported Chrome trace.
        by_name: rows of ``key_averages()``.
        by_shape: rows of ``key_averages(group_by_input_shape=True)``.
        by_overload: rows of ``key_averages(group_by_overload_name=True)``.
        has_device: a device activity was profiled.

    A row has name, overload, shapes (``str()`` of torch's list; empty unless grouped by it), on_device,
    is_annotation, calls, self_cpu_ns, cpu_total_ns, self_device_ns, device_total_ns.
    """

    trace: Path
    by_name: list[Row]
    by_shape: list[Row]
    by_overload: list[Row]
    has_device: bool


def rows_of(averages: Any) -> list[Row]:
    """Rows of an ``EventList`` of averages.

    torch keeps microseconds as float64 relative to the trace's start, so a sum of nanoseconds is off by
    less than 1e-6 ns per event: rounding gives the exact integer.
    """
    import torch

    def ns(microseconds: float) -> int:
        return round(microseconds * 1000)

    return [
        {
            "name": row.key,
            "overload": row.overload_name or "",
            "shapes": str(row.input_shapes) if row.input_shapes != "" else "",
            "on_device": row.device_type != torch.autograd.DeviceType.CPU,
            "is_annotation": bool(row.is_user_annotation),
            "calls": row.count,
            "self_cpu_ns": ns(row.self_cpu_time_total),
            "cpu_total_ns": ns(row.cpu_time_total),
            "self_device_ns": ns(row.self_device_time_total),
            "device_total_ns": ns(row.device_time_total),
        }
        for row in averages
    ]


class MisnamedError(Exception):
    """torch's rows have other names than the trace that it wrote itself."""


def _check_names(events: list[Row], named: set[str]) -> None:
    """Python frames are what torch misnames: where there are any, rows and trace have to have the same names."""
    import torch

    frames = {event["name"] for event in events if event.get("cat") == "python_function"}
    texts = {str(event.get("name")) for event in events}
    known = texts | {"ProfilerStep*"} | {str(torch._C._demangle(text)) for text in texts if len(text) > 1}
    if frames and not (frames <= named <= known):
        raise MisnamedError((frames - named) | (named - known))


def _finish(prof: Any, folder: Path, name: str, has_device: bool) -> Recording:
    trace = folder / f"{name}.json"
    prof.export_chrome_trace(str(trace))
    by_name = rows_of(prof.key_averages())
    _check_names(json.loads(trace.read_bytes())["traceEvents"], {row["name"] for row in by_name})
    return Recording(
        trace,
        by_name,
        rows_of(prof.key_averages(group_by_input_shape=True)),
        rows_of(prof.key_averages(group_by_overload_name=True)),
        has_device,
    )


def _train_transformer() -> None:
    """Forward, backward and optimiser step under nested ranges."""
    import torch
    from torch.profiler import record_function

    torch.manual_seed(0)
    model = torch.nn.TransformerEncoderLayer(16, 2, 16, batch_first=True)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(2, 4, 16)
    with record_function("training step"):
        with record_function("forward"), record_function("forward"):  # a duplicate: only child, same name
            loss = model(batch).square().mean()
        with record_function("backward"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def _train_mlp() -> None:
    """Forward and backward of two layers: few events, for traces with Python frames."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    model(torch.randn(8, 16)).mul(2).sum().backward()


def _profile(program: Callable[[], None], **options: Any) -> Any:
    from torch.profiler import ProfilerActivity, profile

    options.setdefault("activities", [ProfilerActivity.CPU])
    with profile(**options) as prof:
        program()
    return prof


def transformer(folder: Path) -> Recording:
    """CPU transformer with backward and ``record_shapes``."""
    return _finish(_profile(_train_transformer, record_shapes=True), folder, "transformer", False)


def transformer_with_stack(folder: Path) -> Recording:
    """The same with Python frames and memory events."""
    prof = _profile(_train_transformer, record_shapes=True, with_stack=True, profile_memory=True)
    return _finish(prof, folder, "transformer_with_stack", False)


def memory(folder: Path) -> Recording:
    """Allocations inside and outside of operators: the latter have rows of their own."""
    import torch

    def program() -> None:
        for size in (10, 1_000, 100_000):
            tensor = torch.empty(size)
            tensor.fill_(1.0)
            del tensor

    return _finish(_profile(program, profile_memory=True, record_shapes=True), folder, "memory", False)


def threads(folder: Path) -> Recording:
    """Operators of four threads at once, with nested ranges on each, and overload names."""
    import torch
    from torch.profiler import record_function

    def work(number: int) -> None:
        weight = torch.randn(24, 24, requires_grad=True)
        for _ in range(3):
            with record_function(f"worker {number}"), record_function("product"):
                (weight @ weight + number).relu().sum().backward()

    def program() -> None:
        pool = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in pool:
            thread.start()
        work(99)
        for thread in pool:
            thread.join()

    config = torch._C._profiler._ExperimentalConfig(profile_all_threads=True, capture_overload_names=True)
    prof = _profile(program, record_shapes=True, experimental_config=config)
    return _finish(prof, folder, "threads", False)


def nested_ranges(folder: Path) -> Recording:
    """Ranges in ranges in operators in ranges: a Python autograd function, lists of tensors, odd names."""
    import torch
    from torch.profiler import record_function

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            with record_function("inside"):
                return x * 2

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
            with record_function("inside"):
                return grads[0] * 2

    def program() -> None:
        x = torch.randn(5, 7, requires_grad=True)
        with record_function("outer"), record_function("outer"), record_function("outer"):
            y = Doubled.apply(x)
        with record_function("odd.name"), record_function("_Z3foov"), record_function("ProfilerStep#7"):
            z = torch.cat([y, y, x]).split(3)
            torch._foreach_add(list(z), 1.0)
        y.sum().backward()
        for op in (torch.ops.aten.is_leaf, torch.ops.aten._version, torch.ops.aten.output_nr):
            op(x)

    return _finish(_profile(program, record_shapes=True, with_stack=True), folder, "nested_ranges", False)


def mlp_with_schedule(folder: Path) -> Recording:
    """An MLP under a schedule: ``ProfilerStep#N`` ranges, the second of two cycles."""
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(8, 16)
    plan = schedule(wait=1, warmup=1, active=3, repeat=2)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, record_shapes=True) as prof:
        for _ in range(10):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
            prof.step()
    return _finish(prof, folder, "mlp_with_schedule", False)


@dataclass(frozen=True)
class DeviceSettings:
    """Variants of the simulated accelerator's trace.

    Attributes:
        with_stack: Python frames and memory events too.
        linked: driver events carry the operator's id, so that torch puts them on its thread, where they
            cross the operators that follow.
        named: launch events are named as their operator, as the vendor's are: torch then takes the launch
            of an operator without children for its duplicate.
        colliding: the numbers of synchronise calls are those of operators.
    """

    with_stack: bool = False
    linked: bool = True
    named: bool = True
    colliding: bool = False

    @property
    def name(self) -> str:
        parts = {
            "stack": self.with_stack,
            "unlinked": not self.linked,
            "unnamed": not self.named,
            "colliding": self.colliding,
        }
        return "_".join(["privateuse1", *(part for part, is_set in parts.items() if is_set)])


def privateuse1(folder: Path, settings: DeviceSettings) -> Recording:
    """Training on the simulated accelerator: streams, copies, several executions per operator."""
    import torch

    from tests.privateuse1 import Copy, Launch, activities, load_backend

    backend = load_backend()
    plan = {
        "aten::addmm": [Launch(0), Launch(1), Launch(1, 33_333)],
        "aten::mul": 1,
        "aten::bmm": Launch(stream=3),
        "aten::copy_": Copy(stream=2),
        "AddmmBackward0": Launch(stream=1),
    }
    backend.set_plan(
        plan,
        annotations=True,
        link_driver=settings.linked,
        runtime_name="" if settings.named else "nrt_launch",
        colliding_calls=settings.colliding,
    )

    def program() -> None:
        train()
        torch.neuron.synchronize()
        product = torch.randn(8, 8) * 2
        torch.neuron.synchronize()
        product.add_(1)

    stack = settings.with_stack
    train = _train_mlp if stack else _train_transformer
    try:
        prof = _profile(program, activities=activities(), record_shapes=True, with_stack=stack, profile_memory=stack)
    finally:
        backend.clear_plan()
    return _finish(prof, folder, settings.name, True)


def unfinished(folder: Path) -> Recording:
    """A range that is open when the profiler stops: not in the tree, its end is not in the file."""
    import torch
    from torch.profiler import record_function

    left_open = record_function("left open")

    def program() -> None:
        x = torch.randn(8, 8)
        left_open.__enter__()
        (x @ x).sum()

    prof = _profile(program)
    left_open.__exit__(None, None, None)
    return _finish(prof, folder, "unfinished", False)


def _named(record: Callable[[Path], Recording]) -> Callable[[Path], Recording]:
    """Record again where torch cannot name its own events: of Python frames a name may lie in memory that was freed."""

    def again(folder: Path) -> Recording:
        for _ in range(3):
            with contextlib.suppress(UnicodeDecodeError, MisnamedError):
                return record(folder)
        return record(folder)

    return again


_ALL: dict[str, Callable[[Path], Recording]] = {
    "transformer": transformer,
    "transformer_with_stack": transformer_with_stack,
    "memory": memory,
    "threads": threads,
    "nested_ranges": nested_ranges,
    "mlp_with_schedule": mlp_with_schedule,
    **{
        settings.name: partial(privateuse1, settings=settings)
        for settings in (
            DeviceSettings(),
            DeviceSettings(with_stack=True),
            DeviceSettings(linked=False),
            DeviceSettings(named=False),
            DeviceSettings(colliding=True),
            DeviceSettings(with_stack=True, linked=False, named=False),
        )
    },
}
ALL = {name: _named(record) for name, record in _ALL.items()}
"""Every recording by name."""
