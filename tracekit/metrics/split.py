"""Who was working when: the device, the host, both or neither."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from tracekit import activity, intervals
from tracekit.metrics.base import Inputs, Metric, Option, OptionValue
from tracekit.tables import Column, Table

TIMES = (
    "window_ns",
    "device_only_ns",
    "host_only_ns",
    "both_ns",
    "neither_ns",
    "compute_ns",
    "collective_ns",
    "copy_ns",
    "exposed_collective_ns",
    "exposed_copy_ns",
)
BOUNDS = ("host", "device")

SPLIT = Table(
    name="split",
    doc="The four exclusive parts of the measured time, and what communication no execution hides.",
    key=("session", "step", "core_index"),
    columns=(
        Column("session", pl.String(), "Key of `sessions`."),
        Column("step", pl.Int64(), "Step; null when steps are added up.", nullable=True),
        Column("core_index", pl.Int32(), "Logical core or GPU; null when cores are taken together.", True),
        Column("rank", pl.Int32(), "Rank in the distributed job.", nullable=True),
        Column("window_ns", pl.Int64(), "Measured time: the sum of the four parts that follow.", unit="ns"),
        Column("device_only_ns", pl.Int64(), "The device works, the host does not.", unit="ns"),
        Column("host_only_ns", pl.Int64(), "The host works, the device does not.", unit="ns"),
        Column("both_ns", pl.Int64(), "Both work.", unit="ns"),
        Column("neither_ns", pl.Int64(), "Neither works.", unit="ns"),
        Column("compute_ns", pl.Int64(), "Executions (and memsets) run.", unit="ns"),
        Column("collective_ns", pl.Int64(), "Collectives run.", unit="ns"),
        Column("copy_ns", pl.Int64(), "Copies run.", unit="ns"),
        Column("exposed_collective_ns", pl.Int64(), "Collectives run and no execution does.", unit="ns"),
        Column("exposed_copy_ns", pl.Int64(), "Copies run and neither executions nor collectives do.", unit="ns"),
        Column(
            "bound",
            pl.String(),
            "host: the device is idle for longer than it works alone; device: the other way round; "
            "null without device work.",
            nullable=True,
            values=BOUNDS,
        ),
        Column(
            "bound_ratio",
            pl.Float64(),
            "By how much: |device idle - device alone| as a share of the measured time.",
            unit="ratio",
            nullable=True,
        ),
    ),
)

_UNIT = ("session", "core_index")


def split(inputs: Inputs, *, per_step: bool = False, per_core: bool = False) -> pl.LazyFrame:
    """Split the measured time of each session.

    The device works while an execution, a memset, a collective or a device's own copy runs; the host works
    while any operator or runtime call that is not a wait does. Copies that the runtime describes
    (Neuron) are host work, and count as copies. Times are those inside the windows of the scope.

    Args:
        inputs: uses ``events``, ``sessions``, ``scope``.
        per_step: one row per window instead of one per session.
        per_core: one row per core instead of the union of a session's cores.

    Returns:
        ``SPLIT``, by session, step and core; a session without device work has one row, its core null.
    """
    events = inputs.events
    copies = activity.copies(events)
    on_device = pl.col("lane") == "hardware"
    layers = {
        "compute": _spans(activity.compute(events), inputs, per_core=per_core),
        "collective": _spans(activity.collectives(events), inputs, per_core=per_core),
        "device_copy": _spans(copies.filter(on_device), inputs, per_core=per_core),
        "host_copy": _spans(copies.filter(~on_device), inputs, per_core=per_core, is_shared=True),
        "host": _spans(activity.host_work(events), inputs, per_core=per_core, is_shared=True),
    }
    windows = inputs.scope.join(_units(inputs, per_core=per_core), on="session").with_columns(
        window_ns=pl.col("end_ns") - pl.col("start_ns")
    )
    measured = intervals.measure(windows, layers, _UNIT, _conditions())
    if not per_step:
        measured = measured.with_columns(step=pl.lit(None, dtype=pl.Int64))
    rank = inputs.sessions.select("session", "rank")
    totals = measured.group_by("session", "step", "core_index").agg(pl.col(TIMES).sum())
    return _with_bound(totals.join(rank, on="session", how="left")).select(SPLIT.names).sort(SPLIT.key)


def _units(inputs: Inputs, *, per_core: bool) -> pl.LazyFrame:
    """The rows of the result: every session, once per core that has device work."""
    sessions = inputs.scope.select("session").unique()
    if not per_core:
        return sessions.with_columns(core_index=pl.lit(None, dtype=pl.Int32))
    cores = activity.device_work(inputs.events).select("session", "core_index").unique()
    return sessions.join(cores, on="session", how="left")


def _spans(events: pl.LazyFrame, inputs: Inputs, *, per_core: bool, is_shared: bool = False) -> pl.LazyFrame:
    """Disjoint intervals per row of the result; shared ones belong to every core of their session."""
    if not per_core:
        together = events.select("session", "start_ns", "end_ns", core_index=pl.lit(None, dtype=pl.Int32))
        return intervals.union(together, _UNIT)
    if not is_shared:
        return intervals.union(events, _UNIT)
    units = _units(inputs, per_core=True)
    return intervals.union(events, ["session"]).join(units, on="session").select(*_UNIT, "start_ns", "end_ns")


def _conditions() -> dict[str, pl.Expr]:
    """When each time of the result is running, by the layers."""
    compute, collective, host = pl.col("compute"), pl.col("collective"), pl.col("host")
    copies = pl.col("device_copy") | pl.col("host_copy")
    device = compute | collective | pl.col("device_copy")
    return {
        "device_only_ns": device & ~host,
        "host_only_ns": host & ~device,
        "both_ns": device & host,
        "neither_ns": ~device & ~host,
        "compute_ns": compute,
        "collective_ns": collective,
        "copy_ns": copies,
        "exposed_collective_ns": collective & ~compute,
        "exposed_copy_ns": copies & ~compute & ~collective,
    }


def _with_bound(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Say who holds the other up: an idle device waits for the host, a device alone keeps it waiting."""
    idle = pl.col("host_only_ns") + pl.col("neither_ns")
    alone = pl.col("device_only_ns")
    has_device = (alone + pl.col("both_ns")) > 0
    ratio = (idle - alone).abs() / pl.col("window_ns")
    return rows.with_columns(
        bound=pl.when(has_device).then(pl.when(idle > alone).then(pl.lit("host")).otherwise(pl.lit("device"))),
        bound_ratio=pl.when(has_device).then(ratio),
    )


def _compute(inputs: Inputs, options: Mapping[str, OptionValue]) -> pl.LazyFrame:
    return split(inputs, per_step=options.get("per") == "step", per_core=options.get("by") == "core")


METRIC = Metric(
    name="split",
    doc="Device-only, host-only, both or neither: is this host-bound or device-bound?",
    table=SPLIT,
    compute=_compute,
    options=(
        Option("by", "Take a session's cores together, or apart.", "session", ("session", "core")),
        Option("per", "Add up over all, or per step.", "overall", ("overall", "step")),
    ),
    screen=(
        "session",
        "step",
        "core_index",
        "bound",
        "bound_ratio",
        *TIMES,
        "rank",
    ),
)
