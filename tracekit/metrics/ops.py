"""Statistics of operators: how often, how long on the host and on the device, and what they launched."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from tracekit import calls, intervals
from tracekit.metrics.base import Inputs, Metric, Option, OptionValue
from tracekit.tables import Column, Table

OPS = Table(
    name="ops",
    doc="Operators and ranges by name, with host and device time; launched work that no operator is known for.",
    key=("session", "step", "kind", "name", "overload", "shapes", "inside"),
    columns=(
        Column("session", pl.String(), "Key of `sessions`."),
        Column("step", pl.Int64(), "Step the call starts in; null when steps are added up.", nullable=True),
        Column("name", pl.String(), "Operator, range, or the device's own name for work without an operator."),
        Column(
            "kind",
            pl.String(),
            "op, annotation, or the kind of device work; with `rules=torch` host, annotation, device or "
            "device_annotation.",
        ),
        Column("overload", pl.String(), "Overload name, by overload, where the capture recorded it.", nullable=True),
        Column("shapes", pl.String(), "Input shapes, by shapes; a list of tensors is one `[]`.", nullable=True),
        Column("inside", pl.String(), "Innermost range, module or Python frame around it, by these.", nullable=True),
        Column("call_count", pl.Int64(), "Calls; for work without an operator, executions."),
        Column("self_cpu_ns", pl.Int64(), "Host time without that of direct children.", unit="ns"),
        Column("total_cpu_ns", pl.Int64(), "Host time; calls inside calls of the same name count again.", unit="ns"),
        Column("self_device_ns", pl.Int64(), "Device time of what the operator launched itself.", unit="ns"),
        Column("total_device_ns", pl.Int64(), "The same with its descendants.", unit="ns"),
        Column("execution_count", pl.Int64(), "Executions that the operator launched itself."),
        Column("executions_per_call", pl.Float64(), "Executions per call."),
        Column("self_cpu_ratio", pl.Float64(), "Share of all self host time of the session and step.", True, "ratio"),
        Column("self_device_ratio", pl.Float64(), "Share of all self device time, likewise.", True, "ratio"),
        Column("mean_cpu_ns", pl.Float64(), "Host time per call: mean.", unit="ns"),
        Column("p50_cpu_ns", pl.Float64(), "Host time per call: median.", unit="ns"),
        Column("p95_cpu_ns", pl.Float64(), "Host time per call: 95th percentile.", unit="ns"),
        Column("max_cpu_ns", pl.Int64(), "Host time per call: longest.", unit="ns"),
        Column("mean_device_ns", pl.Float64(), "Device time per call, descendants included: mean.", unit="ns"),
        Column("max_device_ns", pl.Int64(), "Device time per call, descendants included: most.", unit="ns"),
    ),
)

_NAME, _KIND = pl.col("name").cast(pl.String), pl.col("kind")
_BY = ("name", "shapes", "overload", "annotation", "module", "frame")
_FOREIGN_FRAME = r"^<|^torch/|^nn\.Module: |^threading\.py|^runpy\.py|^contextlib\.py|/site-packages/"
_AROUND: dict[str, pl.Expr] = {
    "annotation": (_KIND == "annotation") & (_NAME != "ProfilerStep*"),
    "module": (_KIND == "python") & _NAME.str.starts_with("nn.Module: "),
    "frame": (_KIND == "python") & ~_NAME.str.contains(_FOREIGN_FRAME),
}
_SHOWN = ("op", "annotation", "execution", "collective", "copy_in", "copy_out", "copy", "memory")
_TIMES = ("self_cpu_ns", "total_cpu_ns", "self_device_ns", "total_device_ns", "execution_count")


def ops(inputs: Inputs, *, by: str = "name", rules: str = "own", per_step: bool = False) -> pl.LazyFrame:
    """Add operators up.

    A call counts in the window it starts in, with its whole length. With ``rules="torch"`` every number is the
    one that ``key_averages()`` of torch 2.13 gives; Python frames, runtime calls and device events are rows too,
    and an operator whose only child is its launch of the same name has no device time. With ``rules="own"``
    the device time of an operator is that of its chains.

    Args:
        inputs: uses ``events``, ``chains``, ``scope``.
        by: ``name``; or by name and ``shapes``, ``overload``, innermost ``annotation``, ``module`` or ``frame`` (the
            innermost line of Python outside PyTorch) around the call.
        rules: ``own`` or ``torch``.
        per_step: keep steps apart.

    Returns:
        ``OPS``, by session and step, then the most self device time and self host time first.
    """
    around, with_shapes = _AROUND.get(by), by == "shapes"
    if rules == "torch":
        found = calls.torch(inputs.events, inside=around, with_shapes=with_shapes)
    else:
        found = calls.own(inputs.events, inputs.chains, inside=around, with_shapes=with_shapes)
        found = found.filter(_KIND.is_in(_SHOWN))
    scope = inputs.scope.select(pl.col("session").cast(calls.CALLS["session"]), "step", "start_ns", "end_ns")
    placed = intervals.within(found, scope, ["session"])
    placed = placed.with_columns(
        step=pl.col("step") if per_step else pl.lit(None, dtype=pl.Int64),
        overload=pl.col("overload") if by == "overload" else pl.lit(None, dtype=pl.String),
    )
    return OPS.conform(_added_up(placed)).sort(
        "session",
        "step",
        "self_device_ns",
        "self_cpu_ns",
        *OPS.key[2:],
        descending=[False, False, True, True, *[False] * 5],
    )


def _added_up(placed: pl.LazyFrame) -> pl.LazyFrame:
    cpu, device = pl.col("total_cpu_ns"), pl.col("total_device_ns")
    summed = placed.group_by(*OPS.key).agg(
        pl.col(_TIMES).sum(),
        call_count=pl.len().cast(pl.Int64),
        mean_cpu_ns=_mean(cpu),
        p50_cpu_ns=cpu.median(),
        p95_cpu_ns=cpu.quantile(0.95, "linear"),
        max_cpu_ns=cpu.max(),
        mean_device_ns=_mean(device),
        max_device_ns=device.max(),
    )
    return summed.with_columns(
        executions_per_call=pl.col("execution_count") / pl.col("call_count"),
        self_cpu_ratio=_share("self_cpu_ns"),
        self_device_ratio=_share("self_device_ns"),
    )


def _mean(values: pl.Expr) -> pl.Expr:
    """Mean from the exact sum: that of polars differs in its last digit with the order of the rows."""
    return pl.when(values.count() > 0).then(values.sum() / values.count())


def _share(column: str) -> pl.Expr:
    """Part of the sum over the session and step; ranges projected on the device describe other rows' work."""
    own = pl.when(_KIND != "device_annotation").then(pl.col(column))
    everything = own.sum().over("session", "step")
    return pl.when(everything > 0).then(own / everything)


def _compute(inputs: Inputs, options: Mapping[str, OptionValue]) -> pl.LazyFrame:
    return ops(
        inputs,
        by=str(options.get("by") or "name"),
        rules=str(options.get("rules") or "own"),
        per_step=options.get("per") == "step",
    )


METRIC = Metric(
    name="ops",
    doc="Operators: calls, host and device time, executions they launched.",
    table=OPS,
    compute=_compute,
    options=(
        Option("by", "By name alone, or also by one other thing.", "name", _BY),
        Option(
            "rules", "tracekit's own definitions, or exactly those of torch's key_averages().", "own", ("own", "torch")
        ),
        Option("per", "Add up over all, or per step.", "overall", ("overall", "step")),
    ),
    sort_by=("self_device_ns", "self_cpu_ns"),
)
