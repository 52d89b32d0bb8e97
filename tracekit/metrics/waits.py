"""Where the host blocks, and whether the device had something to do meanwhile."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from tracekit import activity, intervals, stacks
from tracekit.metrics.base import Inputs, Metric, Option, OptionValue
from tracekit.tables import Column, Table

WAITS = Table(
    name="waits",
    doc="Calls that block the host until the device has got somewhere.",
    key=("session", "step", "lane", "name", "thread_id", "op_name"),
    columns=(
        Column("session", pl.String(), "Key of `sessions`."),
        Column("step", pl.Int64(), "Step the wait starts in; null when steps are added up.", nullable=True),
        Column("lane", pl.String(), "dispatch (the framework's threads) or runtime."),
        Column("name", pl.String(), "What waits."),
        Column("thread_id", pl.Int64(), "Thread, by thread.", nullable=True),
        Column("op_name", pl.String(), "Operator around the wait, by op.", nullable=True),
        Column("wait_count", pl.Int64(), "Waits; a wait inside another is part of it."),
        Column("wait_ns", pl.Int64(), "Summed durations.", unit="ns"),
        Column("longest_ns", pl.Int64(), "Longest wait.", unit="ns"),
        Column("device_busy_ns", pl.Int64(), "Part in which a device of the session worked.", unit="ns"),
        Column("device_idle_ns", pl.Int64(), "Part in which none did: the wait hid nothing.", unit="ns"),
    ),
)

_GROUPS = {"name": (), "thread": ("thread_id",), "op": ("op_name",)}


def waits(inputs: Inputs, *, by: str = "name", per_step: bool = False) -> pl.LazyFrame:
    """Add waits up.

    Waits are synchronisation calls of the framework and the runtime, and operators that read a value back
    (``aten::item``) where the session has device work. A wait belongs to the window it starts in.

    Args:
        inputs: uses ``events``, ``scope``.
        by: ``name``; ``thread``: by name and thread; ``op``: by name and the operator around it.
        per_step: keep steps apart.

    Returns:
        ``WAITS``, by session and step, then the most time first; empty without waits.
    """
    work = activity.device_work(inputs.events).select("session", "start_ns", "end_ns")
    rows = intervals.within(_outermost(inputs.events, work), inputs.scope, ["session"])
    rows = intervals.covered(rows, work, ["session"], "device_busy_ns")
    if by == "op":
        rows = stacks.enclosing_op(rows, inputs.events)
    if not per_step:
        rows = rows.with_columns(step=pl.lit(None, dtype=pl.Int64))
    length = pl.col("end_ns") - pl.col("start_ns")
    totals = rows.group_by("session", "step", "lane", "name", *_GROUPS[by]).agg(
        pl.col("device_busy_ns").sum(),
        wait_count=pl.len(),
        wait_ns=length.sum(),
        longest_ns=length.max(),
        device_idle_ns=(length - pl.col("device_busy_ns")).sum(),
    )
    return WAITS.conform(totals).sort(
        "session", "step", "wait_ns", "lane", "name", "thread_id", "op_name",
        descending=[False, False, True, False, False, False, False],
    )  # fmt: skip


def _outermost(events: pl.LazyFrame, work: pl.LazyFrame) -> pl.LazyFrame:
    """Waits that no other wait of their thread encloses; blocking operators only where there is a device."""
    found = activity.host_waits(events)
    is_op = pl.col("kind") == "op"
    blocking = found.filter(is_op).join(work.select("session").unique(), on="session", how="semi")
    thread = ("session", "process_id", "thread_id")
    reached = pl.col("end_ns").cum_max().shift().over(thread)
    return (
        pl.concat([found.filter(~is_op), blocking])
        .sort("start_ns", "end_ns", "event_id", descending=[False, True, False])
        .filter(((pl.col("end_ns") > reached) | (pl.col("start_ns") >= reached)).fill_null(value=True))
    )


def _compute(inputs: Inputs, options: Mapping[str, OptionValue]) -> pl.LazyFrame:
    return waits(inputs, by=str(options.get("by") or "name"), per_step=options.get("per") == "step")


METRIC = Metric(
    name="waits",
    doc="Where the host blocks, for how long, and whether the device was busy meanwhile.",
    table=WAITS,
    compute=_compute,
    options=(
        Option("by", "Group by name alone, or also by thread or by the operator around it.", "name", tuple(_GROUPS)),
        Option("per", "Add up over all, or per step.", "overall", ("overall", "step")),
    ),
    sort_by=("wait_ns",),
)
