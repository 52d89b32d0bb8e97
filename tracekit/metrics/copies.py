"""Transfers between host and device: how much, how fast, and which are too small to be worth it."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from tracekit import activity, intervals, stacks
from tracekit.metrics.base import Inputs, Metric, Option, OptionValue
from tracekit.tables import Column, Table

SCALAR_BYTES = 16
"""Up to here a copy moves a scalar: its cost is latency alone."""
SMALL_BYTES = 4096
"""Up to here a copy counts as small."""

COPIES = Table(
    name="copies",
    doc="Transfers, each counted once however many calls describe it.",
    key=("session", "step", "direction", "group"),
    columns=(
        Column("session", pl.String(), "Key of `sessions`."),
        Column("step", pl.Int64(), "Step the transfer starts in; null when steps are added up.", nullable=True),
        Column("direction", pl.String(), "copy_in (to the device), copy_out or copy.", values=activity.COPY_KINDS),
        Column("group", pl.String(), "Value of what `by` names; null by direction.", nullable=True),
        Column("copy_count", pl.Int64(), "Transfers."),
        Column("moved_bytes", pl.Int64(), "Bytes; null if no transfer says.", nullable=True, unit="B"),
        Column("copy_ns", pl.Int64(), "Summed durations.", unit="ns"),
        Column("longest_ns", pl.Int64(), "Longest transfer.", unit="ns"),
        Column(
            "bytes_per_second",
            pl.Float64(),
            "Bytes over the durations of the transfers that say how many.",
            nullable=True,
            unit="B/s",
        ),
        Column("small_count", pl.Int64(), f"Transfers of at most {SMALL_BYTES} bytes."),
        Column("scalar_count", pl.Int64(), f"Transfers of at most {SCALAR_BYTES} bytes."),
        Column("scalar_ns", pl.Int64(), "Summed durations of those.", unit="ns"),
        Column("scalar_step_count", pl.Int64(), "Measured steps (or windows) with such a transfer."),
        Column(
            "is_repeated_scalar",
            pl.Boolean(),
            "Host↔device, in every measured step, of which there are several: a value that could stay on the device.",
        ),
    ),
)

_TRACK = ("session", "kind", "thread_id")


def transfers(events: pl.LazyFrame) -> pl.LazyFrame:
    """Keep one row per transfer.

    A runtime describes one transfer by the call and by the buffer copy below it. A copy that lies inside
    another of the same thread and direction is part of it; so is a buffer copy (``dmem_buf_*``) of another
    thread inside a call that moves as many bytes. A call that does not say how much it moves has the
    sum of its buffer copies. Device activity is never merged: streams overlap.

    Args:
        events: ``tables.EVENTS``.

    Returns:
        The columns of ``events``, in no particular order.
    """
    found = activity.copies(events)
    on_host = found.filter(pl.col("lane") == "runtime").sort(
        "start_ns", "end_ns", "event_id", descending=[False, True, False]
    )
    is_buffer = pl.col("name").str.starts_with("dmem_buf")
    end = pl.col("end_ns")
    reached = end.cum_max().shift().over(_TRACK)
    inside_thread = ((end <= reached) & (pl.col("start_ns") < reached)).fill_null(value=False)
    call_end = pl.when(~is_buffer).then(end).cum_max().forward_fill().shift().over("session", "kind", "moved_bytes")
    has_bytes = pl.col("moved_bytes").is_not_null()
    inside_call = is_buffer & has_bytes & ((end <= call_end) & (pl.col("start_ns") < call_end)).fill_null(value=False)
    marked = on_host.with_columns(_inside=inside_thread, _is_part=inside_thread | inside_call)
    owner = (~pl.col("_inside")).cum_sum().over(_TRACK)
    below = pl.col("moved_bytes").filter(pl.col("_inside") & is_buffer)
    known = marked.with_columns(_owner=owner).with_columns(
        moved_bytes=pl.coalesce(
            "moved_bytes", pl.when(below.count().over(*_TRACK, "_owner") > 0).then(below.sum().over(*_TRACK, "_owner"))
        )
    )
    whole = known.filter(~pl.col("_is_part")).drop("_inside", "_is_part", "_owner")
    return pl.concat([found.filter(pl.col("lane") == "hardware"), whole])


def copies(inputs: Inputs, *, by: str = "direction", per_step: bool = False) -> pl.LazyFrame:
    """Add transfers up.

    A transfer belongs to the window it starts in, with all its time.

    Args:
        inputs: uses ``events``, ``chains``, ``scope``.
        by: ``direction``; ``size``: by direction and bytes; ``op``: by direction and the operator that
            copies; ``name``: by direction and the call's name.
        per_step: keep steps apart.

    Returns:
        ``COPIES``, by session, step and direction, then the most time first; empty without transfers.
    """
    rows = intervals.within(
        transfers(inputs.events), inputs.scope.with_columns(_window_start_ns="start_ns"), ["session"]
    )
    rows = _labelled(rows, inputs, by)
    if not per_step:
        rows = rows.with_columns(step=pl.lit(None, dtype=pl.Int64))
    place = ("session", "step", "direction", "group")
    window_count = inputs.scope.group_by("session").agg(_windows=pl.len())
    totals = rows.group_by(place).agg(_totals()).join(window_count, on="session", how="left")
    in_each = (pl.col("scalar_step_count") == pl.col("_windows")) & (pl.col("_windows") > 1)
    crosses = pl.col("direction") != "copy"
    return COPIES.conform(totals.with_columns(is_repeated_scalar=in_each & crosses)).sort(
        *place[:3], "copy_ns", "group", descending=[False, False, False, True, False]
    )


def _labelled(rows: pl.LazyFrame, inputs: Inputs, by: str) -> pl.LazyFrame:
    rows = rows.with_columns(direction="kind")
    if by == "op":
        launched = inputs.chains.select(_launched_by="name", event_id="hardware_ids").explode("event_id")
        named = stacks.enclosing_op(rows, inputs.events, "_enclosing").join(launched, on="event_id", how="left")
        return named.with_columns(group=pl.coalesce("_launched_by", "_enclosing"))
    labels = {"size": pl.format("{} B", "moved_bytes"), "name": pl.col("name")}
    return rows.with_columns(group=labels.get(by, pl.lit(None, dtype=pl.String)))


def _totals() -> list[pl.Expr]:
    moved, length = pl.col("moved_bytes"), pl.col("end_ns") - pl.col("start_ns")
    is_known, is_scalar = moved.is_not_null(), moved <= SCALAR_BYTES
    seconds = length.filter(is_known).sum() / 1e9
    return [
        pl.len().cast(pl.Int64).alias("copy_count"),
        pl.when(is_known.any()).then(moved.sum()).alias("moved_bytes"),
        length.sum().alias("copy_ns"),
        length.max().alias("longest_ns"),
        pl.when(seconds > 0).then(moved.sum() / seconds).alias("bytes_per_second"),
        (moved <= SMALL_BYTES).sum().cast(pl.Int64).alias("small_count"),
        is_scalar.sum().cast(pl.Int64).alias("scalar_count"),
        length.filter(is_scalar).sum().alias("scalar_ns"),
        pl.col("_window_start_ns").filter(is_scalar).n_unique().cast(pl.Int64).alias("scalar_step_count"),
    ]


def _compute(inputs: Inputs, options: Mapping[str, OptionValue]) -> pl.LazyFrame:
    return copies(inputs, by=str(options.get("by") or "direction"), per_step=options.get("per") == "step")


METRIC = Metric(
    name="copies",
    doc="Transfers between host and device: bytes, bandwidth, small ones.",
    table=COPIES,
    compute=_compute,
    options=(
        Option("by", "How to group.", "direction", ("direction", "size", "op", "name")),
        Option("per", "Add up over all, or per step.", "overall", ("overall", "step")),
    ),
    sort_by=("copy_ns",),
)
