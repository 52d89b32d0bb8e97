"""Arithmetic on half-open ``[start_ns, end_ns)`` intervals; knows no domain.

Frames hold ``by`` columns (at least one; null is a group of its own) and Int64 ``start_ns``,
``end_ns``. Zero-length intervals cover nothing. Results are exact, whatever the order of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

By = Sequence[str]
Integers = npt.NDArray[np.int64]

START, END = pl.col("start_ns"), pl.col("end_ns")

_ALL_TIME = (-(2**62), 2**62)
"""Before and after everything that can happen: 146 years around 1970."""


def group_numbers(keys: pl.DataFrame) -> pl.Series:
    """Number rows by their values, rising with these, null first; quick where equal rows follow one another."""
    run = keys.select(pl.struct(pl.all()).rle_id()).to_series()
    firsts = keys.filter(run.ne_missing(run.shift()))
    known = firsts.unique().sort(pl.all()).with_row_index("_group")
    numbers = firsts.join(known, on=keys.columns, how="left", nulls_equal=True, maintain_order="left")["_group"]
    of_rows: pl.Series = numbers.cast(pl.Int64).gather(run)
    return of_rows


def union(spans: pl.LazyFrame, by: By) -> pl.LazyFrame:
    """Merge the intervals of each group into disjoint ones that do not touch.

    Returns:
        ``by``, ``start_ns``, ``end_ns``, sorted by start; empty if nothing has a length.
    """
    lasting = spans.select(*by, "start_ns", "end_ns").filter(END > START)
    return lasting.map_batches(lambda frame: _merged(frame, by), schema=lasting.collect_schema())


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
    marks = union(spans, by).select(*by, _from="start_ns", _until="end_ns")
    points = rows.with_columns(_from=start, _until=end)
    found = pl.struct(*by, pl.col("_from", "_until").fill_null(0), "_is_mark").map_batches(
        lambda both: _covered(both.struct.unnest(), by), return_dtype=pl.Int64
    )
    is_known = pl.col("_from").is_not_null() & pl.col("_until").is_not_null()
    return (
        _marked(points, marks)
        .with_columns(pl.when(is_known).then(found.clip(lower_bound=0)).otherwise(0).alias(name))
        .filter(~pl.col("_is_mark"))
        .drop("_from", "_until", "_is_mark")
    )


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
    lasting = [
        frame.filter(END > START)
        for frame in (windows, *(spans.select(*by, "start_ns", "end_ns") for spans in layers.values()))
    ]
    found = pl.struct(*by, "start_ns", "end_ns", "_layer").map_batches(
        lambda rows: _measured(rows.struct.unnest(), by, tuple(layers), totals),
        return_dtype=pl.Struct({name: pl.Int64() for name in totals}),
    )
    return (
        pl.concat([spans.with_columns(_layer=pl.lit(n)) for n, spans in enumerate(lasting)], how="diagonal")
        .with_columns(_found=found)
        .filter(pl.col("_layer") == 0)
        .drop("_layer")
        .unnest("_found")
    )


def clip(rows: pl.LazyFrame, windows: pl.LazyFrame, by: By) -> pl.LazyFrame:
    """Cut rows to windows: one row per row and window that overlap.

    Args:
        rows: any frame with ``by``, ``start_ns``, ``end_ns``; rows without a length are dropped.
        windows: disjoint in each group; other columns are added to the result.

    Returns:
        The columns of ``rows`` with the cut times, then the other columns of ``windows``; in no particular order.
    """
    place = {*by, "start_ns", "end_ns"}
    added = {name: dtype for name, dtype in windows.collect_schema().items() if name not in place}
    marks = windows.select(*by, "start_ns", "end_ns", _window=pl.struct("start_ns", "end_ns", *added))
    both = _marked(rows.filter(END > START), marks)
    return both.map_batches(
        lambda frame: _clipped(frame, by),
        predicate_pushdown=False,
        projection_pushdown=False,
        slice_pushdown=False,
        schema={**rows.collect_schema(), **added},
    )


def within(rows: pl.LazyFrame, windows: pl.LazyFrame, by: By, at: str = "start_ns") -> pl.LazyFrame:
    """Keep the rows that start in a window and add that window's columns.

    Args:
        rows: any frame with ``by`` and the time column ``at``.
        windows: disjoint in each group; columns other than the times are added to the result.

    Returns:
        The columns of ``rows``, then the other columns of ``windows``; in no particular order.
    """
    schema = dict(_apart(windows, *by, "start_ns").collect_schema())
    marks = _apart(windows).select(*by, pl.struct(*schema).alias("_window"), _at="_window_start")
    points = rows.filter(pl.col(at).is_not_null()).with_columns(_at=at)
    found = pl.struct(*by, "_at", "_is_mark", "_window").map_batches(
        lambda both: _last_begun(both.struct.unnest(), by), return_dtype=pl.Struct(schema)
    )
    return (
        _marked(points, marks)
        .with_columns(_window=found)
        .filter(~pl.col("_is_mark") & (pl.col("_at") < pl.col("_window").struct.field("_window_end")))
        .drop("_at", "_is_mark")
        .unnest("_window")
        .drop("_window_end")
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


def _merged(lasting: pl.DataFrame, by: By) -> pl.DataFrame:
    """The union of intervals that have a length."""
    groups = group_numbers(lasting.select(by)).to_numpy()
    start, end = lasting["start_ns"].to_numpy(), lasting["end_ns"].to_numpy()
    order = np.lexsort((start, groups))
    groups, start, end = groups[order], start[order], end[order]
    is_new = np.append(True, groups[1:] != groups[:-1])[: len(groups)]
    parts = np.split(end, np.flatnonzero(is_new)[1:])
    reached = np.concatenate([np.maximum.accumulate(part) for part in parts])
    is_new[1:] |= start[1:] > reached[:-1]
    first = np.flatnonzero(is_new)
    last = np.append(first[1:], len(start))[: len(first)] - 1
    times = {"start_ns": pl.Series(start[first]), "end_ns": pl.Series(reached[last])}
    return lasting[order[first]].select(by).with_columns(**times).sort("start_ns")


def _apart(windows: pl.LazyFrame, *without: str) -> pl.LazyFrame:
    """Windows with their times out of the way of those of rows."""
    times = {"start_ns": "_window_start", "end_ns": "_window_end"}
    return windows.drop(without).rename(times, strict=False)


def _marked(rows: pl.LazyFrame, marks: pl.LazyFrame) -> pl.LazyFrame:
    """Rows, then marks: what lies before a row is found within one frame, so that plans stay lazy."""
    both = [frame.with_columns(_is_mark=pl.lit(value)) for frame, value in ((rows, False), (marks, True))]
    return pl.concat(both, how="diagonal")


def _measured(rows: pl.DataFrame, by: By, layers: Sequence[str], totals: Mapping[str, pl.Expr]) -> pl.Series:
    """How long each condition holds in each row of ``_layer`` 0, which are the windows; 0 for other rows.

    The state at a time is a number with one bit per layer. Every interval adds its bit and takes it away again, so
    that a running sum over the edges of all groups, one after the other, needs no reset.
    """
    groups, layer = group_numbers(rows.select(by)).to_numpy(), rows["_layer"].to_numpy().astype(np.int64)
    start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    at, bit = np.concatenate([start, end]), np.int64(1) << layer
    order = np.lexsort((at, np.concatenate([groups, groups])))
    state = np.cumsum(np.concatenate([bit, -bit])[order])
    opens = (order < len(layer)) & (layer[order % max(len(layer), 1)] == 0)
    window = order[np.maximum.accumulate(np.where(opens, np.arange(len(order)), 0))]
    length = np.diff(at[order], append=0)
    inside = ((state & 1) == 1) & (length > 0)
    state, window, length = state[inside], window[inside], length[inside]
    states = np.arange(2 ** (len(layers) + 1))
    table = pl.DataFrame({name: (states >> n) & 1 == 1 for n, name in enumerate(layers, 1)})
    sums = {}
    for name, holds in table.select(**totals).to_dict().items():
        counted = holds.to_numpy()[state]
        sums[name] = np.zeros(len(layer), np.int64)
        np.add.at(sums[name], window[counted], length[counted])
    return pl.DataFrame(sums).to_struct()


def _covered(both: pl.DataFrame, by: By) -> pl.Series:
    """How much of ``_from`` to ``_until`` the disjoint marks of a row's group cover; below 0 if these are inverted."""
    groups, is_mark = group_numbers(both.select(by)).to_numpy(), both["_is_mark"].to_numpy()
    marks = (
        pl.DataFrame({"group": groups}).hstack(both.select("_from", "_until")).filter(is_mark).sort("group", "_from")
    )
    mark_groups, start, end = (marks[column].to_numpy() for column in ("group", "_from", "_until"))
    length_before = np.append(0, np.cumsum(end - start))
    earlier = np.searchsorted(mark_groups, groups)

    def before(at: Integers) -> Integers:
        begun = _count_before(groups, at, mark_groups, start, "right")
        not_yet = np.append(end, 0)[begun - 1] - at
        return length_before[begun] - np.where(begun > earlier, np.maximum(not_yet, 0), 0)

    return pl.Series(before(both["_until"].to_numpy()) - before(both["_from"].to_numpy()))


