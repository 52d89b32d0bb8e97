"""Which device this process has, how to wait for it, and which activities show it.

The only modules of the whole project that import torch are this one, ``neuron`` and ``recorder``; and they do it
when a capture starts, not when they are imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from capture import host
from capture.errors import CaptureError
from capture.manifest import Section
from capture.options import Options, parse_ranges

UNNAMED_BACKEND = "privateuseone"


@dataclass(frozen=True)
class Device:
    """A device to profile.

    Args:
        kind: "neuron", "privateuse1", "cuda" or "cpu".
        backend: torch's name for it.
        synchronize: waits until everything that was launched has ended.
        activities: names of ``torch.profiler.ProfilerActivity``.
        section: the manifest's ``device`` section.
        warning: what the user should know about the choice; empty when nothing.
    """

    kind: str
    backend: str
    synchronize: Callable[[], None]
    activities: tuple[str, ...]
    section: Section
    warning: str = ""


def import_torch() -> Any:
    """Import torch, or say what to install.

    Raises:
        CaptureError: torch is not installed, or does not load.
    """
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise CaptureError(
            f"torch cannot be imported: {error}",
            hint="activate the environment that has torch, or: pip install 'tracekit[capture]'",
        ) from error


def detect(wanted: str = "auto") -> Device:
    """Choose the device: Neuron if present, then another PrivateUse1 backend, then CUDA, then the CPU.

    Raises:
        CaptureError: the wanted device is not there.
    """
    finders = {"neuron": _neuron, "privateuse1": _privateuse1, "cuda": _cuda, "cpu": _cpu}
    torch = import_torch()
    if wanted != "auto":
        device = finders[wanted](torch)
        if device is None:
            raise CaptureError(f"no {wanted} device in this process", hint="run: tracekit-capture doctor")
        return device
    for finder in finders.values():
        device = finder(torch)
        if device is not None:
            return _with_missing_neuron_warning(device)
    raise AssertionError("the CPU is always there")


def _with_missing_neuron_warning(device: Device) -> Device:
    if device.kind == "neuron" or importlib.util.find_spec("torch_neuronx") is None:
        return device
    warning = f"torch_neuronx is installed but shows no Neuron device: capturing on {device.kind}"
    return Device(**{**device.__dict__, "warning": warning})


def _neuron(torch: Any) -> Device | None:
    if importlib.util.find_spec("torch_neuronx") is None:
        return None
    try:
        torch_neuronx = importlib.import_module("torch_neuronx")
    except (ImportError, OSError, RuntimeError) as error:
        raise CaptureError(
            f"torch_neuronx is installed but cannot be imported: {error}",
            hint="torch and torch_neuronx must be of one SDK release; or capture with --device cpu",
        ) from error
    namespace = getattr(torch, "neuron", None)
    if not _is_available(namespace, torch_neuronx):
        return None
    section = _section("neuron", "neuron", _device_count(namespace, torch_neuronx))
    section["core_count"] = _core_count()
    section["logical_core_size"] = _logical_core_size()
    synchronize = _synchronize_of(namespace, torch_neuronx)
    return Device("neuron", "neuron", synchronize, ("CPU", "PrivateUse1"), section)


def _is_available(*namespaces: Any) -> bool:
    """Ask each namespace that can tell; one that cannot is believed to have a device."""
    for namespace in namespaces:
        ask = getattr(namespace, "is_available", None)
        if callable(ask):
            return bool(ask())
    return True


def _device_count(*namespaces: Any) -> int | None:
    for namespace in namespaces:
        ask = getattr(namespace, "device_count", None)
        if callable(ask):
            return int(ask())
    return None


def _synchronize_of(*namespaces: Any) -> Callable[[], None]:
    """The first ``synchronize`` found: ``torch.neuron.synchronize``, else ``torch_neuronx.synchronize``.

    Raises:
        CaptureError: there is none; a capture without it loses the last executions.
    """
    for namespace in namespaces:
        synchronize = getattr(namespace, "synchronize", None)
        if callable(synchronize):
            found: Callable[[], None] = synchronize
            return found
    raise CaptureError(
        "neither torch.neuron.synchronize nor torch_neuronx.synchronize exists",
        hint="update torch_neuronx, or capture with: tracekit-capture run --env-only",
    )


def _core_count() -> int | None:
    """Logical NeuronCores given to this process by the runtime's variables; null when they do not say."""
    count = host.integer_variable("NEURON_RT_NUM_CORES")
    visible = os.environ.get("NEURON_RT_VISIBLE_CORES")
    if count is None and visible:
        try:
            cores = parse_ranges(visible)
        except CaptureError:
            return None
        return len(cores) if cores else None
    return count


def _logical_core_size() -> int | None:
    names = ("NEURON_RT_VIRTUAL_CORE_SIZE", "NEURON_LOGICAL_NC_CONFIG")
    return next((size for name in names if (size := host.integer_variable(name)) is not None), None)


def _privateuse1(torch: Any) -> Device | None:
    name = torch._C._get_privateuse1_backend_name()
    namespace = getattr(torch, name, None)
    registered = torch.profiler.ProfilerActivity.PrivateUse1 in torch.profiler.supported_activities()
    if name == UNNAMED_BACKEND or namespace is None or not registered:
        return None
    section = _section("privateuse1", name, _device_count(namespace))
    return Device("privateuse1", name, _synchronize_of(namespace), ("CPU", "PrivateUse1"), section)


def _cuda(torch: Any) -> Device | None:
    if not torch.cuda.is_available():
        return None
    section = _section("cuda", torch.cuda.get_device_name(), torch.cuda.device_count())
    return Device("cuda", "cuda", torch.cuda.synchronize, ("CPU", "CUDA"), section)


def _cpu(torch: Any) -> Device | None:
    section = _section("cpu", None, None)
    return Device("cpu", "cpu", lambda: None, ("CPU",), section)


def _section(kind: str, name: str | None, device_count: int | None) -> Section:
    return {
        "kind": kind,
        "backend": kind if kind != "privateuse1" else name,
        "name": name,
        "device_count": device_count,
        "core_count": None,
        "logical_core_size": None,
    }


def make_profiler(device: Device, options: Options, config: object, on_trace_ready: Callable[[Any], None]) -> Any:
    """A ``torch.profiler.profile`` that is not started yet.

    Args:
        device: what to record.
        options: schedule and details.
        config: the vendor's configuration; null off Neuron.
        on_trace_ready: exports one cycle.
    """
    torch = import_torch()
    if config is None and options.custom_profiler_config is not None:
        config = torch._C._profiler._ExperimentalConfig(custom_profiler_config=options.custom_profiler_config)
    schedule = torch.profiler.schedule(
        wait=options.wait, warmup=options.warmup, active=options.active, repeat=options.repeat
    )
    return torch.profiler.profile(
        activities=[getattr(torch.profiler.ProfilerActivity, name) for name in device.activities],
        schedule=None if options.whole else schedule,
        on_trace_ready=on_trace_ready,
        record_shapes=options.record_shapes,
        with_stack=options.with_stack,
        profile_memory=options.profile_memory,
        with_flops=options.with_flops,
        experimental_config=config,
    )
