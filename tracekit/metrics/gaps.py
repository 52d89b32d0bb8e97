"""Idle time between the executions of a core, split exactly by cause."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from tracekit import activity, intervals, stacks
from tracekit.metrics.base import Inputs, Metric, Option, OptionValue
from tracekit.tables import Column, Table

CAUSES = ("collective", "copy", "model_switch", "not_dispatched", "dispatching", "runtime", "unknown")
"""Why a core was idle, in order of precedence."""

CORE = ("session", "core_index")
PARTS = tuple(f"{cause}_ns" for cause in CAUSES)
GROUPINGS = ("cause", "op", "host", "size")

_CAUSE_DOCS = {
    "collective": "a collective of this core ran",
    "copy": "a copy of this process ran",
    "model_switch": "the core changed its model",
    "not_dispatched": "the next operator had not started on the host",
    "dispatching": "the next operator had started, but its work was not submitted",
    "runtime": "the next execution was submitted, but did not run",
    "unknown": "nothing is known about the next execution",
}

GAPS = Table(
    name="gaps",
    doc="Idle time between two executions of one core, cut at the windows, with its exact parts.",
    key=("session", "step", "core_index", "group", "start_ns"),
    columns=(
        Column("session", pl.String(), "Key of `sessions`."),
        Column("step", pl.Int64(), "Step the gap lies in; null when steps are added up.", nullable=True),
        Column("core_index", pl.Int32(), "Logical core or GPU.", nullable=True),
        Column("group", pl.String(), "Value of what `by` names; null where each gap has a row.", nullable=True),
        Column("start_ns", pl.Int64(), "When the core went idle; null in groups.", True, "ns"),
        Column("end_ns", pl.Int64(), "When it was busy again; null in groups.", True, "ns"),
        Column("before_name", pl.String(), "Operator of the execution before.", nullable=True),
        Column("after_name", pl.String(), "Operator that came late.", nullable=True),
        Column("before_chain_id", pl.Int64(), "Chain of the execution before.", nullable=True),
        Column("after_chain_id", pl.Int64(), "Chain of the execution after.", nullable=True),
        Column("main_cause", pl.String(), "Largest part; null in groups.", True, values=CAUSES),
        Column("gap_count", pl.Int64(), "Gaps that the row takes part in."),
        Column("gap_ns", pl.Int64(), "Idle time: the sum of the parts.", unit="ns"),
        Column("longest_ns", pl.Int64(), "Longest of those gaps (by cause: longest part).", unit="ns"),
        *(
            Column(part, pl.Int64(), f"Idle while {_CAUSE_DOCS[cause]}.", unit="ns")
            for cause, part in zip(CAUSES, PARTS, strict=True)
        ),
    ),
)

_SIZES = (
    (1_000, "below 1 µs"),
    (10_000, "1 to 10 µs"),
    (100_000, "10 to 100 µs"),
    (1_000_000, "100 µs to 1 ms"),
    (10_000_000, "1 to 10 ms"),
)


def gaps(events: pl.LazyFrame, chains: pl.LazyFrame, scope: pl.LazyFrame, *, by_host: bool = False) -> pl.LazyFrame:
    """Find every gap and split it.

    A gap lies between two executions of one core (physical cores and streams merged; memsets count as
    executions) and is cut at the windows of the scope. Each of its nanoseconds has the first cause of
    ``CAUSES`` that holds; the causes from ``not_dispatched`` on follow the chain of the execution that
    ends the gap.

    Args:
        events: ``tables.EVENTS``.
        chains: ``tables.CHAINS``.
        scope: ``SCOPE``.
        by_host: cut gaps again wherever the thread that dispatches the next operator went over to
            something else, and name that in ``group``.

    Returns:
        ``GAPS``, one row per gap and window, by session, step, core and start; empty if no core has two
        executions apart.
    """
    return _pieces(events, chains, scope, by_host=by_host).sort(GAPS.key)


def _pieces(events: pl.LazyFrame, chains: pl.LazyFrame, scope: pl.LazyFrame, *, by_host: bool) -> pl.LazyFrame:
    """Rows of ``gaps``, in no particular order."""
    events, chains, scope = (
        frame.with_columns(pl.col("session").cast(pl.Categorical())) for frame in (events, chains, scope)
    )
    executions = activity.compute(events).filter(pl.col("end_ns") > pl.col("start_ns"))
    found = intervals.clip(_between(executions, chains), scope, ["session"]).with_columns(
        group=pl.lit(None, dtype=pl.String),
        gap_count=pl.lit(1, dtype=pl.Int64),
        longest_ns=pl.col("end_ns") - pl.col("start_ns"),
    )
    if by_host:
        found = _cut_by_host(found, events)
    return GAPS.conform(_described(_named(_split(found, events, executions))))


def grouped(rows: pl.LazyFrame, by: str, *, per_step: bool) -> pl.LazyFrame:
    """Add gaps up by cause, by the operator that came late, by what its thread did meanwhile, or by size.

    Args:
        rows: ``GAPS``, one row per gap (by host: cut by host).
        by: one of ``GROUPINGS``.
        per_step: keep steps apart.

    Returns:
        ``GAPS``, by session, step and core, then the largest group first.
    """
    if by == "cause":
        labelled = _by_cause(rows)
    else:
        labels = {"size": _size_label(), "op": pl.col("after_name"), "host": pl.col("group")}
        labelled = rows.with_columns(group=labels[by])
    if not per_step:
        labelled = labelled.with_columns(step=pl.lit(None, dtype=pl.Int64))
    place = ("session", "step", "core_index")
    totals = (
        labelled.group_by(*place, "group")
        .agg(pl.col("gap_count", "gap_ns", *PARTS).sum(), pl.col("longest_ns").max())
        .sort(*place, "gap_ns", "group", descending=[False, False, False, True, False])
    )
    return GAPS.conform(totals)


def _between(executions: pl.LazyFrame, chains: pl.LazyFrame) -> pl.LazyFrame:
    """Gaps of each core with the chains before and after: of several candidates the earliest event."""
    in_chain = chains.select(
        "chain_id", "dispatch_id", "dispatch_start_ns", "submit_ns", chain_name="name", event_id="hardware_ids"
    ).explode("event_id")
    known = (
        executions.select(*CORE, "event_id", "start_ns", "end_ns", "name")
        .join(in_chain, on="event_id", how="left")
        .with_columns(op_name=pl.coalesce("chain_name", "name"))
        .sort("event_id")
    )
    before = known.unique([*CORE, "end_ns"], keep="first", maintain_order=True).select(
        *CORE, start_ns="end_ns", before_name="op_name", before_chain_id="chain_id"
    )
    after = known.unique([*CORE, "start_ns"], keep="first", maintain_order=True).select(
        *CORE,
        "dispatch_id",
        "dispatch_start_ns",
        "submit_ns",
        end_ns="start_ns",
        after_name="op_name",
        after_chain_id="chain_id",
    )
    return (
        intervals.gaps(executions, CORE)
        .join(before, on=[*CORE, "start_ns"], how="left", nulls_equal=True)
        .join(after, on=[*CORE, "end_ns"], how="left", nulls_equal=True)
    )


def _cut_by_host(rows: pl.LazyFrame, events: pl.LazyFrame) -> pl.LazyFrame:
    """Cut gaps by what the next operator's thread did; a gap counts once for each thing it did."""
    threads = events.select("process_id", "thread_id", dispatch_id="event_id")
    unneeded = ("before_name", "after_name", "before_chain_id", "after_chain_id", "group")
    found = rows.drop(unneeded).with_row_index("_gap").join(threads, on="dispatch_id", how="left")
    line = pl.format("{} › {}", "host_frame", "host_name")
    label = pl.col("group").cast(pl.Categorical).to_physical()
    is_first = (pl.col("_gap").cast(pl.UInt64) * 2**32 + label).is_first_distinct()
    return (
        stacks.doing(found.drop("dispatch_id"), events)
        .with_columns(group=pl.coalesce(line, "host_name"))
        .with_columns(gap_count=is_first.cast(pl.Int64))
        .drop("_gap", "process_id", "thread_id", "host_name", "host_frame")
    )


