"""Busy and idle time of each device."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from tracekit import activity, intervals
from tracekit.metrics.base import Inputs, Metric, Option, OptionValue
from tracekit.tables import Column, Table

DEVICES = Table(
    name="devices",
    doc="Busy and idle time of each logical core (or GPU), with its physical cores and streams merged.",
    key=("session", "step", "core_index"),
    columns=(
        Column("session", pl.String(), "Key of `sessions`."),
        Column("step", pl.Int64(), "Step, with `per=step`.", nullable=True),
        Column("core_index", pl.Int32(), "Logical core (or GPU) index.", nullable=True),
        Column("source", pl.String(), "Format that the hardware events came from."),
        Column(
            "window_ns", pl.Int64(), "Measured time: the steps, else first start to last end of its work.", unit="ns"
        ),
        Column("busy_ns", pl.Int64(), "Length of the union of its work.", unit="ns"),
        Column("idle_ns", pl.Int64(), "window − busy.", unit="ns"),
        Column("busy_ratio", pl.Float64(), "busy / window.", unit="ratio", nullable=True),
        Column("summed_ns", pl.Int64(), "Plain sum of durations: above busy where work overlaps.", unit="ns"),
        Column("event_count", pl.Int64(), "Hardware events, one per physical core."),
    ),
)


def devices(events: pl.LazyFrame, scope: pl.LazyFrame, *, per_step: bool = False) -> pl.LazyFrame:
    """Measure busy and idle time of each device inside the windows.

    A window without a step number covers a whole session: then a device is measured from its first
    start to its last end. Work that crosses the edge of a window counts inside it only.

    Args:
        events: ``tables.EVENTS``.
        scope: ``metrics.base.SCOPE``.
        per_step: one row per step instead of one per device.

    Returns:
        ``DEVICES``, sorted by its key; empty without device work.
    """
    work = activity.device_work(events).select("session", "core_index", "source", "start_ns", "end_ns")
    device = ["session", "core_index"]
    windows = scope.with_columns(_window_ns=pl.col("end_ns") - pl.col("start_ns"))
    clipped = intervals.clip(work, windows, ["session"])
    per_window = ["session", "core_index", "step"]
    extent = pl.col("end_ns").max() - pl.col("start_ns").min()
    measured = clipped.group_by(per_window).agg(
        pl.col("source").first(),
        window_ns=pl.when(pl.col("step").first().is_null()).then(extent).otherwise(pl.col("_window_ns").first()),
        summed_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
        event_count=pl.len().cast(pl.Int64),
    )
    busy = intervals.length(clipped, per_window).rename({"length_ns": "busy_ns"})
    rows = _with_idle_windows(measured, windows, device).join(busy, on=per_window, how="left", nulls_equal=True)
    group = per_window if per_step else device
    total = rows.group_by(group).agg(
        pl.col("source").drop_nulls().first(), pl.col("window_ns", "busy_ns", "summed_ns", "event_count").sum()
    )
    step = pl.col("step") if per_step else pl.lit(None, dtype=pl.Int64).alias("step")
    idle = pl.col("window_ns") - pl.col("busy_ns")
    share = pl.when(pl.col("window_ns") > 0).then(pl.col("busy_ns") / pl.col("window_ns"))
    return DEVICES.conform(total.with_columns(step, idle_ns=idle, busy_ratio=share)).sort(DEVICES.key)


def _with_idle_windows(measured: pl.LazyFrame, windows: pl.LazyFrame, device: list[str]) -> pl.LazyFrame:
    """Add the steps in which a device that works elsewhere in the scope did nothing."""
    steps = windows.filter(pl.col("step").is_not_null()).select("session", "step", window_ns="_window_ns")
    idle = measured.select(device).unique().join(steps, on="session")
    missing = idle.join(measured, on=[*device, "step"], how="anti", nulls_equal=True)
    source = pl.col("source").drop_nulls().first().over(device)
    return pl.concat([measured, missing], how="diagonal").with_columns(source)


def _compute(inputs: Inputs, options: Mapping[str, OptionValue]) -> pl.LazyFrame:
    return devices(inputs.events, inputs.scope, per_step=options["per"] == "step")


METRIC = Metric(
    "devices",
    "Busy and idle time of each device.",
    DEVICES,
    _compute,
    options=(Option("per", "One row per device over all, or per step.", "overall", ("overall", "step")),),
)
