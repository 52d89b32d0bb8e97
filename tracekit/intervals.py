"""Arithmetic on half-open ``[start_ns, end_ns)`` intervals; knows no domain.

Frames hold ``by`` columns (at least one; null is a group of its own) and Int64 ``start_ns``,
``end_ns``. Zero-length intervals cover nothing. Results are exact, whatever the order of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

By = Sequence[str]

START, END = pl.col("start_ns"), pl.col("end_ns")

_ALL_TIME = (-(2**62), 2**62)
"""Before and after everything that can happen: 146 years around 1970."""


def union(spans: pl.LazyFrame, by: By) -> pl.LazyFrame:
    """Merge the intervals of each group into disjoint ones that do not touch.

    Returns:
        ``by``, ``start_ns``, ``end_ns``, sorted so; empty if nothing has a length.
    """
    reached = END.cum_max().shift().over(by)
    island = (reached < START).fill_null(value=True).cum_sum().over(by)
    return (
        spans.select(*by, "start_ns", "end_ns")
        .filter(END > START)
        .sort("start_ns", "end_ns")
        .with_columns(_island=island)
        .group_by(*by, "_island")
        .agg(START.min(), END.max())
        .select(*by, "start_ns", "end_ns")
        .sort(*by, "start_ns")
    )


def length(spans: pl.LazyFrame, by: By) -> pl.LazyFrame:
    """Measure the union of each group.

    Returns:
        ``by``, ``length_ns`` (ns), sorted by ``by``; groups without any length are left out.
    """
    return union(spans, by).group_by(by).agg(length_ns=(END - START).sum()).sort(by)


def gaps(spans: pl.LazyFrame, by: By) -> pl.LazyFrame:
    """Find what lies between the intervals of each group.

    A gap opens once every earlier interval has ended, so nested and overlapping ones never open one.

    Returns:
        ``by``, ``start_ns``, ``end_ns``, sorted so; empty if no two intervals are disjoint.
    """
    previous = END.shift().over(by)
    return (
        union(spans, by).select(*by, start_ns=previous, end_ns=START).filter(START.is_not_null()).sort(*by, "start_ns")
    )


def overlap(left: pl.LazyFrame, right: pl.LazyFrame, by: By) -> pl.LazyFrame:
    """Intersect two sets of intervals, group by group. Returns as ``union`` does."""
    return _combined(left, right, by, (pl.col("_left") > 0) & (pl.col("_right") > 0))


def subtract(left: pl.LazyFrame, right: pl.LazyFrame, by: By) -> pl.LazyFrame:
    """Keep the time of ``left`` that no interval of ``right`` covers. Returns as ``union`` does."""
    return _combined(left, right, by, (pl.col("_left") > 0) & (pl.col("_right") == 0))


def covered(
    rows: pl.LazyFrame,
    spans: pl.LazyFrame,
    by: By,
    name: str = "covered_ns",
    *,
    start: str = "start_ns",
    end: str = "end_ns",
) -> pl.LazyFrame:
    """Add to each row how much of its own interval the union of its group's ``spans`` covers.

    Rows may overlap and keep all their columns; null or inverted intervals give 0.

    Returns:
        ``rows`` plus ``name`` (Int64 ns), in no particular order.
    """
    merged = union(spans, by).with_columns(_before=(END - START).cum_sum().over(by) - (END - START))
    for edge, column in ((start, "_at_start"), (end, "_at_end")):
        rows = _covered_before(rows, pl.col(edge), merged, by, column)
    share = (pl.col("_at_end") - pl.col("_at_start")).clip(lower_bound=0).fill_null(0)
    return rows.with_columns(share.alias(name)).drop("_at_start", "_at_end")


def clip(rows: pl.LazyFrame, windows: pl.LazyFrame, by: By) -> pl.LazyFrame:
    """Cut rows to windows: one row per row and window that overlap.

    Args:
        rows: any frame with ``by``, ``start_ns``, ``end_ns``; rows without a length are dropped.
        windows: disjoint in each group; other columns are added to the result.

    Returns:
        The columns of ``rows`` with the cut times, then the other columns of ``windows``; in no particular order.
    """
    numbered = _numbered(windows, by)
    first = pl.col("_ended")
    last = pl.col("_begun") - 1
    placed = _count_marks(rows.filter(END > START), START, windows, END, by=by, name="_ended")
    placed = _count_marks(placed, END, windows, START, by=by, name="_begun", before=True)
    return (
        placed.filter(first <= last)
        .with_columns(_window=pl.int_ranges(first, last + 1))
        .explode("_window")
        .join(numbered, on=[*by, "_window"], how="inner", nulls_equal=True)
        .with_columns(
            start_ns=pl.max_horizontal("start_ns", "_window_start"),
            end_ns=pl.min_horizontal("end_ns", "_window_end"),
        )
        .drop("_ended", "_begun", "_window", "_window_start", "_window_end")
    )


def within(rows: pl.LazyFrame, windows: pl.LazyFrame, by: By, at: str = "start_ns") -> pl.LazyFrame:
    """Keep the rows that start in a window and add that window's columns.

    Args:
        rows: any frame with ``by`` and the time column ``at``.
        windows: disjoint in each group; columns other than the times are added to the result.

    Returns:
        The columns of ``rows``, then the other columns of ``windows``; in no particular order.
    """
    placed = _count_marks(rows.filter(pl.col(at).is_not_null()), pl.col(at), windows, START, by=by, name="_begun")
    return (
        placed.with_columns(_window=pl.col("_begun") - 1)
        .join(_numbered(windows, by), on=[*by, "_window"], how="inner", nulls_equal=True)
        .filter(pl.col(at) < pl.col("_window_end"))
        .drop("_begun", "_window", "_window_start", "_window_end")
    )


def innermost(spans: pl.LazyFrame, by: By, key: str, groups: pl.LazyFrame | None = None) -> pl.LazyFrame:
    """Find which interval is the innermost one at each time of a group.

    Intervals of a group nest, as calls on a thread do: how many are open is the depth of the innermost,
    which is the last of that depth to have started. Where intervals overlap without nesting, time whose
    candidate has ended belongs to none.

    Args:
        spans: ``by``, ``start_ns``, ``end_ns`` and ``key``, which is never null.
        groups: ``by`` columns; if given, the pieces fill all time of these groups, and ``key`` is null where no
            interval is open. Every group of ``spans`` must be among them.

    Returns:
        ``by``, ``start_ns``, ``end_ns``, ``key``: disjoint pieces, in no particular order.
    """
    lasting = spans.filter(END > START)
    opened = lasting.select(*by, key, _at=START, _until=END, _step=pl.lit(1))
    closed = lasting.select(*by, _at=END, _step=pl.lit(-1))
    points = [opened, closed]
    if groups is not None:
        points += [groups.select(*by, _at=pl.lit(at, dtype=pl.Int64), _step=pl.lit(0)) for at in _ALL_TIME]
    depth = pl.col("_step").cum_sum().over(by)
    is_open = (pl.col("_depth") > 0) & (pl.col("_until") > pl.col("_at"))
    pieces = (
        pl.concat(points, how="diagonal")
        .sort("_at", "_step", "_until", descending=[False, False, True])
        .with_columns(_depth=depth, _next=pl.col("_at").shift(-1).over(by))
        .with_columns(pl.col(key, "_until").forward_fill().over(*by, "_depth"))
        .filter(pl.col("_next") > pl.col("_at"))
        .select(*by, pl.when(is_open).then(key).alias(key), start_ns="_at", end_ns="_next")
    )
    return pieces if groups is not None else pieces.filter(pl.col(key).is_not_null())


def _combined(left: pl.LazyFrame, right: pl.LazyFrame, by: By, wanted: pl.Expr) -> pl.LazyFrame:
    """Sweep over both unions; keep the pieces where ``wanted`` holds for the counts of open intervals."""
    edges = [
        union(spans, by).select(*by, at=edge, _left=pl.lit(sign * is_left), _right=pl.lit(sign * (1 - is_left)))
        for spans, is_left in ((left, 1), (right, 0))
        for edge, sign in ((START, 1), (END, -1))
    ]
    pieces = (
        pl.concat(edges)
        .group_by(*by, "at")
        .agg(pl.col("_left").sum(), pl.col("_right").sum())
        .sort("at")
        .with_columns(
            pl.col("_left").cum_sum().over(by),
            pl.col("_right").cum_sum().over(by),
            end_ns=pl.col("at").shift(-1).over(by),
        )
        .filter(wanted)
        .select(*by, start_ns="at", end_ns="end_ns")
    )
    return union(pieces, by)


def _covered_before(rows: pl.LazyFrame, at: pl.Expr, merged: pl.LazyFrame, by: By, name: str) -> pl.LazyFrame:
    """Add the time that ``merged`` (disjoint, with ``_before``) covers before ``at``."""
    points = rows.with_columns(_at=at, _is_row=pl.lit(1))
    marks = merged.select(*by, _at=START, _is_row=pl.lit(0), _from=START, _to=END, _before="_before")
    filled = pl.col("_from", "_to", "_before").forward_fill().over(by)
    so_far = pl.col("_before") + pl.min_horizontal("_at", "_to") - pl.col("_from")
    return (
        pl.concat([points, marks], how="diagonal")
        .sort("_at", "_is_row")
        .with_columns(filled)
        .filter(pl.col("_is_row") == 1)
        .with_columns(so_far.fill_null(0).alias(name))
        .drop("_at", "_is_row", "_from", "_to", "_before")
    )


def _count_marks(
    rows: pl.LazyFrame,
    at: pl.Expr,
    marks: pl.LazyFrame,
    mark_at: pl.Expr,
    *,
    by: By,
    name: str,
    before: bool = False,
) -> pl.LazyFrame:
    """Add how many marks of the row's group lie at or before ``at`` (strictly before, if ``before``)."""
    points = rows.with_columns(_at=at, _order=pl.lit(-1 if before else 1))
    others = marks.select(*by, _at=mark_at, _order=pl.lit(0))
    is_mark = pl.col("_order") == 0
    return (
        pl.concat([points, others], how="diagonal")
        .sort("_at", "_order")
        .with_columns(is_mark.cast(pl.Int64).cum_sum().over(by).alias(name))
        .filter(~is_mark)
        .drop("_at", "_order")
    )


def _numbered(windows: pl.LazyFrame, by: By) -> pl.LazyFrame:
    """Windows with their number in the group (0 is the first) and their times out of the way."""
    number = pl.int_range(pl.len(), dtype=pl.Int64).over(by)
    return (
        windows.sort("start_ns")
        .with_columns(_window=number)
        .rename({"start_ns": "_window_start", "end_ns": "_window_end"})
    )
