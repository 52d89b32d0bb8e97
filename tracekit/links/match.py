"""Match causes with effects, row to row, without ever fanning out.

Every function takes eager frames: causes hold ``cause`` (a unique index) and ``at`` (start in ns), effects hold
``effect`` and ``at``, and both hold the columns of ``by``. A row with a null in ``by`` matches nothing.
Results have the columns ``effect``, ``cause`` and ``ambiguous`` (the key stood on several rows, so that
time decided), each effect at most once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import polars as pl

MATCH_SCHEMA = {"effect": pl.UInt32(), "cause": pl.UInt32(), "ambiguous": pl.Boolean()}
NO_MATCH = pl.DataFrame(schema=MATCH_SCHEMA)


def indexed(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """``frame`` with a unique ``UInt32`` index called ``name`` in front."""
    return frame.with_columns(pl.int_range(pl.len(), dtype=pl.UInt32).alias(name)).select(name, pl.exclude(name))


def pair(causes: pl.DataFrame, effects: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Pair one cause with one effect of the same key.

    Where a key stands equally often on both sides, the n-th in time meets the n-th. Where it does not, an
    effect takes the latest cause at or before it, and a cause keeps its earliest effect.

    Returns:
        ``effect``, ``cause``, ``ambiguous``; both indexes at most once.
    """
    left, right = _keyed(causes, "cause", by), _keyed(effects, "effect", by)
    repeated = pl.concat([_repeated(left, by), _repeated(right, by)]).unique()
    if repeated.is_empty():
        return _sure(left, right, by)
    once = [f.join(repeated, on=by, how="anti") for f in (left, right)]
    several = [f.join(repeated, on=by, how="semi") for f in (left, right)]
    return pl.concat([_sure(once[0], once[1], by), _paired_in_time(several[0], several[1], by)])


