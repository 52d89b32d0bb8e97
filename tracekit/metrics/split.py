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
            "By how much: |device idle - device alone| as a share of the measured time, 0..1.",
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
    layers = {
        "compute": _spans(activity.compute(events), inputs, per_core=per_core),
        "collective": _spans(activity.collectives(events), inputs, per_core=per_core),
        "copy": _spans(activity.copies(events), inputs, per_core=per_core, shared_lane="runtime"),
        "device": _spans(activity.device_work(events), inputs, per_core=per_core),
        "host": _spans(activity.host_work(events), inputs, per_core=per_core, shared_lane="*"),
    }
    windows = inputs.scope.join(_units(inputs, per_core=per_core), on="session").with_columns(
        window_ns=pl.col("end_ns") - pl.col("start_ns")
    )
    measured = _parts(_measured(windows, layers))
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


def _spans(events: pl.LazyFrame, inputs: Inputs, *, per_core: bool, shared_lane: str = "") -> pl.LazyFrame:
    """Disjoint intervals per row of the result; events of ``shared_lane`` belong to each core of a session."""
    spans = events.select("session", "core_index", "lane", "start_ns", "end_ns")
    columns = (*_UNIT, "start_ns", "end_ns")
    if not per_core:
        return intervals.union(spans.with_columns(core_index=pl.lit(None, dtype=pl.Int32)), _UNIT)
    is_shared = pl.lit(value=True) if shared_lane == "*" else pl.col("lane") == shared_lane
    shared = intervals.union(spans.filter(is_shared), ["session"]).join(_units(inputs, per_core=True), on="session")
    return intervals.union(pl.concat([spans.filter(~is_shared).select(columns), shared.select(columns)]), _UNIT)


def _measured(windows: pl.LazyFrame, layers: Mapping[str, pl.LazyFrame]) -> pl.LazyFrame:
    """Add to each window how much of it each layer, and each needed union of layers, covers."""
    together = {
        "_compute": ("compute",),
        "_collective": ("collective",),
        "_copy": ("copy",),
        "_device": ("device",),
        "_host": ("host",),
        "_any": ("device", "host"),
        "_hiding": ("compute", "collective"),
        "_all": ("compute", "collective", "copy"),
    }
    for name, parts in together.items():
        windows = intervals.covered(windows, pl.concat([layers[part] for part in parts]), _UNIT, name)
    return windows


def _parts(rows: pl.LazyFrame) -> pl.LazyFrame:
    device, host, either = pl.col("_device"), pl.col("_host"), pl.col("_any")
    return rows.with_columns(
        device_only_ns=either - host,
        host_only_ns=either - device,
        both_ns=device + host - either,
        neither_ns=pl.col("window_ns") - either,
        compute_ns="_compute",
        collective_ns="_collective",
        copy_ns="_copy",
        exposed_collective_ns=pl.col("_hiding") - pl.col("_compute"),
        exposed_copy_ns=pl.col("_all") - pl.col("_hiding"),
    )


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
)
