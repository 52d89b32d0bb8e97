"""What counts as what: compute, communication, host work and host waits, selected from ``tables.EVENTS``.

The one place that knows which lanes and kinds a definition covers. Every function takes
``tables.EVENTS`` and keeps its columns; only primary events are used, so that nothing counts twice.
"""

from __future__ import annotations

import polars as pl

COPY_KINDS = ("copy_in", "copy_out", "copy")
DEVICE_WORK_KINDS = ("execution", "memory", "collective", *COPY_KINDS)
"""Kinds of the lane ``hardware`` that keep a device busy."""
BLOCKING_OPS = ("aten::item", "aten::_local_scalar_dense")
"""Operators that block until a value has come back from the device."""

_COMPILATION = r"(?i)neuronx?[-_]?cc\b|neuron::compile|xla.*compil|\bcompil(e|ing|ation)\b|\(dynamo_timed\)$"
"""What compilers call themselves in ranges and operators; torch.compile marks its phases itself."""

_COMPILER_FRAME = (
    r"(_dynamo/convert_frame\.py|_inductor/compile_fx\.py|triton/compiler/compiler\.py"
    r"|(torch_neuronx|libneuronxla|torch_xla)/\S+\.py)\(\d+\): \w*compile(_|$)"
    r"|neuronxcc/driver/\S+\.py\("
)
"""Python frames that compile for a device. A path is no reason: modules named after compilers run in each step, and
``re.compile`` compiles no model."""

_LANE, _KIND = pl.col("lane"), pl.col("kind")
_PRIMARY = pl.col("is_primary")


def compute(events: pl.LazyFrame) -> pl.LazyFrame:
    """Executions on the device, and its memsets."""
    return events.filter(_PRIMARY & (_LANE == "hardware") & _KIND.is_in(["execution", "memory"]))


def collectives(events: pl.LazyFrame) -> pl.LazyFrame:
    """Collectives on the device."""
    return events.filter(_PRIMARY & (_LANE == "hardware") & (_KIND == "collective"))


def copies(events: pl.LazyFrame) -> pl.LazyFrame:
    """Transfers: device activity on GPUs, runtime calls on Neuron (where calls describe one transfer twice)."""
    return events.filter(_PRIMARY & _LANE.is_in(["hardware", "runtime"]) & _KIND.is_in(COPY_KINDS))


def model_switches(events: pl.LazyFrame) -> pl.LazyFrame:
    """Times when a core changes the model it runs."""
    by_kind = (_LANE == "hardware") & (_KIND == "model")
    by_name = pl.col("name") == "model_switch"
    return _either(events, by_kind, by_name & ~by_kind)


def device_work(events: pl.LazyFrame) -> pl.LazyFrame:
    """Everything that keeps a device busy: compute, collectives and copies of the lane ``hardware``."""
    return events.filter(_PRIMARY & (_LANE == "hardware") & _KIND.is_in(DEVICE_WORK_KINDS))


def host_work(events: pl.LazyFrame) -> pl.LazyFrame:
    """Operators and runtime calls that are not waits."""
    is_op = (_LANE == "dispatch") & _KIND.is_in(["op", "call"])
    is_call = (_LANE == "runtime") & _KIND.is_in(["call", "memory", "model", *COPY_KINDS])
    return events.filter(_PRIMARY & (is_op | is_call))


def host_waits(events: pl.LazyFrame) -> pl.LazyFrame:
    """Calls that block the host until the device has got somewhere, and operators known to."""
    is_wait = _LANE.is_in(["dispatch", "runtime"]) & (_KIND == "sync")
    is_blocking_op = (_LANE == "dispatch") & (_KIND == "op") & pl.col("name").is_in(BLOCKING_OPS)
    return _either(events, is_wait, is_blocking_op)


def compilations(events: pl.LazyFrame) -> pl.LazyFrame:
    """Host events whose name says that something is compiled for a device: ranges, operators and compilers' frames."""
    host, is_frame, name = _LANE == "dispatch", _KIND == "python", pl.col("name")
    is_compiler = is_frame & name.str.contains(_COMPILER_FRAME)
    return _either(events, host & is_compiler, host & ~is_frame & name.str.contains(_COMPILATION))


def model_loads(events: pl.LazyFrame) -> pl.LazyFrame:
    """Loads of a compiled model onto the device."""
    return events.filter(_PRIMARY & (_KIND == "model") & (pl.col("name") == "model_load"))


def _either(events: pl.LazyFrame, *conditions: pl.Expr) -> pl.LazyFrame:
    """Events for which one of these holds, which exclude one another: a scan skips more for each than for any."""
    return pl.concat([events.filter(_PRIMARY & condition) for condition in conditions])
