"""Arithmetic on half-open ``[start_ns, end_ns)`` intervals; knows no domain.

Frames hold ``by`` columns (at least one; null is a group of its own) and Int64 ``start_ns``,
``end_ns``. Zero-length intervals cover nothing. Results are exact, whatever the order of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

By = Sequence[str]

START, END = pl.col("start_ns"), pl.col("end_ns")

_ALL_TIME = (-(2**62), 2**62)
"""Before and after everything that can happen: 146 years around 1970."""


def union(spans: pl.LazyFrame, by: By) -> pl.LazyFrame:
    """Merge the intervals of each group into disjoint ones that do not touch.

    Returns:
        ``by``, ``start_ns``, ``end_ns``, sorted by start; empty if nothing has a length.
    """
    reached = END.cum_max().shift().over(by)
    is_first = (pl.col("_reached") < START).fill_null(value=True)
    until = pl.col("_reached").shift(-1).over(by)
    return (
        spans.select(*by, "start_ns", "end_ns")
        .filter(END > START)
        .sort("start_ns")
        .with_columns(_reached=reached, _last=END.max().over(by))
        .filter(is_first)
        .select(*by, "start_ns", end_ns=pl.coalesce(until, "_last"))
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
        ``by``, ``start_ns``, ``end_ns``, sorted by start; empty if no two intervals are disjoint.
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
    merged = union(spans, by).with_columns(_since=(END - START).cum_sum().over(by) - END)
    for edge, column in ((start, "_at_start"), (end, "_at_end")):
        rows = _covered_before(rows, pl.col(edge), merged, by, column)
    share = (pl.col("_at_end") - pl.col("_at_start")).clip(lower_bound=0).fill_null(0)
    return rows.with_columns(share.alias(name)).drop("_at_start", "_at_end")


def measure(
    windows: pl.LazyFrame, layers: Mapping[str, pl.LazyFrame], by: By, totals: Mapping[str, pl.Expr]
) -> pl.LazyFrame:
    """Add to each window how long some condition on the layers holds in it.

    One sweep over every edge, so that any number of layers and conditions costs one sort.

    Args:
        windows: disjoint in each group, any columns beside ``by`` and the times.
        layers: intervals by name, disjoint in each group, as ``union`` gives them.
        by: columns that name a group.
        totals: conditions by name of the result, over one Boolean column per layer.

    Returns:
        ``windows`` plus the ``totals`` (Int64 ns), in no particular order; windows without a length are dropped.
    """
    windows = windows.filter(END > START).with_row_index("_window").cache()
    edges = [
        windows.select(*by, "_window", _at=START, _inside=pl.lit(1, dtype=pl.Int32)),
        windows.select(*by, _at=END, _inside=pl.lit(-1, dtype=pl.Int32)),
    ]
    for name, spans in layers.items():
        edges += [
            spans.select(*by, pl.lit(sign, dtype=pl.Int32).alias(name), _at=edge)
            for edge, sign in ((START, 1), (END, -1))
        ]
    length = pl.col("_next") - pl.col("_at")
    measured = (
        pl.concat(edges, how="diagonal")
        .sort("_at", maintain_order=True)
        .with_columns(
            pl.col("_inside", *layers).fill_null(0).cum_sum().over(by),
            pl.col("_window").forward_fill().over(by),
            _next=pl.col("_at").shift(-1).over(by),
        )
        .filter((pl.col("_inside") > 0) & (pl.col("_next") > pl.col("_at")))
        .select("_window", "_at", "_next", *(pl.col(name) > 0 for name in layers))
        .group_by("_window")
        .agg(length.filter(condition).sum().alias(name) for name, condition in totals.items())
    )
    return windows.join(measured, on="_window", how="left").drop("_window")


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
    opened = lasting.select(*by, key, _at=START, _until=END, _step=pl.lit(1)).sort("_until", descending=True)
    closed = lasting.select(*by, _at=END, _step=pl.lit(-1))
    points = [closed, opened]
    if groups is not None:
        points += [groups.select(*by, _at=pl.lit(at, dtype=pl.Int64), _step=pl.lit(0)) for at in _ALL_TIME]
    depth = pl.col("_step").cum_sum().over(by)
    is_open = (pl.col("_depth") > 0) & (pl.col("_until") > pl.col("_at"))
    pieces = (
        pl.concat(points, how="diagonal")
        .sort("_at", maintain_order=True)
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
    """Add the time that ``merged`` covers before ``at``; its ``_since`` is what it covered before, less its start."""
    points = rows.with_columns(_at=at, _is_row=pl.lit(value=True))
    marks = merged.select(*by, "_since", _at=START, _until=END, _is_row=pl.lit(value=False))
    so_far = pl.col("_since") + pl.min_horizontal("_at", "_until")
    return (
        pl.concat([marks, points], how="diagonal")
        .sort("_at", maintain_order=True)
        .with_columns(pl.col("_since", "_until").forward_fill().over(by))
        .filter(pl.col("_is_row"))
        .with_columns(so_far.fill_null(0).alias(name))
        .drop("_at", "_is_row", "_since", "_until")
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
    points = rows.with_columns(_at=at, _is_mark=pl.lit(value=False))
    others = marks.select(*by, _at=mark_at, _is_mark=pl.lit(value=True))
    is_mark = pl.col("_is_mark")
    parts = [points, others] if before else [others, points]
    return (
        pl.concat(parts, how="diagonal")
        .sort("_at", maintain_order=True)
        .with_columns(is_mark.cast(pl.Int64).cum_sum().over(by).alias(name))
        .filter(~is_mark)
        .drop("_at", "_is_mark")
    )


def _numbered(windows: pl.LazyFrame, by: By) -> pl.LazyFrame:
    """Windows with their number in the group (0 is the first) and their times out of the way."""
    number = pl.int_range(pl.len(), dtype=pl.Int64).over(by)
    return (
        windows.sort("start_ns")
        .with_columns(_window=number)
        .rename({"start_ns": "_window_start", "end_ns": "_window_end"})
    )
