"""Find the innermost interval that encloses a moment on the same track."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

_END, _START, _MOMENT = 0, 1, 2
"""Order of points at one time: intervals are half-open."""


def innermost(intervals: pl.DataFrame, moments: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Find for each moment the innermost interval that is open then.

    Intervals of a track nest, as calls do. Then the number of intervals open at a moment is the depth of
    the innermost, which is the last one of that depth to have started: one sort and one forward fill,
    O(n log n). Where a broken trace lets intervals overlap without nesting, a candidate that does
    not hold the moment is refused, so that a link may be missed but none is invented.

    Args:
        intervals: ``event_id``, ``start_ns``, ``end_ns`` and ``by`` (without nulls).
        moments: ``effect`` (a unique index), ``at`` and ``by``.

    Returns:
        ``effect``, ``event_id``, for moments that an interval holds (``start ≤ at < end``).
    """
    lasting = intervals.filter(pl.col("end_ns") > pl.col("start_ns"))
    points = pl.concat(
        [
            _points(lasting, by, at="end_ns", order=_END, step=-1),
            _points(lasting, by, "event_id", "end_ns", at="start_ns", order=_START, step=1),
            _points(moments, by, "effect", at="at", order=_MOMENT, step=0),
        ],
        how="diagonal",
    ).sort(*by, "at", "order", -pl.col("end_ns").fill_null(0))
    open_then = (
        points.with_columns(depth=pl.col("step").cum_sum().over(by))
        .filter(pl.col("order") > _END)
        .with_columns(pl.col("event_id", "end_ns").forward_fill().over(*by, "depth"))
    )
    return open_then.filter(pl.col("effect").is_not_null(), pl.col("end_ns") > pl.col("at")).select(
        "effect", "event_id"
    )


def _points(frame: pl.DataFrame, by: Sequence[str], *columns: str, at: str, order: int, step: int) -> pl.DataFrame:
    return frame.select(
        *by, *columns, _at=pl.col(at), order=pl.lit(order, pl.Int8), step=pl.lit(step, pl.Int32)
    ).rename({"_at": "at"})
