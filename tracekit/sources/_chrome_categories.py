"""Lane and kind of an event from its category: the one place to teach the Chrome reader a new device.

Categories are those of PyTorch's Kineto (``libkineto/include/ActivityType.h``) and of older exporters.
Imports nothing heavy: worker processes load it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from tracekit.vocabulary import KINDS, LANES, SOURCE_NAMES

Place = tuple[str, str]
"""``(lane, kind)`` as in ``tables.LANES`` and ``tables.KINDS``."""

OTHER: Place = ("dispatch", "other")
"""Where an event of an unknown category goes."""

_SOURCES = frozenset(SOURCE_NAMES) - {"kineto"}


class Exported(NamedTuple):
    """What ``tracekit export --to chrome`` writes as category: ``<source>:<lane>:<kind>[:<category>]``."""

    source: str
    lane: str
    kind: str
    category: str | None


@lru_cache(maxsize=1024)
def exported(category: str | None) -> Exported | None:
    """The parts of a category that an export gave to a row of another source; None for every other category."""
    parts = (category or "").split(":", 3)
    if len(parts) < 3 or parts[0] not in _SOURCES or parts[1] not in LANES or parts[2] not in KINDS:
        return None
    return Exported(parts[0], parts[1], parts[2], parts[3] if len(parts) > 3 else None)


CATEGORIES: Mapping[str, Place] = {
    "cpu_op": ("dispatch", "op"),
    "Operator": ("dispatch", "op"),
    "user_annotation": ("dispatch", "annotation"),
    "python_function": ("dispatch", "python"),
    "overhead": ("dispatch", "overhead"),
    "Trace": ("dispatch", "window"),
    "privateuse1_runtime": ("dispatch", "call"),
    "privateuse1_driver": ("stream", "call"),
    "cuda_runtime": ("runtime", "call"),
    "cuda_driver": ("runtime", "call"),
    "hip_runtime": ("runtime", "call"),
    "hip_driver": ("runtime", "call"),
    "xpu_runtime": ("runtime", "call"),
    "xpu_driver": ("runtime", "call"),
    "mtia_runtime": ("runtime", "call"),
    "glow_runtime": ("runtime", "call"),
    "Runtime": ("runtime", "call"),
    "kernel": ("hardware", "execution"),
    "Kernel": ("hardware", "execution"),
    "concurrent_kernel": ("hardware", "execution"),
    "mtia_ccp_events": ("hardware", "execution"),
    "gpu_memcpy": ("hardware", "copy"),
    "Memcpy": ("hardware", "copy"),
    "gpu_memset": ("hardware", "memory"),
    "Memset": ("hardware", "memory"),
    "gpu_user_annotation": ("hardware", "annotation"),
    "cuda_sync": ("hardware", "sync"),
}
"""Category → (lane, kind) unless ``NAMED`` says otherwise."""

_SYNCHRONIZE = ("Synchronize", "sync")
_COLLECTIVE = ("nccl", "collective")
_COPIES = (("HtoD", "copy_in"), ("DtoH", "copy_out"))
_CALLS = (
    "cuda_runtime",
    "cuda_driver",
    "hip_runtime",
    "hip_driver",
    "xpu_runtime",
    "xpu_driver",
    "mtia_runtime",
    "Runtime",
)

NAMED: Mapping[str, tuple[tuple[str, str], ...]] = {
    **dict.fromkeys(_CALLS, (_SYNCHRONIZE,)),
    "privateuse1_runtime": (("synchronize", "sync"),),
    "kernel": (_COLLECTIVE,),
    "Kernel": (_COLLECTIVE,),
    "concurrent_kernel": (_COLLECTIVE,),
    "gpu_memcpy": _COPIES,
    "Memcpy": _COPIES,
    "mtia_ccp_events": (("dma_request", "copy"), ("event_wait", "sync"), ("event_record", "sync")),
}
"""Category → (part of the name, kind): the first part that the name contains decides the kind."""

DEVICES: Mapping[str, str] = {
    "privateuse1_runtime": "neuron",
    "privateuse1_driver": "neuron",
    "mtia_runtime": "mtia",
    "mtia_ccp_events": "mtia",
    "xpu_runtime": "xpu",
    "xpu_driver": "xpu",
    "hip_runtime": "rocm",
    "hip_driver": "rocm",
}
"""Category → device that it gives away; earlier lines win. Anything else on the device is CUDA or ROCm."""


def lane_and_kind(category: str | None) -> Place:
    """Lane and kind of a category, whatever the name of the event."""
    known = CATEGORIES.get(category or "")
    if known is None and (found := exported(category)) is not None:
        return found.lane, found.kind
    return known or OTHER


def place(category: str | None, name: str) -> Place:
    """Lane and kind of an event of this category and name."""
    lane, kind = lane_and_kind(category)
    for part, named_kind in NAMED.get(category or "", ()):
        if part in name:
            return lane, named_kind
    return lane, kind


def device_of(categories: set[str], *, is_amd: bool) -> str:
    """The device a trace was taken on: neuron, mtia, xpu, rocm, cuda, or cpu if nothing ran on a device.

    Args:
        categories: every category in the file.
        is_amd: whether the header describes AMD devices, whose categories are named as NVIDIA's.
    """
    for category, device in DEVICES.items():
        if category in categories:
            return device
    if any(exported(category) for category in categories):
        return "neuron"
    if not any(lane_and_kind(c)[0] in ("hardware", "runtime") for c in categories):
        return "cpu"
    return "rocm" if is_amd else "cuda"
