"""Which operator launched something: by External id, else by enclosure in time on the same thread."""

from __future__ import annotations

import polars as pl

from tracekit.links.enclosure import innermost
from tracekit.links.rows import is_id

_THREAD = ("session", "process_id", "thread_id")
_ID = ("session", "external_id")


def operators(queries: pl.DataFrame, ops: pl.LazyFrame, echoing: pl.DataFrame) -> pl.DataFrame:
    """Find the operator of each query.

    The operator whose ``External id`` is the query's and that started last, before the query. In sessions
    where External ids merely echo correlations (old Kineto) that operator must also be open at that
    moment. What has none is given the innermost operator open on its thread.

    Args:
        queries: ``effect`` (index), ``session``, ``process_id``, ``thread_id``, ``external_id``, ``at``.
        ops: ``rows.Rows.operators``.
        echoing: ``session`` of those sessions.

    Returns:
        ``effect``, ``event_id``, ``method``, ``name``, ``start_ns``, ``end_ns``; each effect at most once.
    """
    by_id = _by_external_id(queries, ops)
    doubted = by_id.join(echoing, on="session", how="semi").filter(pl.col("end_ns") <= pl.col("at"))
    by_id = by_id.join(doubted, on="effect", how="anti")
    by_time = _by_enclosure(queries.join(by_id, on="effect", how="anti"), ops)
    columns = ("effect", "event_id", "method", "name", "start_ns", "end_ns")
    return pl.concat([by_id.select(columns), by_time.select(columns)])


def echoing(calls: pl.DataFrame) -> pl.DataFrame:
    """Sessions in which every call's External id is its correlation."""
    both = calls.drop_nulls(["external_id", "correlation_id"])
    return (
        both.group_by("session")
        .agg(echo=(pl.col("external_id") == pl.col("correlation_id")).all())
        .filter("echo")
        .select("session")
    )


def _by_external_id(queries: pl.DataFrame, ops: pl.LazyFrame) -> pl.DataFrame:
    asked = queries.filter(is_id("external_id")).select("effect", *_ID, "at")
    ids = asked.select(_ID).unique()
    if ids.is_empty():
        return _nothing(asked)
    named = (
        ops.join(ids.lazy(), on=list(_ID), how="semi")
        .select("event_id", *_ID, "name", "start_ns", "end_ns", at="start_ns")
        .collect(engine="streaming")
        .sort("at", "event_id")
    )
    found = asked.sort("at").join_asof(named, on="at", by=list(_ID), strategy="backward", check_sortedness=False)
    return found.drop_nulls("event_id").with_columns(method=pl.lit("id"))


def _by_enclosure(queries: pl.DataFrame, ops: pl.LazyFrame) -> pl.DataFrame:
    asked = queries.select("effect", *_THREAD, "at").drop_nulls()
    tracks = asked.select(_THREAD).unique()
    if tracks.is_empty():
        return _nothing(asked)
    near = ops.join(tracks.lazy(), on=list(_THREAD), how="semi")
    spans = near.select("event_id", *_THREAD, "start_ns", "end_ns").collect(engine="streaming")
    found = innermost(spans, asked, _THREAD)
    names = near.select("event_id", "name", "start_ns", "end_ns").join(
        found.select(pl.col("event_id").unique()).lazy(), on="event_id", how="semi"
    )
    return found.join(names.collect(engine="streaming"), on="event_id", validate="m:1").with_columns(
        method=pl.lit("enclosure")
    )


def _nothing(asked: pl.DataFrame) -> pl.DataFrame:
    empty = {"event_id": pl.Int64(), "method": pl.String(), "name": pl.String()}
    return asked.clear().with_columns(
        *(pl.lit(None, dtype=t).alias(n) for n, t in empty.items()),
        start_ns=pl.lit(None, dtype=pl.Int64),
        end_ns=pl.lit(None, dtype=pl.Int64),
    )