def _split(rows: pl.LazyFrame, events: pl.LazyFrame, executions: pl.LazyFrame) -> pl.LazyFrame:
    """Add the parts. What explains a gap by itself is measured first, the rest by the chain's boundaries."""
    cores = executions.select(CORE).unique()
    collective = activity.collectives(events).select(*CORE, "start_ns", "end_ns")
    copy = activity.copies(events).select("session", "start_ns", "end_ns").join(cores, on="session")
    switch = activity.model_switches(events).select(*CORE, "start_ns", "end_ns")
    rows = _with_boundaries(rows).cache()
    layers = {
        "collective": intervals.union(collective, CORE),
        "copy": intervals.union(copy, CORE),
        "model_switch": intervals.union(switch, CORE),
        "waiting": rows.select(*CORE, "start_ns", end_ns="_dispatched"),
        "launching": rows.select(*CORE, start_ns="_dispatched", end_ns="_submitted"),
    }
    return intervals.measure(rows, layers, CORE, _conditions())


def _conditions() -> dict[str, pl.Expr]:
    """When each part of a gap is running: the first cause that holds."""
    collective, copy, switch = pl.col("collective"), pl.col("copy"), pl.col("model_switch")
    rest = ~collective & ~copy & ~switch
    waiting, launching = rest & pl.col("waiting"), rest & pl.col("launching")
    queued = rest & ~pl.col("waiting") & ~pl.col("launching")
    return {
        "collective_ns": collective,
        "copy_ns": copy & ~collective,
        "model_switch_ns": switch & ~collective & ~copy,
        "not_dispatched_ns": waiting,
        "_launching_ns": launching,
        "_queued_ns": queued,
    }


