"""Executions of a Neuron runtime: host stages and hardware rows of one execution brought together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from tracekit.links import match
from tracekit.links.rows import STAGES, WAIT

TRACK = ("session", "process_id", "core_index")
KEY = (*TRACK, "model_id", "execution_id")
_ABSENT: dict[str, int | str] = {"process_id": -1, "core_index": -1, "model_id": ""}


@dataclass(frozen=True)
class Executions:
    """What the runtime and the hardware say about executions.

    Attributes:
        records: one row per execution that left any trace: ``cause`` (its index), the columns of ``KEY``,
            ``at`` and ``start_ns`` (first host stage, else first hardware row), ``sequence_id``, ``thread_id``,
            ``has_stage``; ``stage_id``, ``stage_name``, ``stage_end_ns`` of the first stage; ``wait_id``,
            ``wait_start_ns``, ``wait_end_ns``.
        stages: ``record``, ``event_id`` of every host stage.
        work: ``work`` (index), ``record`` (null if nothing on the host tells of it), ``method``,
            ``event_ids``, and what the hardware rows say.
        ambiguous: how many stages or hardware rows were told apart by time only.
    """

    records: pl.DataFrame
    stages: pl.DataFrame
    work: pl.DataFrame
    ambiguous: int


def comparable(left: pl.DataFrame, right: pl.DataFrame, columns: Sequence[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Make ``columns`` comparable: where one side of a session never has a column, neither side uses it.

    Lone nulls stay null, so that they match nothing.
    """
    known = [
        frame.group_by("session").agg(pl.col(columns).is_not_null().any().name.prefix("_knows_"))
        for frame in (left, right)
    ]
    both = known[0].join(known[1], on="session", suffix="_right", validate="1:1")
    both = both.select("session", *(pl.col(f"_knows_{c}") & pl.col(f"_knows_{c}_right") for c in columns))

    def fill(frame: pl.DataFrame) -> pl.DataFrame:
        told = frame.join(both, on="session", how="left", maintain_order="left", validate="m:1")
        used = [
            pl.when(pl.col(f"_knows_{c}").fill_null(False))
            .then(pl.col(c))
            .otherwise(pl.lit(_ABSENT[c]))
            .cast(frame.schema[c])
            for c in columns
        ]
        return told.with_columns(**dict(zip(columns, used, strict=True))).select(frame.columns)

    return fill(left), fill(right)


def executions(system: pl.DataFrame, hardware: pl.DataFrame) -> Executions:
    """Bring together the stages and hardware rows of each execution.

    By exec id within session, process, core and model; by order on the core where hardware rows have none.

    Args:
        system: submits and stages (``rows.Rows.system``); submits are left out here.
        hardware: hardware rows of the Neuron runtime.
    """
    staged, stages = _stage_records(system.filter(pl.col("name").is_in(list(STAGES))))
    work = _clusters(hardware)
    running = work.filter(pl.col("kind") == "execution")
    met = _meet(staged, running)
    lonely = running.join(met, left_on="work", right_on="effect", how="anti")
    records = _records(staged, lonely)
    mine = pl.concat(
        [
            met.select(work="effect", record="cause", method="method"),
            lonely.select("work", record=pl.int_range(pl.len(), dtype=pl.UInt32) + staged.height, method=_none()),
        ]
    )
    others = work.filter(pl.col("kind") != "execution")
    belonging = _belonging(records, others)
    mine = pl.concat([mine, belonging.select(work="effect", record="cause", method=pl.lit("id"))])
    work = work.join(mine, on="work", how="left", validate="1:1", maintain_order="left")
    ambiguous = int(met["ambiguous"].sum()) + int(belonging["ambiguous"].sum())
    return Executions(records, stages, work, ambiguous)


def _none() -> pl.Expr:
    return pl.lit(None, dtype=pl.String)


