"""Fixed values of stored columns that readers' worker processes need too: nothing here imports anything heavy."""

from __future__ import annotations

LANES = ("dispatch", "stream", "runtime", "hardware")
"""The four lanes of a Neuron system profile, from the framework down to the device."""

KINDS = (
    "op",
    "annotation",
    "python",
    "call",
    "execution",
    "collective",
    "copy_in",
    "copy_out",
    "copy",
    "memory",
    "model",
    "sync",
    "window",
    "overhead",
    "other",
)
"""What an event is. ``copy`` is a transfer whose direction is not host↔device (device to device, peer) or not known."""

SOURCE_NAMES = ("kineto", "explorer", "system_json", "fetch_json", "ntrace", "host")
"""Formats that give events and samples, named as in ``sources.SOURCES``."""

FIRST_DATE_NS = 10**17
"""Nanoseconds above this (March 1973) are a point in time; below it a duration (up to three years), or the
reading of a clock that counts from the start of a machine or a program."""