def _paired_in_time(causes: pl.DataFrame, effects: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    left, right = _numbered(causes, "cause", by), _numbered(effects, "effect", by)
    met = right.join(left, on=[*by, "nth"], suffix="_cause", validate="1:1")
    is_even = pl.col("rows") == pl.col("rows_cause")
    even = met.filter(is_even).select("effect", "cause", ambiguous=pl.lit(True))
    odd = met.filter(~is_even, pl.col("nth") == 0).select(by)
    if odd.is_empty():
        return even
    uneven = _latest(right.join(odd, on=by, how="semi"), left.join(odd, on=by, how="semi"), by)
    kept = uneven.unique("cause", keep="first", maintain_order=True)
    return pl.concat([even, kept.with_columns(ambiguous=pl.lit(True))])


def owner(causes: pl.DataFrame, effects: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Give each effect its cause; one cause may have many effects.

    A key on one cause decides. On several, the latest cause at or before the effect is taken, and the
    earliest one for effects before all of them.

    Returns:
        ``effect``, ``cause``, ``ambiguous``; each effect at most once.
    """
    left, right = _keyed(causes, "cause", by), _keyed(effects, "effect", by)
    repeated = _repeated(left, by)
    if repeated.is_empty():
        return _sure(left, right, by, validate="m:1")
    sure = _sure(left.join(repeated, on=by, how="anti"), right, by, validate="m:1")
    several = _numbered(left.join(repeated, on=by, how="semi"), "cause", by)
    doubtful = right.join(repeated, on=by, how="semi").sort("at")
    earliest = doubtful.join(several.filter(pl.col("nth") == 0).drop("at"), on=by, validate="m:1")
    latest = _latest(doubtful, several, by, keep_all=True)
    decided = latest.join(earliest.select("effect", earliest="cause"), on="effect", validate="1:1").select(
        "effect", cause=pl.coalesce("cause", "earliest"), ambiguous=pl.lit(True)
    )
    return pl.concat([sure, decided])


def adjacent(causes: pl.DataFrame, effects: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Pair causes and effects of one track by order in time alone.

    A track with equally many of both, each n-th effect at or after the n-th cause, is a queue: first in, first
    out. Elsewhere only neighbours pair: the latest cause before an effect whose next effect that one is.

    Returns:
        ``effect``, ``cause``, ``ambiguous``; both indexes at most once.
    """
    if causes.is_empty() or effects.is_empty():
        return NO_MATCH
    left, right = _numbered(causes, "cause", by), _numbered(effects, "effect", by)
    met = right.join(left, on=[*by, "nth"], suffix="_cause", validate="1:1")
    in_order = (pl.col("rows") == pl.col("rows_cause")) & (pl.col("at") >= pl.col("at_cause"))
    met = met.with_columns(is_queue=in_order.all().over(by))
    queued = met.filter("is_queue").select("effect", "cause", ambiguous=pl.lit(False))
    rest = met.filter(~pl.col("is_queue"), pl.col("nth") == 0).select(by)
    if rest.is_empty():
        return queued
    near = _latest(right.join(rest, on=by, how="semi"), left.join(rest, on=by, how="semi"), by)
    nearest = near.unique("cause", keep="first", maintain_order=True)
    return pl.concat([queued, nearest.with_columns(ambiguous=pl.lit(True))])


def islands(frame: pl.DataFrame, by: Sequence[str], name: str) -> pl.DataFrame:
    """Number the groups of events of a track that overlap in time.

    Args:
        frame: ``start_ns``, ``end_ns`` and ``by`` (null is a value of its own).

    Returns:
        The rows sorted by start, longest first, with ``name``: the same number means the same track and
        an unbroken overlap. Events that start together overlap whatever their length.
    """
    busy_until = pl.col("end_ns").cum_max().shift().over(by)
    earlier = pl.col("start_ns").shift().over(by)
    opens = busy_until.is_null() | ((pl.col("start_ns") >= busy_until) & (pl.col("start_ns") > earlier))
    return (
        frame.sort("start_ns", "end_ns", descending=[False, True], maintain_order=True)
        .with_columns(opens.alias("_opens"))
        .sort(*by, maintain_order=True)
        .with_columns(pl.col("_opens").cum_sum().cast(pl.UInt32).alias(name))
        .drop("_opens")
    )


def _keyed(frame: pl.DataFrame, index: str, by: Sequence[str]) -> pl.DataFrame:
    """Rows with a whole key."""
    return frame.select(index, "at", *by).drop_nulls(by)


def _repeated(frame: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Keys that stand on several rows."""
    return frame.group_by(by).agg(rows=pl.len()).filter(pl.col("rows") > 1).select(by)


def _sure(
    causes: pl.DataFrame, effects: pl.DataFrame, by: Sequence[str], *, validate: Literal["1:1", "m:1"] = "1:1"
) -> pl.DataFrame:
    """Matches by keys that stand on one cause."""
    joined = effects.join(causes.drop("at"), on=by, validate=validate)
    return joined.select("effect", "cause", ambiguous=pl.lit(False))


def _numbered(frame: pl.DataFrame, index: str, by: Sequence[str]) -> pl.DataFrame:
    """Rows with a whole key, in time order, with their number within the key and how many it has."""
    return (
        _keyed(frame, index, by)
        .sort("at", index)
        .with_columns(nth=pl.int_range(pl.len(), dtype=pl.UInt32).over(by), rows=pl.len().cast(pl.UInt32).over(by))
    )


def _latest(effects: pl.DataFrame, causes: pl.DataFrame, by: Sequence[str], *, keep_all: bool = False) -> pl.DataFrame:
    """Each effect with the latest cause at or before it; both sides sorted by ``at``, result in order of time."""
    joined = effects.select("effect", "at", *by).join_asof(
        causes.select("cause", "at", *by), on="at", by=list(by), strategy="backward", check_sortedness=False
    )
    found = joined if keep_all else joined.drop_nulls("cause")
    return found.select("effect", "cause")
