"""Steps of a training or inference loop, and the windows that the other metrics measure."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from tracekit.errors import TracekitError
from tracekit.metrics.base import SCOPE, Inputs, Metric, OptionValue
from tracekit.tables import Column, Table

STEPS = Table(
    name="steps",
    doc="Steps (`ProfilerStep#N`), with warm-up marked.",
    key=("session", "start_ns"),
    columns=(
        Column("session", pl.String(), "Key of `sessions`."),
        Column("step", pl.Int64(), "N of `ProfilerStep#N`."),
        Column("start_ns", pl.Int64(), "Start on the host.", unit="ns"),
        Column("end_ns", pl.Int64(), "End on the host.", unit="ns"),
        Column("duration_ns", pl.Int64(), "End minus start.", unit="ns"),
        Column("is_warmup", pl.Boolean(), "Left out by default."),
    ),
)

_STEP = r"^ProfilerStep#(\d+)$"


def steps(events: pl.LazyFrame) -> pl.LazyFrame:
    """Find the steps of each session.

    Args:
        events: ``tables.EVENTS``.

    Returns:
        ``STEPS``, by session and start; empty without ``ProfilerStep`` annotations.
    """
    number = pl.col("name").str.extract(_STEP).cast(pl.Int64)
    return (
        events.filter(pl.col("is_primary") & (pl.col("lane") == "dispatch") & (pl.col("kind") == "annotation"))
        .select("session", "start_ns", "end_ns", step=number)
        .filter(pl.col("step").is_not_null())
        .with_columns(duration_ns=pl.col("end_ns") - pl.col("start_ns"), is_warmup=pl.lit(False))
        .select(STEPS.names)
        .sort("session", "start_ns")
    )


def scope(events: pl.LazyFrame, sessions: pl.LazyFrame, chains: pl.LazyFrame, which: str | int) -> pl.LazyFrame:
    """The windows to measure.

    Args:
        events: ``tables.EVENTS``.
        sessions: ``tables.SESSIONS``.
        chains: ``tables.CHAINS``.
        which: ``"steps"``: the steps after warm-up, and for a session without steps everything;
            ``"all"``: everything; or the number of a step.

    Returns:
        ``SCOPE``; one window per step, or one per session.

    Raises:
        TracekitError: if ``which`` is neither of these.
    """
    found = steps(events)
    if isinstance(which, int):
        return found.filter(pl.col("step") == which).select(SCOPE.names)
    whole = sessions.filter(pl.col("first_ns").is_not_null()).select(
        "session", pl.lit(None, dtype=pl.Int64).alias("step"), start_ns="first_ns", end_ns="last_ns"
    )
    if which == "all":
        return whole
    if which != "steps":
        raise TracekitError(f"no scope {which!r}", hint="use steps, all or the number of a step")
    kept = found.filter(~pl.col("is_warmup")).select(SCOPE.names)
    return pl.concat([kept, whole.join(kept, on="session", how="anti")]).sort("session", "start_ns")


def _compute(inputs: Inputs, options: Mapping[str, OptionValue]) -> pl.LazyFrame:
    return steps(inputs.events)


METRIC = Metric("steps", "Steps, their length, and which are warm-up.", STEPS, _compute)