def _clipped(both: pl.DataFrame, by: By) -> pl.DataFrame:
    """One row per row and mark that overlap: the marks that have begun before the row ends, but for those that have
    ended when it starts, are the n-th to the m-th in the order of ``by`` and start."""
    groups, is_mark = group_numbers(both.select(by)).to_numpy(), both["_is_mark"].to_numpy()
    start, end = both["start_ns"].to_numpy(), both["end_ns"].to_numpy()
    marks, rows = np.flatnonzero(is_mark), np.flatnonzero(~is_mark)
    marks = marks[np.lexsort((start[marks], groups[marks]))]
    ended = _count_before(groups[rows], start[rows], groups[marks], end[marks], "right")
    begun = _count_before(groups[rows], end[rows], groups[marks], start[marks], "left")
    count = np.maximum(begun - ended, 0)
    nth = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    windows = both["_window"].gather(marks[np.repeat(ended, count) + nth]).struct.unnest()
    cut = [
        pl.Series("start_ns", np.maximum(np.repeat(start[rows], count), windows["start_ns"].to_numpy())),
        pl.Series("end_ns", np.minimum(np.repeat(end[rows], count), windows["end_ns"].to_numpy())),
    ]
    pieces = both.drop("_is_mark", "_window")[np.repeat(rows, count)]
    return pieces.with_columns(cut).hstack(windows.drop("start_ns", "end_ns"))


