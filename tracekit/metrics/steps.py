"""Steps of a training or inference loop, and the windows that the other metrics measure."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from tracekit import activity, intervals
from tracekit.errors import TracekitError
from tracekit.metrics.base import SCOPE, Inputs, Metric, OptionValue
from tracekit.tables import Column, Table

WARMUP_REASONS = ("model_load", "compilation", "slow_first")

STEPS = Table(
    name="steps",
    doc="Steps (`ProfilerStep#N`), with warm-up marked: the leading steps that a reason below holds for.",
    key=("session", "start_ns"),
    columns=(
        Column("session", pl.String(), "Key of `sessions`."),
        Column("step", pl.Int64(), "N of `ProfilerStep#N`."),
        Column("start_ns", pl.Int64(), "Start on the host.", unit="ns"),
        Column("end_ns", pl.Int64(), "End on the host.", unit="ns"),
        Column("duration_ns", pl.Int64(), "End minus start.", unit="ns"),
        Column("is_warmup", pl.Boolean(), "Left out by default."),
        Column(
            "warmup_reason",
            pl.String(),
            "model_load: a model was loaded in it; compilation: something was compiled in it; slow_first: longer than "
            "1.5 × the median of the later steps and than that median + 5 × 1.4826 × their median absolute deviation "
            "(at least three later steps).",
            nullable=True,
            values=WARMUP_REASONS,
        ),
    ),
)

_STEP = r"^ProfilerStep#(\d+)$"
_WARMUP_STEPS = 32
"""Steps at the start of a session that may be warm-up."""
_LATER_STEPS = 3


def steps(events: pl.LazyFrame) -> pl.LazyFrame:
    """Find the steps of each session and mark the leading ones that are warm-up.

    When every step of a session would be warm-up, none is.

    Args:
        events: ``tables.EVENTS``.

    Returns:
        ``STEPS``, by session and start; empty without ``ProfilerStep`` annotations.
    """
    return _marked(_found(events), events)


def _marked(found: pl.LazyFrame, events: pl.LazyFrame) -> pl.LazyFrame:
    """``STEPS`` of the steps found."""
    reason = pl.coalesce("_loaded", "_compiled", "_slow")
    leading = reason.is_not_null().cast(pl.Int8).cum_min().over("session", order_by="start_ns") == 1
    marked = (
        _with_slow_first(_with_cause(found, events))
        .with_columns(_leading=leading)
        .with_columns(is_warmup=pl.col("_leading") & ~pl.col("_leading").all().over("session"))
        .with_columns(warmup_reason=pl.when("is_warmup").then(reason))
    )
    return STEPS.conform(marked).sort("session", "start_ns")


def _found(events: pl.LazyFrame) -> pl.LazyFrame:
    """Each step once per session: several threads may carry the same annotation."""
    number = pl.col("name").str.extract(_STEP).cast(pl.Int64)
    return (
        events.filter(pl.col("is_primary") & (pl.col("lane") == "dispatch") & (pl.col("kind") == "annotation"))
        .select("session", "start_ns", "end_ns", step=number)
        .filter(pl.col("step").is_not_null())
        .sort("session", "start_ns", "end_ns")
        .with_columns(duration_ns=pl.col("end_ns") - pl.col("start_ns"))
    )


def _with_cause(found: pl.LazyFrame, events: pl.LazyFrame) -> pl.LazyFrame:
    """Add ``_loaded`` and ``_compiled``: the reason, where such an event starts inside the step."""
    windows = found.select("session", "step", "start_ns", "end_ns")
    causes = (
        ("_loaded", "model_load", activity.model_loads(events)),
        ("_compiled", "compilation", activity.compilations(events)),
    )
    for column, reason, rows in causes:
        hits = intervals.within(rows.select("session", "start_ns"), windows, ["session"])
        flag = hits.select("session", "step").unique().with_columns(pl.lit(reason).alias(column))
        found = found.join(flag, on=["session", "step"], how="left")
    return found


def _with_slow_first(found: pl.LazyFrame) -> pl.LazyFrame:
    """Add ``_slow``: the reason, where a step is an outlier against all later ones."""
    later = found.select("session", later_start="start_ns", later_ns="duration_ns")
    against = (
        found.group_by("session", maintain_order=True)
        .head(_WARMUP_STEPS)
        .select("session", "start_ns")
        .join(later, on="session")
        .filter(pl.col("later_start") > pl.col("start_ns"))
        .group_by("session", "start_ns")
        .agg(
            _count=pl.len(),
            _median=pl.col("later_ns").median(),
            _spread=(pl.col("later_ns") - pl.col("later_ns").median()).abs().median(),
        )
    )
    limit = pl.max_horizontal(1.5 * pl.col("_median"), pl.col("_median") + 5 * 1.4826 * pl.col("_spread"))
    slow = (pl.col("_count") >= _LATER_STEPS) & (pl.col("duration_ns") > limit)
    return found.join(against, on=["session", "start_ns"], how="left").with_columns(
        _slow=pl.when(slow).then(pl.lit("slow_first"))
    )


def scope(events: pl.LazyFrame, sessions: pl.LazyFrame, which: str | int) -> pl.LazyFrame:
    """The windows to measure, as a frame in memory: they are few, and every metric uses them several times.

    Args:
        events: ``tables.EVENTS``.
        sessions: ``tables.SESSIONS``.
        which: ``"steps"``: the steps after warm-up, and for a session without steps everything;
            ``"all"``: everything; or the number of a step.

    Returns:
        ``SCOPE``; one window per step, or one per session.

    Raises:
        TracekitError: if ``which`` is neither of these, or no session has that step.
    """
    if which == "all":
        return _whole(sessions).collect().lazy()
    named = _found(events).collect()
    found = _marked(named.lazy(), events).collect() if named.height else STEPS.empty()
    if isinstance(which, int):
        chosen = found.filter(pl.col("step") == which)
        if chosen.is_empty():
            known = ", ".join(map(str, found["step"].unique().sort().to_list()[:20])) or "none: no ProfilerStep in it"
            raise TracekitError(f"no step {which} in this profile", hint=f"steps are {known}")
        return chosen.lazy().select(SCOPE.names)
    if which != "steps":
        raise TracekitError(f"no scope {which!r}", hint="use steps, all or the number of a step")
    kept = found.lazy().filter(~pl.col("is_warmup")).select(SCOPE.names)
    windows = pl.concat([kept, _whole(sessions).join(kept, on="session", how="anti")]).sort("session", "start_ns")
    return windows.collect().lazy()


def _whole(sessions: pl.LazyFrame) -> pl.LazyFrame:
    return sessions.filter(pl.col("first_ns").is_not_null()).select(
        "session", pl.lit(None, dtype=pl.Int64).alias("step"), start_ns="first_ns", end_ns="last_ns"
    )


def _compute(inputs: Inputs, options: Mapping[str, OptionValue]) -> pl.LazyFrame:
    return steps(inputs.events)


METRIC = Metric(
    "steps",
    "Steps, their length, and which are warm-up.",
    STEPS,
    _compute,
    screen=("session", "step", "start_ns", "duration_ns", "is_warmup", "warmup_reason"),
)