def _named(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Name what the chain does not bound ``unknown``."""
    launching, queued = pl.col("_launching_ns"), pl.col("_queued_ns")
    has_dispatch = pl.col("dispatch_start_ns").is_not_null()
    has_submit = pl.col("submit_ns").is_not_null()
    return rows.with_columns(
        dispatching_ns=pl.when(has_dispatch).then(launching).otherwise(0),
        runtime_ns=pl.when(has_submit).then(queued).otherwise(0),
        unknown_ns=pl.when(has_dispatch).then(0).otherwise(launching) + pl.when(has_submit).then(0).otherwise(queued),
    )


def _with_boundaries(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Add when the next operator started and when it was submitted, moved into the gap.

    An unknown boundary leaves the part before it empty.
    """
    start, end = pl.col("start_ns"), pl.col("end_ns")
    dispatched = pl.coalesce("dispatch_start_ns", "start_ns").clip(start, end)
    submitted = pl.coalesce("submit_ns", "_dispatched").clip(pl.col("_dispatched"), end)
    return rows.with_columns(_dispatched=dispatched).with_columns(_submitted=submitted)


def _described(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Add the columns that every gap has besides its parts."""
    largest = pl.max_horizontal(PARTS)
    cause = pl.coalesce(
        pl.when(pl.col(part) == largest).then(pl.lit(name)) for name, part in zip(CAUSES, PARTS, strict=True)
    )
    return rows.with_columns(
        main_cause=cause,
        gap_ns=pl.col("end_ns") - pl.col("start_ns"),
    )


def _by_cause(rows: pl.LazyFrame) -> pl.LazyFrame:
    """One row per gap and cause that took part; only that cause's part is not 0."""
    long = (
        rows.select("session", "step", "core_index", **dict(zip(CAUSES, PARTS, strict=True)))
        .unpivot(on=CAUSES, index=["session", "step", "core_index"], variable_name="group", value_name="gap_ns")
        .filter(pl.col("gap_ns") > 0)
    )
    parts = {
        part: pl.when(pl.col("group") == cause).then("gap_ns").otherwise(0)
        for cause, part in zip(CAUSES, PARTS, strict=True)
    }
    return long.with_columns(gap_count=pl.lit(1, dtype=pl.Int64), longest_ns="gap_ns", **parts)


def _size_label() -> pl.Expr:
    label = pl.lit("10 ms and more")
    for limit, text in reversed(_SIZES):
        label = pl.when(pl.col("gap_ns") < limit).then(pl.lit(text)).otherwise(label)
    return label


def _compute(inputs: Inputs, options: Mapping[str, OptionValue]) -> pl.LazyFrame:
    by, shortest = options.get("by"), options.get("longer_than")
    rows = _pieces(inputs.events, inputs.chains, inputs.scope, by_host=by == "host")
    if isinstance(shortest, int):
        rows = rows.filter(pl.col("longest_ns") > shortest)
    return grouped(rows, str(by), per_step=options.get("per") == "step") if by else rows.sort(GAPS.key)


METRIC = Metric(
    name="gaps",
    doc="Idle time between executions of a core, with its cause.",
    table=GAPS,
    compute=_compute,
    options=(
        Option(
            "by",
            "Add gaps up by cause, by the operator that came late, by what its thread did meanwhile, or by size.",
            None,
            GROUPINGS,
        ),
        Option("longer_than", "Leave out gaps that are not longer.", None, is_duration=True),
        Option("per", "Add up over all, or per step.", "overall", ("overall", "step")),
    ),
    sort_by=("gap_ns",),
    screen=(
        "session",
        "step",
        "core_index",
        "group",
        "gap_ns",
        "main_cause",
        "after_name",
        "before_name",
        "start_ns",
        "gap_count",
        "longest_ns",
    ),
)
