"""What a capture is asked to do; checked before the workload starts."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field, fields, replace
from typing import Any

from capture.errors import CaptureError

MODES = ("DEVICE", "RUNTIME", "CPU_UTIL", "HOST_MEMORY")
DEVICES = ("auto", "neuron", "privateuse1", "cuda", "cpu")
COMPILE_TIME_VARIABLES = ("XLA_IR_DEBUG", "XLA_HLO_DEBUG", "NEURON_FRAMEWORK_DEBUG")
DEFAULT_DIRECTORY = "profiles"
# `run` hands its options to the sessions of the script through these.
OVERRIDES_VARIABLE = "TRACEKIT_CAPTURE_OVERRIDES"
LEDGER_VARIABLE = "TRACEKIT_CAPTURE_LEDGER"


@dataclass(frozen=True)
class Options:
    """Options of one capture.

    Args:
        wait: steps that run without the profiler, for compilation and caches.
        warmup: steps that run under the profiler and are thrown away.
        active: steps that are recorded.
        repeat: how many such cycles; each one gets its own directory.
        whole: one window from start to stop, without steps; the four above are then not used.
        device: "auto" (Neuron if present, then CUDA, then CPU), or the one that must be used.
        modes: ProfileMode names, Neuron only.
        capture_enabled_for_nc: NeuronCores to capture, such as "0,2-5"; all when null. Neuron only.
        max_events_per_nc: size of the runtime's ring buffer per core, events. Neuron only.
        neff_cache_dir: cache whose NEFFs are copied beside the traces. Neuron only.
        precache_node_info: fill per-NEFF metadata in the warm-up. Neuron only.
        correlate_device_time: device time per operator in trace.json. Neuron only.
        custom_profiler_config: text for the profiler of another PrivateUse1 backend.
        record_shapes: input shapes of operators.
        with_stack: Python call stacks; the largest cost of all in time and size.
        profile_memory: allocations and releases.
        with_flops: estimated FLOPs of some operators.
        compile_debug: set XLA_IR_DEBUG, XLA_HLO_DEBUG and NEURON_FRAMEWORK_DEBUG.
        ranks: ranks to profile, such as "0,4-7"; all when null.
        labels: the user's own labels.
        check: look at the result when the capture ends.
    """

    wait: int = 2
    warmup: int = 1
    active: int = 1
    repeat: int = 1
    whole: bool = False
    device: str = "auto"
    modes: tuple[str, ...] = ("DEVICE", "RUNTIME")
    capture_enabled_for_nc: str | None = None
    max_events_per_nc: int | None = None
    neff_cache_dir: str | None = None
    precache_node_info: bool | None = None
    correlate_device_time: bool | None = None
    custom_profiler_config: str | None = None
    record_shapes: bool = True
    with_stack: bool = False
    profile_memory: bool = False
    with_flops: bool = False
    compile_debug: bool = False
    ranks: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    check: bool = True

    def __post_init__(self) -> None:
        modes = self.modes.split(",") if isinstance(self.modes, str) else self.modes
        object.__setattr__(self, "modes", tuple(str(mode).strip().upper() for mode in modes))
        object.__setattr__(self, "labels", _label_texts(self.labels))
        for name in ("ranks", "capture_enabled_for_nc"):
            if isinstance(value := getattr(self, name), int):
                object.__setattr__(self, name, str(value))
        for name, least in (("wait", 0), ("warmup", 0), ("active", 1), ("repeat", 1)):
            if not isinstance(getattr(self, name), int):
                raise CaptureError(f"{name}={getattr(self, name)!r}: must be an integer")
            if getattr(self, name) < least:
                raise CaptureError(f"{name}={getattr(self, name)}: must be at least {least}")
        unknown = [mode for mode in self.modes if mode not in MODES]
        if unknown:
            raise CaptureError(f"unknown mode {', '.join(unknown)}", hint=f"known: {', '.join(MODES)}")
        if self.device not in DEVICES:
            raise CaptureError(f"unknown device {self.device!r}", hint=f"known: {', '.join(DEVICES)}")
        for name in ("ranks", "capture_enabled_for_nc"):
            parse_ranges(getattr(self, name), name)

    @property
    def cycle_step_count(self) -> int:
        """Steps of one cycle of the schedule."""
        return self.wait + self.warmup + self.active

    @property
    def step_count(self) -> int:
        """Steps that the whole schedule needs."""
        return self.cycle_step_count * self.repeat


def _label_texts(labels: object) -> dict[str, str]:
    if labels is None:
        return {}
    if not isinstance(labels, dict):
        raise CaptureError(f"labels={labels!r}: must be a dictionary", hint='write it like {"batch": 4}')
    return {str(name): str(value) for name, value in labels.items()}


def make_options(given: dict[str, Any]) -> Options:
    """Check options by name, with those that ``tracekit-capture run`` put in the environment on top.

    Raises:
        CaptureError: an option is not known, or its value is not valid.
    """
    known = {entry.name for entry in fields(Options)}
    for name in given:
        if name not in known:
            raise CaptureError(f"unknown option {name!r}", hint=f"known: {', '.join(sorted(known))}")
    overrides = {name: value for name, value in environment_overrides().items() if name in known}
    labels = {**_label_texts(given.get("labels")), **overrides.pop("labels", {})}
    return replace(Options(), **{**given, **overrides, "labels": labels})


def environment_overrides() -> dict[str, Any]:
    """Options that ``tracekit-capture run`` was given; empty outside it."""
    text = os.environ.get(OVERRIDES_VARIABLE)
    if not text:
        return {}
    try:
        overrides = json.loads(text)
    except ValueError:
        return {}
    return overrides if isinstance(overrides, dict) else {}


def parse_ranges(text: str | None, name: str = "ranges") -> frozenset[int] | None:
    """Numbers of a list such as "0,2-5"; null for null, which means all.

    Raises:
        CaptureError: the text is not such a list.
    """
    if text is None:
        return None
    numbers: set[int] = set()
    for part in str(text).split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise CaptureError(f"{name}={text!r} is not a list of numbers", hint='write it like "0,2-5"')
        numbers.update(range(first, last + 1))
    return frozenset(numbers)
