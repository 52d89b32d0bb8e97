"""Samples from counters (``C``) and from PyTorch's ``[memory]`` instants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
import pyarrow as pa

from tracekit.sources._chrome_columns import Ints, ids, small
from tracekit.sources._chrome_events import ABSENT


class _Memory(msgspec.Struct, gc=False):
    allocated: float | None = msgspec.field(name="Total Allocated", default=None)
    reserved: float | None = msgspec.field(name="Total Reserved", default=None)
    device: int | None = msgspec.field(name="Device Id", default=None)
    device_type: int | None = msgspec.field(name="Device Type", default=None)


_memory = msgspec.json.Decoder(_Memory, strict=False)
Sample = tuple[str, int, int, int, float, str | None, str | None]
"""Counter, core, pid, time in ns, value, unit, attributes."""


def memory_samples(args: Iterable[bytes], pids: Ints, at_ns: Ints) -> list[Sample]:
    """Allocator totals of PyTorch's ``[memory]`` instants; a device type of 0 is the CPU."""
    samples: list[Sample] = []
    for text, pid, at in zip(args, pids.tolist(), at_ns.tolist(), strict=True):
        try:
            found = _memory.decode(text)
        except (msgspec.DecodeError, TypeError):
            continue
        is_core = found.device_type and found.device is not None and 0 <= found.device < 2**31
        core = found.device if is_core and found.device is not None else ABSENT
        for series, value in (("Total Allocated", found.allocated), ("Total Reserved", found.reserved)):
            if value is not None:
                samples.append((f"[memory]/{series}", core, pid, at, value, "B", None))
    return samples


def series_of(args: bytes) -> tuple[dict[str, float], str | None]:
    """Numbers of a counter by series, and all its ``args`` if there is more in them than numbers."""
    try:
        values = msgspec.json.decode(args) if args else {}
    except msgspec.DecodeError:
        return {}, None
    if not isinstance(values, Mapping):
        return {}, None
    series: dict[str, float] = {}
    for key, value in values.items():
        try:
            series[str(key)] = float(value)
        except (TypeError, ValueError, OverflowError):
            continue
    return series, args.decode() if len(series) < len(values) else None


def sample_batch(samples: list[Sample]) -> pa.RecordBatch:
    """Rows of ``tables.SAMPLES``, at least one."""
    counter, core, pid, at, value, unit, attrs = zip(*samples, strict=True)
    return pa.RecordBatch.from_pydict(
        {
            "counter": pa.array(counter, pa.large_string()),
            "core_index": small(np.array(core, np.int64)),
            "process_id": ids(np.array(pid, np.int64)),
            "at_ns": pa.array(at, pa.int64()),
            "value": pa.array(value, pa.float64()),
            "unit": pa.array(unit, pa.large_string()),
            "attrs_json": pa.array(attrs, pa.large_string()),
        }
    )
