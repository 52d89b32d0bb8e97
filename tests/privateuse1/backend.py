"""What tests use of the simulated accelerator: ``load_backend()``, plans, ``synchronize()``."""

from __future__ import annotations

import functools
import os
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.privateuse1.build import BackendUnavailableError, load_extension

DEVICE_NAME = "neuron"


@dataclass(frozen=True)
class Launch:
    """One execution on the device.

    ``duration_ns`` None: by operator name, input shapes and dtypes (``Backend.duration_ns``).
    """

    stream: int = 0
    duration_ns: int | None = None
    device: int = 0
    copy: str = field(default="", init=False)


@dataclass(frozen=True)
class Copy(Launch):
    """A transfer of the operator's first tensor: ``direction`` is ``in`` (to the device) or ``out``."""

    direction: str = "in"

    def __post_init__(self) -> None:
        if self.direction not in ("in", "out"):
            raise ValueError(f"direction is 'in' or 'out', not {self.direction!r}")
        object.__setattr__(self, "copy", self.direction)


Work = int | Launch | Sequence[Launch]


class Backend:
    """The loaded backend; one per process.

    Attributes:
        synchronize_calls: every call of ``synchronize()``, in order: ``"program"``, or ``"profiler"`` for
            those that torch's own profiler makes while it stops.
        torch_synchronizes: whether the profiler's own call waits for the device. Off at first, as with a
            torch or a vendor module without that courtesy: only a call of the program completes the trace.
    """

    def __init__(self, extension: types.ModuleType) -> None:
        self._extension = extension
        self.synchronize_calls: list[str] = []
        self.torch_synchronizes = False

    def set_plan(
        self,
        by_op: Mapping[str, Work],
        otherwise: Work = 0,
        *,
        launch_ns: int = 1_500,
        latency_ns: int = 2_000,
        link_driver: bool = True,
        annotations: bool = False,
        runtime_name: str = "",
        colliding_calls: bool = False,
    ) -> None:
        """Decide what each operator launches when it ends; replaces the plan before.

        Args:
            by_op: operator name (``aten::mul``, ``MulBackward0``) to work: a number of executions, all on
                stream 0, or ``Launch``/``Copy`` objects.
            otherwise: work of every operator not named.
            launch_ns: host time of each launch.
            latency_ns: from the end of a launch to the earliest start on the device.
            link_driver: driver events carry the operator's ``External id``.
            annotations: project ``record_function`` ranges on the device (``gpu_user_annotation``).
            runtime_name: name of the launch events (``privateuse1_runtime``); empty: the operator's.
            colliding_calls: each ``synchronize`` event has as ``correlation`` the number that is the
                ``External id`` of the operator launched last, as separate counters can have it.
        """
        self._extension.set_plan(
            {name: self._executions(work) for name, work in by_op.items()},
            self._executions(otherwise),
            launch_ns,
            latency_ns,
            link_driver,
            annotations,
            runtime_name,
            colliding_calls,
        )

    def clear_plan(self) -> None:
        """Launch nothing from now on, and forget the calls seen."""
        self.set_plan({})
        self.synchronize_calls.clear()
        self.torch_synchronizes = False

    def synchronize(self, device: Any = None) -> None:
        """Wait until the device has finished everything launched so far."""
        self._synchronize("program")

    def busy_streams(self) -> int:
        """Number of streams with unfinished work at this moment."""
        return int(self._extension.busy_streams())

    def launched(self) -> int:
        """Number of executions launched in this process, recorded or not."""
        return int(self._extension.launched())

    def configs(self) -> list[str]:
        """The ``custom_profiler_config`` of each profiling session so far."""
        return list(self._extension.configs())

    def duration_ns(self, op: str, inputs: Sequence[Any] = (), index: int = 0) -> int:
        """Device time of the ``index``-th execution of ``op`` on these tensors, where the plan sets none."""
        return int(self._extension.duration_ns(op, _signature(inputs), index))

    def cache_key(self, op: str, inputs: Sequence[Any] = ()) -> str:
        """The ``neff_cache_key`` of ``op`` on these tensors."""
        return str(self._extension.cache_key(op, _signature(inputs)))

    def _synchronize(self, caller: str) -> None:
        self.synchronize_calls.append(caller)
        if caller == "program" or self.torch_synchronizes:
            self._extension.synchronize(f"{DEVICE_NAME}::synchronize")

    def _executions(self, work: Work) -> list[Any]:
        launches = [Launch()] * work if isinstance(work, int) else [work] if isinstance(work, Launch) else work
        return [
            self._extension.Execution(
                stream=launch.stream,
                device=launch.device,
                duration_ns=-1 if launch.duration_ns is None else launch.duration_ns,
                copy=launch.copy,
            )
            for launch in launches
        ]


def load_backend() -> Backend:
    """Build if needed, register with torch as ``neuron`` and return the backend of this process.

    Inside a pytest run a machine without the means skips the test; elsewhere it raises.

    Raises:
        BackendUnavailableError: no torch, no profiler registry in it, or no C++ compiler.
    """
    try:
        return _loaded()
    except BackendUnavailableError as problem:
        if "PYTEST_CURRENT_TEST" not in os.environ:
            raise
        import pytest

        pytest.skip(f"PrivateUse1 test backend: {problem}")


@functools.cache
def _loaded() -> Backend:
    extension = load_extension()
    backend = Backend(extension)
    _register(backend)
    extension.install()
    return backend


def activities() -> list[Any]:
    """What to pass as ``torch.profiler.profile(activities=...)``."""
    from torch.profiler import ProfilerActivity

    return [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]


def _register(backend: Backend) -> None:
    """Make ``torch.neuron`` a device module as a vendor package does."""
    import torch

    def synchronize(device: Any = None) -> None:
        caller = sys._getframe(1)
        from_profiler = caller.f_globals.get("__name__") == "torch.autograd.profiler"
        backend._synchronize("profiler" if from_profiler else "program")

    module = types.ModuleType(f"torch.{DEVICE_NAME}")
    module.__dict__.update(
        synchronize=synchronize,
        is_available=lambda: True,
        device_count=lambda: 2,
        current_device=lambda: 0,
        _is_in_bad_fork=lambda: False,
        manual_seed_all=lambda seed: None,
    )
    torch.utils.rename_privateuse1_backend(DEVICE_NAME)
    torch._register_device_module(DEVICE_NAME, module)


def _signature(inputs: Sequence[Any]) -> str:
    return "".join(f"_[{','.join(map(str, t.shape))}]:{_dtype_name(t)}" for t in inputs)


def _dtype_name(tensor: Any) -> str:
    import torch

    names = {
        torch.float32: "float",
        torch.float64: "double",
        torch.bfloat16: "c10::BFloat16",
        torch.float16: "c10::Half",
        torch.int64: "long",
        torch.int32: "int",
        torch.bool: "bool",
    }
    return names[tensor.dtype]
