"""What to try next: findings with evidence, an estimate and its formula, ranked by time at stake."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

from tracekit import activity, fusing, intervals
from tracekit.metrics import metric
from tracekit.metrics.base import Inputs, Metric, OptionValue
from tracekit.tables import Column, Table

ADVICE = Table(
    name="advice",
    doc="Findings, the most time at stake first. None without evidence.",
    key=("session", "finding", "subject"),
    columns=(
        Column("session", pl.String(), "Key of `sessions`."),
        Column("finding", pl.String(), "Stable short name of the rule."),
        Column("subject", pl.String(), "What it is about: a pattern, an operator, a copy's direction."),
        Column("at_stake_ns", pl.Int64(), "Estimate of the time that could go, by `formula`.", unit="ns"),
        Column("formula", pl.String(), "How the estimate was made."),
        Column("message", pl.String(), "What was found."),
        Column("next_step", pl.String(), "What to try."),
        Column("occurrence_count", pl.Int64(), "How often it was found."),
        Column("evidence", pl.String(), "chain or event: what the ids name.", values=("chain", "event")),
        Column("evidence_ids", pl.List(pl.Int64()), "Up to 12 of them, those with the most time at stake first."),
    ),
)

_EVIDENCE = 12
_HOST_SHARE = 0.1
"""Share of the measured time from which late dispatch is a finding."""
_WAIT_SHARE = 0.01
_DIRECTIONS = {"copy_in": "to the device", "copy_out": "from the device", "copy": "on the device"}


def advice(inputs: Inputs) -> pl.LazyFrame:
    """Apply every rule.

    Args:
        inputs: uses ``events``, ``chains``, ``sessions``, ``scope``.

    Returns:
        ``ADVICE``, by session, the most time at stake first; empty if no rule finds anything.
    """
    placed = fusing.executions(inputs.events, inputs.chains, inputs.scope)
    executions = placed.collect().lazy()  # every pattern walks them: computed once
    found = pl.concat([ADVICE.conform(rule(inputs, executions)) for rule in RULES]).filter(pl.col("at_stake_ns") > 0)
    return found.sort("session", "at_stake_ns", "finding", "subject", descending=[False, True, False, False])


def _times(count: str) -> pl.Expr:
    """``once``, or ``7 times``."""
    return pl.when(pl.col(count) == 1).then(pl.lit("once")).otherwise(pl.format("{} times", count))


def _result(name: str, inputs: Inputs) -> pl.LazyFrame:
    """Another metric with its defaults: findings rest on the numbers that people see."""
    chosen = metric(name)
    return chosen.compute(inputs, {option.name: option.default for option in chosen.options})


def _fusable(_: Inputs, executions: pl.LazyFrame) -> pl.LazyFrame:
    """Runs that one operator of the library replaces."""
    return pl.concat([_one_operator(executions, pattern) for pattern in fusing.PATTERNS])


def _one_operator(executions: pl.LazyFrame, pattern: fusing.Pattern) -> pl.LazyFrame:
    size = len(pattern.operators)
    return _summed(fusing.occurrences(executions, pattern), "fuse", pattern.name).with_columns(
        message=pl.format(
            "{} as {} executions, {}", pl.lit(pattern.name), pl.lit(str(size)), _times("occurrence_count")
        ),
        next_step=pl.lit(f"use {pattern.replacement}, or torch.compile: one execution instead of {size}"),
    )


def _elementwise(_: Inputs, executions: pl.LazyFrame) -> pl.LazyFrame:
    """Runs of elementwise executions that no pattern explains."""
    found = _summed(fusing.elementwise(executions), "compile", "elementwise operators in a row")
    return found.with_columns(
        message=pl.format(
            "{} or more elementwise executions in a row, {}", pl.lit(str(fusing.RUN)), _times("occurrence_count")
        ),
        next_step=pl.lit("wrap the function around them in torch.compile: each run becomes one execution"),
    )


def _summed(runs: pl.LazyFrame, finding: str, subject: str) -> pl.LazyFrame:
    """Add runs up, those with the most at stake as evidence."""
    return (
        runs.sort("stake_ns", "start_ns", descending=[True, False])
        .group_by("session", maintain_order=True)
        .agg(
            at_stake_ns=pl.col("stake_ns").sum(),
            occurrence_count=pl.len().cast(pl.Int64),
            evidence_ids=pl.col("chain_ids").explode().head(_EVIDENCE),
        )
        .with_columns(
            finding=pl.lit(finding),
            subject=pl.lit(subject),
            formula=pl.lit(
                f"sum over the runs: first start to last end, each gap as {fusing.LAUNCH_GAP_NS // 1000} µs at most, "
                "minus the longest execution"
            ),
            evidence=pl.lit("chain"),
        )
    )


def _host_bound(inputs: Inputs, _: pl.LazyFrame) -> pl.LazyFrame:
    """Idle time in which the device waited for the host to dispatch."""
    late = pl.col("not_dispatched_ns") + pl.col("dispatching_ns")
    window = inputs.scope.group_by("session").agg(_window_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    found = _result("gaps", inputs).with_columns(_late=late).filter(pl.col("_late") > 0)
    worst = pl.col("after_name").filter(pl.col("_late") == pl.col("_late").max()).first()
    summed = found.group_by("session").agg(
        at_stake_ns=pl.col("_late").sum(),
        occurrence_count=pl.len().cast(pl.Int64),
        evidence_ids=pl.col("after_chain_id")
        .sort_by("_late", descending=True)
        .drop_nulls()
        .unique(maintain_order=True)
        .head(_EVIDENCE),
        _worst=worst.fill_null("an operator"),
    )
    share = 100 * pl.col("at_stake_ns") / pl.col("_window_ns")
    return (
        summed.join(window, on="session")
        .filter(pl.col("at_stake_ns") >= _HOST_SHARE * pl.col("_window_ns"))
        .with_columns(
            finding=pl.lit("host_bound"),
            subject=pl.lit("dispatch"),
            formula=pl.lit("sum of the gap parts not_dispatched and dispatching"),
            message=pl.format(
                "the device waits for the host {} % of the time, longest before {}", share.round(1), "_worst"
            ),
            next_step=pl.lit(
                "dispatch fewer, larger operators (torch.compile, fused operators, larger batch), "
                "and move Python work out of the step"
            ),
            evidence=pl.lit("chain"),
        )
    )


def _scalar_copies(inputs: Inputs, _: pl.LazyFrame) -> pl.LazyFrame:
    """A scalar that is copied in every step."""
    repeated = _result("copies", inputs).filter("is_repeated_scalar")
    small = activity.copies(inputs.events).filter(pl.col("moved_bytes") <= 16)
    ids = small.group_by("session", direction="kind").agg(evidence_ids=pl.col("event_id").sort().head(_EVIDENCE))
    where = pl.col("direction").cast(pl.String).replace(_DIRECTIONS)
    return repeated.join(ids, on=["session", "direction"]).select(
        "session",
        "evidence_ids",
        finding=pl.lit("scalar_copy"),
        subject="direction",
        at_stake_ns="scalar_ns",
        formula=pl.lit("summed durations of the copies of at most 16 bytes"),
        message=pl.format("a scalar is copied {} in every step, {} in all", where, _times("scalar_count")),
        next_step=pl.lit("keep the value on the device (a buffer), or pass it as a Python number that is compiled in"),
        occurrence_count="scalar_count",
        evidence=pl.lit("event"),
    )


def _synchronisation(inputs: Inputs, _: pl.LazyFrame) -> pl.LazyFrame:
    """Waits inside the steps during which the device ran dry; the one that ends a step is no finding."""
    windows = inputs.scope.select("session", "start_ns", "end_ns", _step_ns="start_ns")
    is_operator = (pl.col("lane") == "dispatch") & (pl.col("kind") == "op") & pl.col("is_primary")
    operators = intervals.within(inputs.events.filter(is_operator).select("session", "start_ns"), windows, ["session"])
    last = operators.group_by("session", "_step_ns").agg(_last_ns=pl.col("start_ns").max())
    blocking = activity.host_waits(inputs.events).filter(pl.col("lane") == "dispatch")
    rows = intervals.within(blocking.select("session", "event_id", "name", "start_ns", "end_ns"), windows, ["session"])
    inside = rows.join(last, on=["session", "_step_ns"]).filter(pl.col("end_ns") <= pl.col("_last_ns"))
    work = activity.device_work(inputs.events).select("session", "start_ns", "end_ns")
    idle = pl.col("end_ns") - pl.col("start_ns") - pl.col("_busy_ns")
    counted = (
        intervals.covered(inside, work, ["session"], "_busy_ns")
        .with_columns(_idle_ns=idle)
        .group_by("session", "name")
        .agg(
            at_stake_ns=pl.col("_idle_ns").sum(),
            occurrence_count=pl.len().cast(pl.Int64),
            evidence_ids=pl.col("event_id").sort_by("_idle_ns", descending=True).head(_EVIDENCE),
        )
    )
    window = inputs.scope.group_by("session").agg(_window_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    return (
        counted.join(window, on="session")
        .join(work.select("session").unique(), on="session", how="semi")
        .filter(pl.col("at_stake_ns") >= _WAIT_SHARE * pl.col("_window_ns"))
        .with_columns(
            finding=pl.lit("synchronisation"),
            subject="name",
            formula=pl.lit("part of the waits in which the device did nothing"),
            message=pl.format("{} blocks the host {} inside the steps", "name", _times("occurrence_count")),
            next_step=pl.lit("read values back once per several steps, or asynchronously; drop synchronise calls"),
            evidence=pl.lit("event"),
        )
    )


def _recompilation(inputs: Inputs, _: pl.LazyFrame) -> pl.LazyFrame:
    """Compilations and model loads inside the measured windows."""
    columns = ("session", "event_id", "start_ns", "end_ns")
    preparing = pl.concat([activity.compilations(inputs.events), activity.model_loads(inputs.events)]).select(columns)
    inside = intervals.clip(preparing, inputs.scope.drop("step"), ["session"])
    counted = inside.group_by("session").agg(
        occurrence_count=pl.col("event_id").n_unique().cast(pl.Int64),
        evidence_ids=pl.col("event_id").unique().sort().head(_EVIDENCE),
    )
    length = intervals.length(inside, ["session"]).rename({"length_ns": "at_stake_ns"})
    return counted.join(length, on="session").with_columns(
        finding=pl.lit("recompilation"),
        subject=pl.lit("compilation and model loads"),
        formula=pl.lit("length of their union"),
        message=pl.format("compilation or model load in the measured time, {}", _times("occurrence_count")),
        next_step=pl.lit("warm up with the same shapes first; mark changing dimensions dynamic, or pad them"),
        evidence=pl.lit("event"),
    )


def _stragglers(inputs: Inputs, _: pl.LazyFrame) -> pl.LazyFrame:
    """The rank that the others wait for in collectives: one alone. Where several take turns, none is to blame."""
    late = _result("collectives", inputs).filter(pl.col("late_ns") > 0)
    window = inputs.scope.group_by("session").agg(_window_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    ids = (
        activity.collectives(inputs.events)
        .group_by("session")
        .agg(evidence_ids=pl.col("event_id").sort_by("start_ns").head(_EVIDENCE))
    )
    summed = late.group_by("session", "rank").agg(
        at_stake_ns=pl.col("late_ns").sum(), occurrence_count=pl.col("last_count").sum()
    )
    return (
        summed.filter(2 * pl.col("at_stake_ns") > pl.col("at_stake_ns").sum())
        .join(window, on="session")
        .filter(pl.col("at_stake_ns") >= _WAIT_SHARE * pl.col("_window_ns"))
        .join(ids, on="session")
        .with_columns(
            finding=pl.lit("straggler"),
            subject=pl.format("rank {}", pl.col("rank").cast(pl.String).fill_null("unknown")),
            formula=pl.lit("summed time by which it arrived after the rank before it"),
            message=pl.format(
                "the other ranks of this capture wait for rank {} in collectives, {}",
                pl.col("rank").cast(pl.String).fill_null("unknown"),
                _times("occurrence_count"),
            ),
            next_step=pl.lit(
                "balance the work of the ranks; compare this host with the others (input, clock, neighbours)"
            ),
            evidence=pl.lit("event"),
        )
    )


RULES: tuple[Callable[[Inputs, pl.LazyFrame], pl.LazyFrame], ...] = (
    _fusable,
    _elementwise,
    _host_bound,
    _scalar_copies,
    _synchronisation,
    _recompilation,
    _stragglers,
)
"""Every rule, one function each."""


def _compute(inputs: Inputs, options: Mapping[str, OptionValue]) -> pl.LazyFrame:
    return advice(inputs)


METRIC = Metric("advice", "What to try next, ranked by the time at stake.", ADVICE, _compute)