def _stage_records(stages: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """One row per execution the host stages tell of; a stage that is not later than the one before opens a new one."""
    rank = pl.col("name").replace_strict(STAGES, return_dtype=pl.Int8)
    another = pl.any_horizontal(pl.col(c).ne_missing(pl.col(c).shift()) for c in KEY)
    ordered = stages.sort(*KEY, "start_ns", "event_id").with_columns(
        _part=(another | (rank <= rank.shift())).fill_null(True).cum_sum()
    )
    is_wait = pl.col("name") == WAIT
    records = (
        ordered.group_by("_part", maintain_order=True)
        .agg(
            pl.col(*KEY, "start_ns", "thread_id").first(),
            pl.col("end_ns").max(),
            pl.col("sequence_id").drop_nulls().first(),
            stage_id=pl.col("event_id").first(),
            stage_name=pl.col("name").first(),
            stage_end_ns=pl.col("end_ns").first(),
            event_ids=pl.col("event_id"),
            wait_id=pl.col("event_id").filter(is_wait).first(),
            wait_start_ns=pl.col("start_ns").filter(is_wait).first(),
            wait_end_ns=pl.col("end_ns").filter(is_wait).first(),
        )
        .sort("start_ns", "stage_id")
        .with_columns(cause=pl.int_range(pl.len(), dtype=pl.UInt32), at="start_ns", has_stage=pl.lit(True))
    )
    members = records.select(record="cause", event_id="event_ids").explode("event_id")
    return records.drop("_part", "event_ids"), members


def _clusters(hardware: pl.DataFrame) -> pl.DataFrame:
    """Merge the physical cores of one execution.

    An exec id that each physical core has at most once is one execution. Elsewhere rows of a key that overlap
    in time are, one per physical core.
    """
    key = [*KEY, "kind", "name"]
    counted = hardware.group_by(key).agg(
        clear=pl.col("execution_id").first().is_not_null()
        & pl.col("kind").first().eq("execution")
        & (pl.col("physical_core").drop_nulls().n_unique() == pl.len())
        & (pl.len() <= 2)
    )
    rows = hardware.join(counted, on=key, nulls_equal=True, validate="m:1", maintain_order="left")
    clear = rows.filter("clear").group_by(key, maintain_order=True).agg(*_merged(), device_ns=_union_of_two())
    doubtful = rows.filter(~pl.col("clear"))
    return (
        pl.concat([clear, _overlapping(doubtful, key).select(clear.columns)])
        .sort("start_ns", pl.col("event_ids").list.first())
        .with_columns(work=pl.int_range(pl.len(), dtype=pl.UInt32), at="start_ns")
    )


def _merged() -> list[pl.Expr]:
    return [
        pl.col("stream_id").first(),
        pl.col("start_ns").min(),
        pl.col("end_ns").max(),
        pl.col("event_id").sort().alias("event_ids"),
    ]


def _union_of_two() -> pl.Expr:
    """Length of the union of one or two intervals."""
    shared = pl.max_horizontal(pl.col("end_ns").min() - pl.col("start_ns").max(), 0)
    return (pl.col("end_ns") - pl.col("start_ns")).sum() - pl.when(pl.len() == 2).then(shared).otherwise(0)


def _overlapping(rows: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Rows of a key that overlap in time, the n-th of each physical core together."""
    rows = match.islands(rows, key, "island")
    rows = rows.with_columns(nth=pl.int_range(pl.len(), dtype=pl.UInt32).over("island", "physical_core"))
    busy_until = pl.col("end_ns").cum_max().shift().over("island", "nth")
    new_ns = pl.col("end_ns") - pl.max_horizontal("start_ns", busy_until)
    merged = (
        rows.with_columns(new_ns=pl.max_horizontal(new_ns, 0))
        .group_by("island", "nth", maintain_order=True)
        .agg(pl.col(key).first(), *_merged(), device_ns=pl.col("new_ns").sum())
    )
    return merged.drop("island", "nth")


def _meet(staged: pl.DataFrame, running: pl.DataFrame) -> pl.DataFrame:
    """``effect`` (work), ``cause`` (record), ``ambiguous``, ``method``: stages with hardware."""
    causes, effects = comparable(staged, running.rename({"work": "effect"}), ("process_id", "core_index", "model_id"))
    known = match.pair(causes, effects, KEY).with_columns(method=pl.lit("id"))
    nameless = effects.filter(pl.col("execution_id").is_null())
    if nameless.is_empty():
        return known
    free = causes.join(known, on="cause", how="anti")
    near = match.adjacent(free, nameless, (*TRACK, "model_id")).with_columns(method=pl.lit("order"))
    return pl.concat([known, near])


def _records(staged: pl.DataFrame, lonely: pl.DataFrame) -> pl.DataFrame:
    """Records of both kinds in one frame; those of hardware alone come last."""
    alone = lonely.select(*KEY, "start_ns", "end_ns", "at", has_stage=pl.lit(False)).with_columns(
        cause=pl.int_range(pl.len(), dtype=pl.UInt32) + staged.height
    )
    return pl.concat([staged, alone.with_columns(pl.col("cause").cast(pl.UInt32))], how="diagonal").sort("cause")


def _belonging(records: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    """Collectives and transfers of the hardware that name the execution they belong to."""
    causes, effects = comparable(records, others.rename({"work": "effect"}), ("process_id", "core_index", "model_id"))
    return match.owner(causes, effects, KEY)
