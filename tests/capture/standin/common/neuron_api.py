"""What both versions of the profiling API share; each version decides which arguments NeuronConfig takes."""

from __future__ import annotations

import enum
import time

import torch
from neuron_standin import RUNTIME, add_device_events, session_directory, write_runtime_files
from torch._C._profiler import _ExperimentalConfig


class ProfileMode(enum.Enum):
    DEVICE = "device"
    RUNTIME = "runtime"
    CPU_UTIL = "cpu_util"
    HOST_MEMORY = "host_memory"


class BaseConfig(_ExperimentalConfig):
    """``experimental_config`` of torch.profiler.profile."""

    def __init__(self, modes, profile_output_dir, **kept):
        super().__init__()
        self.modes = [ProfileMode.DEVICE, ProfileMode.RUNTIME] if modes is None else list(modes)
        if not all(isinstance(mode, ProfileMode) for mode in self.modes):
            raise ValueError("modes must be ProfileMode values")
        self.profile_output_dir = profile_output_dir
        self.kept = kept


class NeuronProfiler:
    """Exports the framework trace into the directory of the runtime's traces."""

    def __init__(self, config):
        if not isinstance(config, BaseConfig):
            raise TypeError("NeuronProfiler needs a NeuronConfig")
        self.config = config

    def export_trace(self, prof: torch.profiler.profile) -> None:
        since = time.time_ns() - int((time.monotonic() - _record_start(prof)) * 1e9)
        done = RUNTIME.finished(since)
        directory = session_directory(self.config.profile_output_dir, with_time=True)
        modes = {mode.name for mode in self.config.modes}
        cache = self.config.kept.get("neff_cache_dir")
        write_runtime_files(directory, modes, done, cache=cache)
        path = directory / "trace.json"
        prof.export_chrome_trace(str(path))
        add_device_events(path, done)


def _record_start(prof: torch.profiler.profile) -> float:
    return prof.profiler.profiling_start_time_ns / 1e9
