"""What the device spent its time on."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from tracekit import intervals
from tracekit.metrics.base import Inputs, Metric, Option, OptionValue
from tracekit.tables import Column, Table

WORK = Table(
    name="work",
    doc="Device work by name: kernels, copies, and executions under the operator that launched them.",
    key=("session", "kind", "name"),
    columns=(
        Column("session", pl.String(), "Key of `sessions`."),
        Column("name", pl.String(), "Kernel, copy, or (for Neuron executions) the operator that launched it."),
        Column("kind", pl.String(), "execution, collective, copy_in, copy_out, copy or memory."),
        Column("execution_count", pl.Int64(), "Executions; several physical cores count once."),
        Column("device_ns", pl.Int64(), "Summed device time, physical cores merged.", unit="ns"),
        Column("share_ratio", pl.Float64(), "Of the session's summed device time.", nullable=True, unit="ratio"),
        Column("mean_ns", pl.Int64(), "Device time per execution, rounded down.", unit="ns"),
        Column("max_ns", pl.Int64(), "Longest execution.", unit="ns"),
    ),
)


def work(chains: pl.LazyFrame, scope: pl.LazyFrame, *, by: str = "name") -> pl.LazyFrame:
    """Sum device time by name, for the executions that start inside the windows.

    Args:
        chains: ``tables.CHAINS``.
        scope: ``metrics.base.SCOPE``.
        by: ``name``: the kernel's own name, or the operator where the device names none; ``op``: always
            the operator.

    Returns:
        ``WORK``, by session, most device time first; empty without device work.
    """
    ran = chains.filter(pl.col("hardware_start_ns").is_not_null())
    telling = pl.when(pl.col("execution_name") != "nc_exec_running").then("execution_name")
    shown = pl.col("name") if by == "op" else pl.coalesce(telling, "name")
    rows = intervals.within(
        ran.select("session", "kind", "device_ns", start_ns="hardware_start_ns", name=shown),
        scope.select("session", "start_ns", "end_ns"),
        ["session"],
    )
    summed = rows.group_by("session", "kind", "name").agg(
        execution_count=pl.len().cast(pl.Int64),
        max_ns=pl.col("device_ns").max(),
        device_ns=pl.col("device_ns").sum(),
    )
    everything = pl.col("device_ns").sum().over("session")
    share = pl.when(everything > 0).then(pl.col("device_ns") / everything)
    ranked = summed.with_columns(share_ratio=share, mean_ns=pl.col("device_ns") // pl.col("execution_count"))
    return WORK.conform(ranked).sort("session", "device_ns", "name", "kind", descending=[False, True, False, False])


def _compute(inputs: Inputs, options: Mapping[str, OptionValue]) -> pl.LazyFrame:
    return work(inputs.chains, inputs.scope, by=str(options["by"]))


METRIC = Metric(
    "work",
    "What the device spent its time on, by name.",
    WORK,
    _compute,
    options=(Option("by", "By kernel name, or by the operator that launched it.", "name", ("name", "op")),),
)
