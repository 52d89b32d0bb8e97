"""Profilers that the program starts itself while a capture is on.

torch has one recording per process. A profiler that starts inside another one ends the outer recording without a
word, and torch 2.13 then crashes (SIGSEGV) when the outer one is stopped or exported. So the capture ends first.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from capture.devices import import_torch
from capture.errors import CaptureError

# Every torch.profiler.profile and torch.autograd.profiler.profile goes through this method before it records.
_ENTRANCE = "_prepare_trace"


def refuse_if_on(device_kind: str) -> None:
    """Make sure that nothing records yet.

    Raises:
        CaptureError: a torch profiler is on, or the Neuron runtime's own; both recordings would be lost.
    """
    if device_kind == "neuron" and os.environ.get("NEURON_RT_INSPECT_ENABLE", "0") != "0":
        raise CaptureError(
            "NEURON_RT_INSPECT_ENABLE is set, which conflicts with torch.profiler",
            hint="unset NEURON_RT_INSPECT_ENABLE, or capture with: tracekit-capture run --env-only",
        )
    torch = import_torch()
    is_on_here = getattr(torch._C._autograd, "_profiler_enabled", lambda: False)()
    if is_on_here or getattr(torch.autograd.profiler, "_is_profiler_enabled", False):
        raise CaptureError(
            "a torch profiler is on already in this process",
            hint="torch has one profiler: end the other one before the capture starts",
        )


def has_recording(prof: Any) -> bool:
    """Tell whether a stopped profiler holds a recording; exporting one without crashes the process."""
    results = getattr(prof.profiler, "kineto_results", None)
    started_ns = getattr(results, "trace_start_ns", None)
    return started_ns is None or started_ns() != 0


class OtherProfilers:
    """Calls back before a profiler that is not the capture's own starts.

    Args:
        is_own: tells the capture's own ``torch.autograd.profiler.profile`` from others.
        on_start: called before another one starts.
    """

    def __init__(self, is_own: Callable[[object], bool], on_start: Callable[[], None]) -> None:
        self._is_own = is_own
        self._on_start = on_start
        self._original: Any = None
        self._wrapped: Any = None

    def watch(self) -> None:
        """Begin; without effect on a torch whose profilers start in another way."""
        kind = import_torch().autograd.profiler.profile
        original = getattr(kind, _ENTRANCE, None)
        if original is None:
            return

        @functools.wraps(original)
        def prepare(profile: Any, *arguments: Any, **keywords: Any) -> Any:
            if self._wrapped is not None and not self._is_own(profile):
                self._on_start()
            return original(profile, *arguments, **keywords)

        self._original, self._wrapped = original, prepare
        setattr(kind, _ENTRANCE, prepare)

    def release(self) -> None:
        """End; what somebody else has put there meanwhile stays."""
        kind = import_torch().autograd.profiler.profile
        if self._wrapped is not None and getattr(kind, _ENTRANCE) is self._wrapped:
            setattr(kind, _ENTRANCE, self._original)
        self._original = self._wrapped = None
