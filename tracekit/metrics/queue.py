"""How far the host runs ahead: work submitted and not finished, and how long it waits to start."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from tracekit import intervals
from tracekit.metrics.base import Inputs, Metric, Option, OptionValue
from tracekit.tables import Column, Table

QUEUE = Table(
    name="queue",
    doc="Executions submitted and not finished, and the delay from submit to start.",
    key=("session", "step", "core_index", "name", "start_ns"),
    columns=(
        Column("session", pl.String(), "Key of `sessions`."),
        Column("step", pl.Int64(), "Step of the submit; null when steps are added up.", nullable=True),
        Column("core_index", pl.Int32(), "Logical core or GPU.", nullable=True),
        Column("name", pl.String(), "Operator, by op.", nullable=True),
        Column("start_ns", pl.Int64(), "Over time: since when this many were outstanding.", True, "ns"),
        Column("end_ns", pl.Int64(), "Over time: until when.", True, "ns"),
        Column("submit_count", pl.Int64(), "Submits (in a row over time: those at its start)."),
        Column("unfinished_count", pl.Int64(), "Of these, without an execution in the capture."),
        Column("early_count", pl.Int64(), "Of these, started before their submit: clocks disagree."),
        Column("delay_p50_ns", pl.Int64(), "Median time from submit to start.", True, "ns"),
        Column("delay_p95_ns", pl.Int64(), "95th percentile of it.", True, "ns"),
        Column("delay_max_ns", pl.Int64(), "Longest.", True, "ns"),
        Column("delay_ns", pl.Int64(), "Sum of all.", unit="ns"),
        Column("outstanding_max", pl.Int64(), "Most submitted and not finished at once.", nullable=True),
        Column("outstanding_mean", pl.Float64(), "Mean over the measured time; null by op.", nullable=True),
    ),
)

CORE = ("session", "core_index")


def delays(inputs: Inputs, *, by: str = "core", per_step: bool = False) -> pl.LazyFrame:
    """Describe the delay from submit to start, and how much was outstanding.

    A submit belongs to the window it starts in; of an execution without a known submit nothing is said.

    Args:
        inputs: uses ``chains``, ``scope``.
        by: ``core``, or ``op``: by core and operator, then without the outstanding counts.
        per_step: keep steps apart.

    Returns:
        ``QUEUE``, by session, step and core, then the most delay first; empty without submits.
    """
    submitted = _submitted(inputs.chains)
    rows = intervals.within(submitted, inputs.scope, ["session"])
    if by != "op":
        rows = rows.with_columns(name=pl.lit(None, dtype=pl.String))
    if not per_step:
        rows = rows.with_columns(step=pl.lit(None, dtype=pl.Int64))
    place = ("session", "step", "core_index")
    totals = rows.group_by(*place, "name").agg(_totals())
    if by != "op":
        totals = totals.join(_outstanding(inputs, per_step=per_step), on=list(place), how="left", nulls_equal=True)
    return QUEUE.conform(totals).sort(*place, "delay_ns", "name", descending=[False, False, False, True, False])


def over_time(inputs: Inputs) -> pl.LazyFrame:
    """How many executions were submitted and not finished, over time.

    Args:
        inputs: uses ``chains``, ``scope``.

    Returns:
        ``QUEUE``, one row per time of constant count and window, by session, core and start; the delays
        are null.
    """
    rows = intervals.clip(_levels(_submitted(inputs.chains)), inputs.scope, ["session"])
    shown = rows.with_columns(
        outstanding_max="_level",
        outstanding_mean=pl.col("_level").cast(pl.Float64),
        submit_count=pl.when(pl.col("start_ns") == pl.col("_since")).then("_submits").otherwise(0),
        unfinished_count=pl.lit(0),
        early_count=pl.lit(0),
        delay_ns=pl.lit(0),
    )
    return QUEUE.conform(shown).sort(*CORE, "start_ns")


def _submitted(chains: pl.LazyFrame) -> pl.LazyFrame:
    """Submits as intervals up to the end of their execution; ``end_ns`` is null where it has none."""
    return chains.filter(pl.col("submit_ns").is_not_null()).select(
        *CORE, "name", "hardware_start_ns", start_ns="submit_ns", end_ns="hardware_end_ns"
    )


def _totals() -> list[pl.Expr]:
    delay = pl.col("hardware_start_ns") - pl.col("start_ns")
    return [
        pl.len().cast(pl.Int64).alias("submit_count"),
        pl.col("hardware_start_ns").null_count().cast(pl.Int64).alias("unfinished_count"),
        (delay < 0).sum().cast(pl.Int64).alias("early_count"),
        delay.quantile(0.5, interpolation="nearest").cast(pl.Int64).alias("delay_p50_ns"),
        delay.quantile(0.95, interpolation="nearest").cast(pl.Int64).alias("delay_p95_ns"),
        delay.max().alias("delay_max_ns"),
        delay.sum().alias("delay_ns"),
    ]


def _levels(submitted: pl.LazyFrame) -> pl.LazyFrame:
    """Pieces of time with a constant number of outstanding executions, from the first submit to the last end."""
    lasting = submitted.filter(pl.col("end_ns") > pl.col("start_ns"))
    up = lasting.select(*CORE, _at="start_ns", _change=pl.lit(1, dtype=pl.Int64))
    down = lasting.select(*CORE, _at="end_ns", _change=pl.lit(-1, dtype=pl.Int64))
    return (
        pl.concat([up, down])
        .group_by(*CORE, "_at")
        .agg(_submits=(pl.col("_change") > 0).sum().cast(pl.Int64), _change=pl.col("_change").sum())
        .sort("_at")
        .with_columns(_level=pl.col("_change").cum_sum().over(CORE), end_ns=pl.col("_at").shift(-1).over(CORE))
        .filter(pl.col("end_ns").is_not_null())
        .select(*CORE, "_level", "_submits", "end_ns", start_ns="_at", _since="_at")
    )


def _outstanding(inputs: Inputs, *, per_step: bool) -> pl.LazyFrame:
    """Most and mean outstanding executions per core; time before the first submit counts as none."""
    step = pl.col("step") if per_step else pl.lit(None, dtype=pl.Int64).alias("step")
    measured = (
        inputs.scope.with_columns(step)
        .group_by("session", "step")
        .agg(_measured_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    )
    length = pl.col("end_ns") - pl.col("start_ns")
    levels = intervals.clip(_levels(_submitted(inputs.chains)), inputs.scope, ["session"]).with_columns(step)
    return (
        levels.group_by("session", "step", "core_index")
        .agg(outstanding_max=pl.col("_level").max(), _weighted=(pl.col("_level") * length).sum())
        .join(measured, on=["session", "step"], how="left", nulls_equal=True)
        .select(
            "session",
            "step",
            "core_index",
            "outstanding_max",
            outstanding_mean=pl.col("_weighted") / pl.col("_measured_ns"),
        )
    )


def _compute(inputs: Inputs, options: Mapping[str, OptionValue]) -> pl.LazyFrame:
    by = str(options.get("by") or "core")
    return over_time(inputs) if by == "time" else delays(inputs, by=by, per_step=options.get("per") == "step")


METRIC = Metric(
    name="queue",
    doc="Executions submitted and not finished, and the delay from submit to start.",
    table=QUEUE,
    compute=_compute,
    options=(
        Option("by", "Per core, by operator, or the outstanding executions over time.", "core", ("core", "op", "time")),
        Option("per", "Add up over all, or per step.", "overall", ("overall", "step")),
    ),
    sort_by=("delay_ns",),
    screen=(
        "session",
        "step",
        "core_index",
        "name",
        "start_ns",
        "end_ns",
        "submit_count",
        "outstanding_max",
        "delay_p50_ns",
        "delay_p95_ns",
        "delay_max_ns",
        "delay_ns",
        "outstanding_mean",
        "unfinished_count",
        "early_count",
    ),
)
