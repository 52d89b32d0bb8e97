"""How many operators, launches, submits and executions."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from tracekit import intervals
from tracekit.metrics.base import Inputs, Metric, Option, OptionValue
from tracekit.tables import Column, Table

COUNTS = Table(
    name="counts",
    doc="Operators, launches, runtime submits and hardware executions; what fusing or compiling changes.",
    key=("session", "step", "name"),
    columns=(
        Column("session", pl.String(), "Key of `sessions`."),
        Column("step", pl.Int64(), "Step, with `per=step`.", nullable=True),
        Column("name", pl.String(), "Operator (or execution that no operator launched); null with `by=total`.", True),
        Column("operator_count", pl.Int64(), "Operator calls, nested ones included."),
        Column("launch_count", pl.Int64(), "Work items that were launched."),
        Column("submit_count", pl.Int64(), "Work items seen at the runtime."),
        Column("execution_count", pl.Int64(), "Executions on the device; several physical cores count once."),
        Column("never_ran_count", pl.Int64(), "Launched work without an execution in the capture."),
        Column("executions_per_call", pl.Float64(), "Executions per operator call.", nullable=True),
    ),
)

_NUMBERS = ("operator_count", "launch_count", "submit_count", "execution_count", "never_ran_count")


def counts(
    events: pl.LazyFrame, chains: pl.LazyFrame, scope: pl.LazyFrame, *, by: str = "op", per_step: bool = False
) -> pl.LazyFrame:
    """Count what was called, launched, submitted and run in the windows.

    A chain counts where its first known time lies, under the operator that launched it.

    Args:
        events: ``tables.EVENTS``.
        chains: ``tables.CHAINS``.
        scope: ``metrics.base.SCOPE``.
        by: ``op``: one row per operator; ``total``: one row for all.
        per_step: one row per step.

    Returns:
        ``COUNTS``, sorted by its key.
    """
    windows = scope.select("session", "step", "start_ns", "end_ns")
    is_operator = (pl.col("lane") == "dispatch") & (pl.col("kind") == "op") & pl.col("is_primary")
    operators = events.filter(is_operator).select("session", "name", "start_ns", operator_count=pl.lit(1))
    ran = pl.col("hardware_start_ns").is_not_null()
    first = pl.coalesce("dispatch_start_ns", "submit_ns", "hardware_start_ns")
    launched = chains.select(
        "session",
        "name",
        start_ns=first,
        launch_count=pl.any_horizontal(pl.col("launch_id", "submit_id", "stream_id").is_not_null()),
        submit_count=pl.col("submit_id").is_not_null(),
        execution_count=ran,
        never_ran_count=~ran,
    )
    rows = intervals.within(pl.concat([operators, launched], how="diagonal_relaxed"), windows, ["session"])
    step = pl.col("step") if per_step else pl.lit(None, dtype=pl.Int64).alias("step")
    name = pl.col("name") if by == "op" else pl.lit(None, dtype=pl.String).alias("name")
    numbers = pl.col(_NUMBERS).cast(pl.Int64).fill_null(0).sum()
    total = rows.with_columns(step, name).group_by(COUNTS.key).agg(numbers)
    calls = pl.col("operator_count")
    per_call = pl.when(calls > 0).then(pl.col("execution_count") / calls)
    return COUNTS.conform(total.with_columns(executions_per_call=per_call)).sort(COUNTS.key)


def _compute(inputs: Inputs, options: Mapping[str, OptionValue]) -> pl.LazyFrame:
    per_step = options["per"] == "step"
    return counts(inputs.events, inputs.chains, inputs.scope, by=str(options["by"]), per_step=per_step)


METRIC = Metric(
    "counts",
    "Operators, launches, submits and executions.",
    COUNTS,
    _compute,
    options=(
        Option("by", "One row per operator, or one for all.", "op", ("op", "total")),
        Option("per", "Over all, or per step.", "overall", ("overall", "step")),
    ),
    sort_by=("execution_count", "operator_count"),
)
