"""Is this machine ready to capture? Facts and conflicts, each with what to do about it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from capture import devices, host, layout, neuron
from capture.errors import CaptureError
from capture.options import COMPILE_TIME_VARIABLES, Options
from capture.text import human_bytes

# Vendor: "ProfileMode.DEVICE reserves approximately 5 GB of HBM on Trn2"; for others nothing is documented.
DEVICE_MODE_HBM = "about 5 GB of HBM per the vendor (Trn2)"
ENOUGH_FREE_BYTES = 10 * 10**9


@dataclass(frozen=True)
class Item:
    """One line of the doctor's report.

    Args:
        severity: "ok", "note", "warning" or "error".
        name: what was looked at.
        state: what was seen.
        fix: what to do; empty when nothing.
    """

    severity: str
    name: str
    state: str
    fix: str = ""


def examine(output_dir: Path) -> list[Item]:
    """Look at everything that a capture needs."""
    items = [Item("ok", "python", sys.version.split()[0])]
    items += _torch_items()
    items += _tool_items()
    items += _disk_items(output_dir)
    items += _variable_items()
    if host.package_version("zstandard") is None:
        items.append(Item("warning", "zstandard", "absent", "pip install zstandard, or pack to .tar.gz"))
    return items


def _torch_items() -> Iterator[Item]:
    try:
        torch = devices.import_torch()
    except CaptureError as error:
        yield Item("error", "torch", error.problem, error.hint)
        return
    yield Item("ok", "torch", str(torch.__version__))
    versions = host.neuron_versions()
    for name in ("torch_neuronx", "neuronx_cc", "neuron_runtime", "neuron_driver"):
        state = versions[name]
        yield Item("ok" if state else "note", name.replace("_", "-"), str(state or "absent"))
    try:
        device = devices.detect()
    except CaptureError as error:
        yield Item("error", "device", error.problem, error.hint)
        return
    yield _device_item(device)
    if device.kind == "neuron":
        yield from _neuron_items()


def _device_item(device: devices.Device) -> Item:
    count = device.section["device_count"]
    counted = f", {count} devices" if count is not None else ""
    state = f"{device.kind} ({device.section['name']}{counted})" if device.section["name"] else device.kind
    if device.warning:
        return Item("warning", "device", f"{state}: {device.warning}", "see neuron-ls: is the driver loaded?")
    if device.kind == "cpu":
        return Item("note", "device", "cpu: no accelerator here", "fine for trying things out")
    return Item("ok", "device", state)


def _neuron_items() -> Iterator[Item]:
    """Does the installed profiling API take everything this tool can ask for?"""
    everything = Options(
        modes=("DEVICE", "RUNTIME", "CPU_UTIL", "HOST_MEMORY"),
        capture_enabled_for_nc="0",
        max_events_per_nc=1_000_000,
        neff_cache_dir=tempfile.gettempdir(),
        precache_node_info=True,
        correlate_device_time=True,
    )
    try:
        setup = neuron.build(Path(tempfile.gettempdir()), everything)
    except CaptureError as error:
        yield Item("error", "profiling API", error.problem, error.hint)
        return
    if setup.dropped:
        fix = "captures work without; update torch_neuronx for them"
        yield Item("warning", "profiling API", f"does not know {', '.join(setup.dropped)}", fix)
    else:
        yield Item("ok", "profiling API", "all options known")
    fix = "leave that much free, or capture with --modes RUNTIME"
    yield Item("note", "DEVICE mode", f"reserves {DEVICE_MODE_HBM}", fix)


def _tool_items() -> Iterator[Item]:
    for name in ("neuron-explorer", "neuron-ls"):
        path = host.find_vendor_tool(name)
        if path is None:
            yield Item("note", name, "absent", "on a Neuron machine: sudo apt-get install aws-neuronx-tools")
            continue
        lines = host.run_quietly([str(path), "--version"]).split("\n")
        is_on_path = shutil.which(name) is not None
        fix = "" if is_on_path else f"export PATH={path.parent}:$PATH"
        yield Item("ok" if is_on_path else "note", name, lines[0].strip() or "version unknown", fix)


def _disk_items(output_dir: Path) -> Iterator[Item]:
    was_there = output_dir.exists()
    try:
        free = layout.prepare(output_dir)
    except CaptureError as error:
        yield Item("error", "output", error.problem, error.hint)
        return
    if not was_there:
        output_dir.rmdir()
    state = f"{human_bytes(free)} free in {output_dir}"
    if free < ENOUGH_FREE_BYTES:
        yield Item("warning", "output", state, "device traces are 40 MB to 5 GB per core: choose a larger disk")
    else:
        yield Item("ok", "output", state)


def _variable_items() -> Iterator[Item]:
    if os.environ.get("NEURON_RT_INSPECT_ENABLE", "0") != "0":
        fix = "unset NEURON_RT_INSPECT_ENABLE; it is only for run --env-only, which sets it itself"
        yield Item("error", "NEURON_RT_INSPECT_ENABLE", "set: conflicts with torch.profiler", fix)
    is_set = [name for name in COMPILE_TIME_VARIABLES if os.environ.get(name, "0") != "0"]
    state = f"set: {', '.join(is_set)}" if is_set else "not set: graphs get short names"
    fix = "" if is_set else "set them before compiling (run --compile-debug), with an empty NEFF cache"
    yield Item("ok" if is_set else "note", "debug names", state, fix)
    cache = os.environ.get("TORCH_NEURONX_NEFF_CACHE_DIR")
    if cache:
        exists = Path(cache).is_dir()
        yield Item("ok", "NEFF cache", cache if exists else f"{cache} (will be made)")
    for name in ("NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES", "NEURON_RT_VIRTUAL_CORE_SIZE"):
        if name in os.environ:
            yield Item("ok", name, os.environ[name])
