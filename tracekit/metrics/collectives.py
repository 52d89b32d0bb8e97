"""Collectives: how long, how much of it hidden behind compute, and which rank the others wait for."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from tracekit import activity, intervals
from tracekit.metrics.base import Inputs, Metric, Option, OptionValue
from tracekit.tables import Column, Table

COLLECTIVES = Table(
    name="collectives",
    doc="Collectives of each rank by operation and size, with their overlap and the arrival of the ranks.",
    key=("session", "step", "name", "moved_bytes"),
    columns=(
        Column("session", pl.String(), "Key of `sessions`."),
        Column("step", pl.Int64(), "Step the collective starts in; null when steps are added up.", nullable=True),
        Column("rank", pl.Int32(), "Rank in the distributed job.", nullable=True),
        Column(
            "name",
            pl.String(),
            "Operation: as the framework calls it, else its operator (record_param_comms names none), else the "
            "event's name.",
        ),
        Column("moved_bytes", pl.Int64(), "Bytes each one takes in.", nullable=True, unit="B"),
        Column("collective_count", pl.Int64(), "Collectives; several physical cores count once."),
        Column("collective_ns", pl.Int64(), "Summed durations.", unit="ns"),
        Column("longest_ns", pl.Int64(), "Longest.", unit="ns"),
        Column("hidden_ns", pl.Int64(), "Part in which the same core also executed.", unit="ns"),
        Column("exposed_ns", pl.Int64(), "The rest.", unit="ns"),
        Column("matched_count", pl.Int64(), "Of these, how many were found on other ranks too."),
        Column("waited_ns", pl.Int64(), "Summed time from own arrival to the last rank's; of the matched.", unit="ns"),
        Column("last_count", pl.Int64(), "How often this rank arrived last: the straggler has the most."),
        Column(
            "late_ns", pl.Int64(), "Summed time by which this rank, when last, came after the one before.", unit="ns"
        ),
        Column("largest_skew_ns", pl.Int64(), "Largest time from first to last arrival.", True, "ns"),
        Column(
            "clock_residual_ns",
            pl.Int64(),
            "Disagreement of clocks left after alignment: arrivals are no better than this; null if not known.",
            nullable=True,
            unit="ns",
        ),
    ),
)

CORE = ("session", "core_index")
_KIND = ("name", "moved_bytes", "_core")
_BOOKKEEPING = "record_param_comms"
"""Operator in which the framework writes down what any collective is given."""
_ITEM_BYTES = {
    "Double": 8, "Long": 8, "ComplexFloat": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2,
    "Byte": 1, "Char": 1, "Bool": 1, "Float8_e4m3fn": 1, "Float8_e5m2": 1,
}  # fmt: skip


def collectives(inputs: Inputs, *, per_step: bool = False) -> pl.LazyFrame:
    """Add collectives up by operation and size, and compare the arrival of ranks.

    A collective belongs to the window it starts in. The n-th of a kind on one rank is the n-th on the
    others, if every rank has as many (in the capture, else in the step). Arrivals are compared on the
    profile's common clock, and only if all ranks are inside at once then: else clocks disagree, or
    these are not the same collective.

    Args:
        inputs: uses ``events``, ``chains``, ``sessions``, ``scope``.
        per_step: keep steps apart.

    Returns:
        ``COLLECTIVES``, by session, step, then the most time first; empty without collectives.
    """
    found = _with_overlap(instances(inputs.events, inputs.chains), inputs.events)
    steps = intervals.within(found, inputs.scope.with_columns(_is_inside=pl.lit(value=True)), ["session"])
    placed = pl.concat([steps, found.join(steps.select("_id"), on="_id", how="anti")], how="diagonal")
    rows = _with_arrival(placed, inputs.sessions).filter(pl.col("_is_inside"))
    if not per_step:
        rows = rows.with_columns(step=pl.lit(None, dtype=pl.Int64))
    totals = rows.group_by("session", "step", "name", "moved_bytes").agg(_totals())
    facts = inputs.sessions.select("session", "rank", "clock_residual_ns")
    return COLLECTIVES.conform(totals.join(facts, on="session", how="left")).sort(
        "session", "step", "collective_ns", "name", "moved_bytes", descending=[False, False, True, False, False]
    )


def instances(events: pl.LazyFrame, chains: pl.LazyFrame) -> pl.LazyFrame:
    """One row per collective: the n-th of each physical core of an execution is the same one.

    Returns:
        ``_id``, ``session``, ``core_index``, ``name``, ``moved_bytes``, ``start_ns``, ``end_ns``.
    """
    attrs = pl.col("attrs_json")
    items = attrs.str.json_path_match('$["In msg nelems"]').cast(pl.Int64, strict=False)
    item_bytes = attrs.str.json_path_match("$.dtype").replace_strict(_ITEM_BYTES, default=None, return_dtype=pl.Int64)
    operator = pl.when(pl.col("name") != _BOOKKEEPING).then("name")
    launched = chains.select(_operator=operator, event_id="hardware_ids").explode("event_id")
    named = (
        activity.collectives(events)
        .join(launched, on="event_id", how="left")
        .with_columns(
            name=pl.coalesce(attrs.str.json_path_match('$["Collective name"]'), "_operator", "name"),
            moved_bytes=pl.coalesce("moved_bytes", items * item_bytes),
        )
    )
    place = (*CORE, "model_id", "execution_id")
    number = pl.int_range(pl.len()).over(*place, "physical_core")
    alone = pl.when(pl.col("physical_core").is_null()).then("event_id")
    return (
        named.sort("start_ns", "event_id")
        .with_columns(_number=number, _alone=alone)
        .group_by(*place, "_number", "_alone")
        .agg(
            pl.col("event_id").min().alias("_id"),
            pl.col("name").first(),
            pl.col("moved_bytes").max(),
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
        )
        .select("_id", *CORE, "name", "moved_bytes", "start_ns", "end_ns")
    )


def _with_overlap(rows: pl.LazyFrame, events: pl.LazyFrame) -> pl.LazyFrame:
    work = activity.compute(events).select(*CORE, "start_ns", "end_ns")
    return intervals.covered(rows, work, CORE, "hidden_ns")


def _with_arrival(rows: pl.LazyFrame, sessions: pl.LazyFrame) -> pl.LazyFrame:
    """Add ``_waited_ns``, ``_late_ns``, ``_skew_ns`` and ``_is_last``, null where a collective is not matched.

    A core is known to other ranks by its place among the cores of its own: a process numbers its cores, or
    has one that the job numbers.
    """
    offset = sessions.select("session", _offset=pl.col("clock_offset_ns").fill_null(0))
    core = pl.col("core_index").fill_null(-1).rank("dense").over("session")
    arrived = pl.col("start_ns") + pl.col("_offset")
    known = (
        rows.join(offset, on="session", how="left").with_columns(_core=core, _arrived=arrived).sort("_arrived", "_id")
    )
    matched = _numbered(known)
    same = (*_KIND, "_round", "_ordinal")
    others = pl.col("session").n_unique().over(same)
    last = pl.col("_arrived").max().over(same)
    is_last = pl.col("_arrived") == last
    before = pl.col("_arrived").filter(~is_last).max().over(same)
    together = last < (pl.col("end_ns") + pl.col("_offset")).min().over(same)
    ok = pl.col("_ordinal").is_not_null() & (others > 1) & together
    return matched.with_columns(
        _waited_ns=pl.when(ok).then(last - pl.col("_arrived")),
        _skew_ns=pl.when(ok).then(last - pl.col("_arrived").min().over(same)),
        _is_last=pl.when(ok).then(is_last & before.is_not_null()),
        _late_ns=pl.when(ok & is_last).then(last - before),
    )


def _numbered(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Add ``_round`` (a step, or null for the capture) and ``_ordinal`` (null: no counterpart) to sorted rows."""

    def agrees(*within: str) -> pl.Expr:
        return pl.col(f"_count{len(within)}").n_unique().over(*_KIND, *within) == 1

    counted = rows.with_columns(
        _count0=pl.len().over("session", *_KIND), _count1=pl.len().over("session", *_KIND, "step")
    )
    in_step = agrees("step") & pl.col("step").is_not_null()
    overall = pl.int_range(pl.len(), dtype=pl.Int64).over("session", *_KIND)
    stepwise = pl.int_range(pl.len(), dtype=pl.Int64).over("session", *_KIND, "step")
    return counted.with_columns(
        _round=pl.when(~agrees()).then("step"),
        _ordinal=pl.when(agrees()).then(overall).when(in_step).then(stepwise),
    )


