"""Facts about this machine, this process and this directory, for the manifest.

Nothing here imports torch, asks the network (the instance metadata service may be out of reach and then
hangs), or reads a secret: environment variables come from an allow list.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import socket
import subprocess
from pathlib import Path

from capture.manifest import Section
from capture.redaction import redacted_text

VENDOR_TOOL_DIRECTORY = Path("/opt/aws/neuron/bin")

ENVIRONMENT_ALLOW_LIST = (
    "CUDA_VISIBLE_DEVICES",
    "KINETO_USE_DAEMON",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MKL_NUM_THREADS",
    "NEURON_CC_FLAGS",
    "NEURON_COMPILE_CACHE_URL",
    "NEURON_FRAMEWORK_DEBUG",
    "NEURON_FUSE_SOFTMAX",
    "NEURON_LOGICAL_NC_CONFIG",
    "NEURON_PLATFORM_TARGET_OVERRIDE",
    "NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS",
    "NEURON_RT_ENABLE_DGE_NOTIFICATIONS",
    "NEURON_RT_EXEC_TIMEOUT",
    "NEURON_RT_INSPECT_DEVICE_PROFILE",
    "NEURON_RT_INSPECT_DEVICE_PROFILE_NUM_WARMUP",
    "NEURON_RT_INSPECT_ENABLE",
    "NEURON_RT_INSPECT_EVENT_FILTER_NC",
    "NEURON_RT_INSPECT_EVENT_FILTER_TYPE",
    "NEURON_RT_INSPECT_OUTPUT_DIR",
    "NEURON_RT_INSPECT_PRECACHE_ENABLE",
    "NEURON_RT_INSPECT_SYSTEM_PROFILE",
    "NEURON_RT_INSPECT_SYS_TRACE_MAX_EVENTS_PER_NC",
    "NEURON_RT_NUM_CORES",
    "NEURON_RT_STOCHASTIC_ROUNDING_EN",
    "NEURON_RT_VIRTUAL_CORE_SIZE",
    "NEURON_RT_VISIBLE_CORES",
    "NKI_DEBUG_INFO",
    "OMP_NUM_THREADS",
    "RANK",
    "TORCH_COMPILE_DEBUG",
    "TORCH_NEURONX_ENABLE_ASYNC_NRT",
    "TORCH_NEURONX_ENABLE_HOST_CC",
    "TORCH_NEURONX_NEFF_CACHE_DIR",
    "WORLD_SIZE",
    "XLA_HLO_DEBUG",
    "XLA_IR_DEBUG",
)


def tool_section() -> Section:
    """Name and version of this tool."""
    return {"name": "tracekit-capture", "version": package_version("tracekit")}


def package_version(name: str) -> str | None:
    """Version of an installed Python package; null when it is absent."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def host_section() -> Section:
    """Identity (hashed) and size of this machine."""
    return {
        "hostname_hash": hostname_hash(),
        "instance_id": instance_id(),
        "instance_type": _instance_type(),
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "memory_bytes": _memory_bytes(),
    }


def hostname_hash() -> str:
    """Twelve hex digits that tell machines apart without naming them."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12]


def instance_id() -> str | None:
    """EC2 instance id (``i-…``) from the firmware of a Nitro instance; null elsewhere."""
    tag = _first_line(Path("/sys/devices/virtual/dmi/id/board_asset_tag"))
    return tag if tag is not None and re.fullmatch(r"i-[0-9a-f]{8,}", tag) else None


def _instance_type() -> str | None:
    if instance_id() is None:
        return None
    return _first_line(Path("/sys/devices/virtual/dmi/id/product_name"))


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None


def neuron_versions() -> Section:
    """Versions of the Neuron compiler, runtime, driver and tools; null for each one that is absent."""
    packages = _system_packages(("aws-neuronx-runtime-lib", "aws-neuronx-tools", "aws-neuronx-dkms"))
    return {
        "torch_neuronx": package_version("torch-neuronx"),
        "neuronx_cc": package_version("neuronx-cc"),
        "neuron_runtime": packages["aws-neuronx-runtime-lib"],
        "neuron_driver": _first_line(Path("/sys/module/neuron/version")) or packages["aws-neuronx-dkms"],
        "neuron_tools": packages["aws-neuronx-tools"],
    }


def _system_packages(names: tuple[str, ...]) -> dict[str, str | None]:
    """Versions of system packages, by dpkg or rpm; null for each one that is absent."""
    versions: dict[str, str | None] = dict.fromkeys(names)
    if shutil.which("dpkg-query"):
        command = ["dpkg-query", "-W", "-f", "${Package}\t${Version}\n", *names]
    elif shutil.which("rpm"):
        command = ["rpm", "-q", "--qf", "%{NAME}\t%{VERSION}\n", *names]
    else:
        return versions
    for line in run_quietly(command).splitlines():
        name, _, version = line.partition("\t")
        if name in versions and version:
            versions[name] = version.strip()
    return versions


def run_quietly(command: list[str], timeout_s: float = 10.0) -> str:
    """Output of a command; empty when it fails, hangs or is absent."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def find_vendor_tool(name: str) -> Path | None:
    """Path of a Neuron command, on PATH or where the vendor's package puts it; null when absent."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    candidate = VENDOR_TOOL_DIRECTORY / name
    return candidate if os.access(candidate, os.X_OK) else None


def git_section(directory: Path) -> Section:
    """Commit of the working directory, and whether it has uncommitted changes."""
    commit = run_quietly(["git", "-C", str(directory), "rev-parse", "HEAD"], timeout_s=5).strip()
    if not commit:
        return {"commit": None, "is_dirty": None}
    changes = run_quietly(["git", "-C", str(directory), "status", "--porcelain", "-uno"], timeout_s=5)
    return {"commit": commit, "is_dirty": bool(changes.strip())}


def allowed_environment() -> dict[str, str]:
    """The variables of the allow list that are set, without secrets in their values."""
    return {name: redacted_text(os.environ[name]) for name in ENVIRONMENT_ALLOW_LIST if name in os.environ}


def rank_section(rank_filter: str | None) -> Section:
    """Place of this process in its job, from the variables that torchrun and its like set."""
    address = f"{os.environ.get('MASTER_ADDR', '')}:{os.environ.get('MASTER_PORT', '')}"
    launch = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    run_id = hashlib.sha256(f"{address} {launch} {attempt}".encode()).hexdigest()[:12]
    return {
        "pid": os.getpid(),
        "rank": integer_variable("RANK"),
        "local_rank": integer_variable("LOCAL_RANK"),
        "world_size": integer_variable("WORLD_SIZE"),
        "run_id": run_id if "RANK" in os.environ else None,
        "rank_filter": rank_filter,
    }


def integer_variable(name: str) -> int | None:
    """An environment variable as an integer; null when unset or no integer."""
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return None
