"""Which submit put an execution into the queue: by id, by enclosure, by counters that run in step, by order."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from tracekit.links import match
from tracekit.links.executions import KEY, TRACK, comparable
from tracekit.links.rows import SUBMITS

_QUEUE = 2**48
"""Sequence numbers name their queue in the bits above."""
_QUEUE_DEPTH = 8
"""How many executions may be submitted before one starts, when the step of two counters is sought."""
_SAMPLE = 2_000
"""Executions at either end of a track that a step is sought with."""
_MATCHED = 0.5
"""Share of the rarer of submits and executions that counters in step must explain."""
_THREAD = ("session", "process_id", "thread_id")


class Submitted(NamedTuple):
    """Which submit belongs to which execution: ``submit``, ``record``, ``method``; and how many by time only."""

    pairs: pl.DataFrame
    ambiguous: int


def submits(system: pl.DataFrame) -> pl.DataFrame:
    """One row per submit: the outermost of nested submit calls, with the ids that any of them has.

    Returns:
        ``submit`` (index), ``event_id``, ``KEY``, ``thread_id``, ``sequence_id``, ``start_ns``, ``end_ns``, ``at``,
        ``name``, ``is_main``: false for submits without a sequence number in a session whose others have one
        (a worker's half of a submit that another thread made).
    """
    rows = system.filter(pl.col("name").is_in(list(SUBMITS)))
    rows = match.islands(rows, [*_THREAD, "core_index"], "island")
    several = pl.col("sequence_id").drop_nulls().n_unique().over("island") > 1
    rows = rows.with_columns(own=pl.when(several).then("sequence_id"), several=several)
    first = [pl.col(c).drop_nulls().first() for c in ("sequence_id", "model_id", "execution_id")]
    made = (
        rows.filter(~pl.col("several") | pl.col("own").is_not_null())
        .group_by("island", "own", maintain_order=True)
        .agg(pl.col("event_id", *TRACK, "thread_id", "name", "start_ns", "end_ns").first(), *first)
        .sort("start_ns", "event_id")
    )
    numbered = pl.col("sequence_id").is_not_null()
    return match.indexed(
        made.drop("island", "own").with_columns(at="start_ns", is_main=numbered | ~numbered.any().over("session")),
        "submit",
    )


def submitted(made: pl.DataFrame, records: pl.DataFrame) -> Submitted:
    """Find the submit of each execution, by rules of decreasing certainty.

    Args:
        made: ``submits``.
        records: ``Executions.records``.
    """
    causes, effects = _sides(made.filter("is_main"), records)
    found: list[pl.DataFrame] = []
    ambiguous = 0

    def rest() -> tuple[pl.DataFrame, pl.DataFrame]:
        done = pl.concat([match.NO_MATCH.select("effect", "cause"), *(f.select("effect", "cause") for f in found)])
        return causes.join(done, on="cause", how="anti"), effects.join(done, on="effect", how="anti")

    def add(pairs: pl.DataFrame, method: str) -> None:
        nonlocal ambiguous
        found.append(pairs.with_columns(method=pl.lit(method)))
        ambiguous += int(pairs["ambiguous"].sum())

    add(match.pair(*rest(), KEY), "id")
    add(match.pair(*rest(), ("session", "process_id", "sequence_id")), "id")
    add(_enclosed(*rest()), "enclosure")
    stepped, settled = _in_step(*rest())
    add(stepped, "order")
    left, right = rest()
    add(_in_order(left, right.join(settled, on=TRACK, how="anti", nulls_equal=True)), "order")
    causes, _ = _sides(made.filter(~pl.col("is_main")), records)
    left, right = rest()
    add(_enclosed(left, right), "enclosure")
    add(_in_order(*rest()), "order")
    pairs = pl.concat(found).select(submit="cause", record="effect", method="method")
    return Submitted(pairs, ambiguous)


def _sides(made: pl.DataFrame, records: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    causes = made.rename({"submit": "cause"})
    effects = records.rename({"cause": "effect"})
    return comparable(causes, effects, ("process_id", "core_index", "model_id"))


def _enclosed(causes: pl.DataFrame, effects: pl.DataFrame) -> pl.DataFrame:
    """Executions whose stages lie inside a synchronous submit on the same thread."""
    if causes.is_empty() or effects.is_empty():
        return match.NO_MATCH
    inside = (
        effects.filter("has_stage")
        .select("effect", "at", "end_ns", "model_id", *_THREAD)
        .drop_nulls(_THREAD)
        .sort("at")
        .join_asof(
            causes.select("cause", "at", *_THREAD, submit_end_ns="end_ns", submit_model="model_id")
            .drop_nulls(_THREAD)
            .sort("at"),
            on="at",
            by=list(_THREAD),
            strategy="backward",
            check_sortedness=False,
        )
        .filter(pl.col("end_ns") <= pl.col("submit_end_ns"), _same_model())
    )
    kept = inside.unique("cause", keep="first", maintain_order=True)
    return kept.select("effect", "cause", ambiguous=pl.lit(False))


def _in_order(causes: pl.DataFrame, effects: pl.DataFrame) -> pl.DataFrame:
    """Neighbours in time on the same core, of the same model where both name it."""
    return match.adjacent(causes, effects, (*TRACK, "model_id"))


def _in_step(causes: pl.DataFrame, effects: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Pair by counters: sequence numbers of a queue and exec ids of a core that rise together.

    The step between the two counters is the one that explains the most executions of a core: their
    submit exists, comes first and has the same model; of equal steps the one with the shortest wait. Known
    so, it stays right where events were dropped. Only for cores whose exec ids are unique: elsewhere they
    count per model.

    Returns:
        The pairs, and the tracks that they settle (nothing else may be linked by order there).
    """
    settled = effects.select(TRACK).clear()
    submit = causes.filter(pl.col("sequence_id").is_not_null()).with_columns(
        queue=pl.col("sequence_id") // _QUEUE, low=(pl.col("sequence_id") % _QUEUE).cast(pl.Int64)
    )
    counted = effects.filter(pl.col("execution_id").is_not_null()).filter(
        ~pl.col("execution_id").is_duplicated().any().over(TRACK)
    )
    if submit.is_empty() or counted.is_empty():
        return match.NO_MATCH, settled
    best = _steps(submit, _ends_of_tracks(counted))
    pairs = (
        _tried(submit, counted, best)
        .filter("fits")
        .sort("wait_ns", "effect")
        .unique("effect", keep="first", maintain_order=True)
        .unique("cause", keep="first", maintain_order=True)
    )
    return pairs.select("effect", "cause", ambiguous=pl.lit(False)), best.select(TRACK).unique()


def _ends_of_tracks(counted: pl.DataFrame) -> pl.DataFrame:
    """First and last executions of each track: enough to find a step, and where a wrong one shows."""
    place, rows = pl.int_range(pl.len()).over(TRACK), pl.len().over(TRACK)
    return counted.sort("at").filter((place < _SAMPLE) | (place >= rows - _SAMPLE))


def _tried(submit: pl.DataFrame, counted: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Executions with the submit that a step gives them: ``wait_ns`` between them, and whether it ``fits``."""
    met = (
        counted.select("effect", "at", "execution_id", "model_id", "has_stage", *TRACK)
        .join(steps.select(*TRACK, "queue", "step"), on=TRACK)
        .with_columns(low=pl.col("execution_id") + pl.col("step"))
        .join(
            submit.select(*TRACK, "queue", "low", "cause", submit_at="at", submit_model="model_id"),
            on=[*TRACK, "queue", "low"],
        )
        .with_columns(wait_ns=pl.col("at") - pl.col("submit_at"))
    )
    return met.with_columns(fits=((pl.col("wait_ns") >= 0) | ~pl.col("has_stage")) & _same_model())


def _same_model() -> pl.Expr:
    """Submit and execution do not name different models."""
    return (pl.col("submit_model") == pl.col("model_id")).fill_null(True)


def _steps(submit: pl.DataFrame, counted: pl.DataFrame) -> pl.DataFrame:
    """``TRACK``, ``queue``, ``step`` (sequence number minus exec id): the best step of each track."""
    near = _latest_submit(counted, submit)
    likely = (
        near.group_by(*TRACK, "queue", step=pl.col("low") - pl.col("execution_id"))
        .agg(rows=pl.len())
        .sort("rows", "step", descending=[True, False])
        .group_by(*TRACK, "queue", maintain_order=True)
        .head(2)
    )
    shifts = pl.DataFrame({"shift": range(_QUEUE_DEPTH)}, schema={"shift": pl.Int64})
    candidates = (
        likely.join(shifts, how="cross").select(*TRACK, "queue", step=pl.col("step") - pl.col("shift")).unique()
    )
    scores = (
        _tried(submit, counted, candidates)
        .group_by(*TRACK, "queue", "step")
        .agg(fit=pl.col("fits").sum(), wait_ns=pl.col("wait_ns").median())
        .sort("fit", "wait_ns", "step", descending=[True, False, False])
        .group_by(*TRACK, "queue", maintain_order=True)
        .first()
    )
    return _convincing(scores, submit, counted)


def _latest_submit(counted: pl.DataFrame, submit: pl.DataFrame) -> pl.DataFrame:
    return (
        counted.select("effect", "at", "execution_id", *TRACK)
        .drop_nulls()
        .sort("at")
        .join_asof(
            submit.select("at", "queue", "low", *TRACK).drop_nulls().sort("at"),
            on="at",
            by=list(TRACK),
            strategy="backward",
            check_sortedness=False,
        )
        .drop_nulls("low")
    )


def _convincing(scores: pl.DataFrame, submit: pl.DataFrame, counted: pl.DataFrame) -> pl.DataFrame:
    """Steps that explain at least two executions and enough of the rarer side."""
    made = submit.group_by(*TRACK, "queue").agg(made=pl.len())
    ran = counted.group_by(TRACK).agg(ran=pl.len())
    judged = scores.join(made, on=[*TRACK, "queue"]).join(ran, on=TRACK)
    return judged.filter(pl.col("fit") >= pl.max_horizontal(2, _MATCHED * pl.min_horizontal("made", "ran")))