def _last_begun(both: pl.DataFrame, by: By) -> pl.Series:
    """The ``_window`` of the last mark of each row's group that lies at or before it; null if there is none."""
    groups, is_mark = group_numbers(both.select(by)).to_numpy(), both["_is_mark"].to_numpy()
    at, windows = both["_at"].to_numpy(), both["_window"].filter(both["_is_mark"])
    order = np.lexsort((at[is_mark], groups[is_mark]))
    before = _count_before(groups, at, groups[is_mark], at[is_mark], "right")
    earlier = np.searchsorted(groups[is_mark][order], groups)
    at_rows = pl.Series(before - 1).set(pl.Series(before == earlier), None)
    found: pl.Series = windows.gather(pl.Series(order)).gather(at_rows)
    return found


def _count_before(
    groups: Integers, at: Integers, mark_groups: Integers, mark_at: Integers, side: Literal["left", "right"]
) -> Integers:
    """How many marks come before each point, in the order of group and time; exact, without a key that overflows.

    A mark at the time of a point counts if ``side`` is ``right``.
    """
    times = np.sort(mark_at)
    width = len(times) + 1
    marks = np.sort(mark_groups * width + np.searchsorted(times, mark_at, "right"))
    place: Integers = np.searchsorted(marks, groups * width + np.searchsorted(times, at, side), "right")
    return place