def _totals() -> list[pl.Expr]:
    length = pl.col("end_ns") - pl.col("start_ns")
    return [
        pl.len().cast(pl.Int64).alias("collective_count"),
        length.sum().alias("collective_ns"),
        length.max().alias("longest_ns"),
        pl.col("hidden_ns").sum(),
        (length - pl.col("hidden_ns")).sum().alias("exposed_ns"),
        pl.col("_waited_ns").count().cast(pl.Int64).alias("matched_count"),
        pl.col("_waited_ns").sum().alias("waited_ns"),
        pl.col("_is_last").sum().cast(pl.Int64).alias("last_count"),
        pl.col("_late_ns").sum().alias("late_ns"),
        pl.col("_skew_ns").max().alias("largest_skew_ns"),
    ]


def _compute(inputs: Inputs, options: Mapping[str, OptionValue]) -> pl.LazyFrame:
    return collectives(inputs, per_step=options.get("per") == "step")


METRIC = Metric(
    name="collectives",
    doc="Collectives: time, overlap with compute, and the rank that the others wait for.",
    table=COLLECTIVES,
    compute=_compute,
    options=(Option("per", "Add up over all, or per step.", "overall", ("overall", "step")),),
    sort_by=("collective_ns",),
    screen=(
        "session",
        "step",
        "name",
        "moved_bytes",
        "collective_count",
        "collective_ns",
        "exposed_ns",
        "waited_ns",
        "last_count",
        "late_ns",
        "longest_ns",
        "hidden_ns",
        "matched_count",
        "largest_skew_ns",
        "clock_residual_ns",
        "rank",
    ),
)
