"""Which interval lies in which: parents by time on each track; knows no domain.

The parent of an interval is the nearest one before it, in the order of start and then longest first, that
ends no earlier and is not over when it starts. Where intervals nest this is the innermost around it; one
that only overlaps its predecessor is no child of it, but parent of what follows inside. This is how
``EventList._populate_cpu_children`` of PyTorch (torch/autograd/profiler_util.py) builds its tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

Integers = npt.NDArray[np.int64]

_LOWEST = np.iinfo(np.int64).min
_PLACE = {"position": pl.Int64(), "parent_position": pl.Int64()}


def nested(spans: pl.LazyFrame, by: Sequence[str], key: str = "event_id") -> pl.LazyFrame:
    """Put intervals in the order of a tree walk and say where each one's parent is.

    Args:
        spans: any frame with ``by``, ``key``, and Int64 ``start_ns``, ``end_ns`` without nulls.
        by: columns that name a track; null is a track of its own.
        key: an integer column that decides between equal intervals: the lower one is the parent.

    Returns:
        ``spans``, sorted by ``by``, start, end (latest first) and ``key``, so that descendants follow their
        ancestor, plus ``position`` (row number) and ``parent_position`` (null at the top).
    """
    schema: dict[str, pl.DataType] = dict(spans.collect_schema()) | _PLACE
    return _mapped(spans, lambda frame: _placed(_ordered(frame, by, key), by), schema)


def nearest(tree: pl.LazyFrame, chosen: pl.Expr, name: str) -> pl.LazyFrame:
    """Add the position of the nearest ancestor for which ``chosen`` holds; null if there is none.

    Args:
        tree: rows of ``nested``, all of them and in its order.
        chosen: Boolean expression; null does not hold.
        name: the column to add.
    """
    marked = tree.with_columns(_chosen=chosen.fill_null(value=False))

    def add(frame: pl.DataFrame) -> pl.DataFrame:
        found = _nearest(_parents(frame), frame["_chosen"].to_numpy())
        return frame.with_columns(_positions(found).alias(name))

    schema: dict[str, pl.DataType] = dict(marked.collect_schema()) | {name: pl.Int64()}
    return _mapped(marked, add, schema).drop("_chosen")


def totals(tree: pl.LazyFrame, value: pl.Expr, name: str) -> pl.LazyFrame:
    """Add the sum of ``value`` (Int64, null counts as 0) over each row and its descendants.

    Args:
        tree: rows of ``nested``, all of them and in its order.
        value: what to add up.
        name: the column to add.
    """
    valued = tree.with_columns(_value=value.cast(pl.Int64).fill_null(0))

    def add(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(pl.Series(name, _summed(_parents(frame), frame["_value"].to_numpy())))

    schema: dict[str, pl.DataType] = dict(valued.collect_schema()) | {name: pl.Int64()}
    return _mapped(valued, add, schema).drop("_value")


def taken(tree: pl.LazyFrame, column: str, position: str, name: str) -> pl.LazyFrame:
    """Add the ``column`` of the row at ``position``; null where that is null.

    Eager inside: the streaming engine of polars 2.1 panics on ``gather`` from an empty frame.
    """

    def add(frame: pl.DataFrame) -> pl.DataFrame:
        at = frame[position]
        values = frame[column].gather(at.fill_null(0)).alias(name)
        return frame.with_columns(values).with_columns(pl.when(at.is_not_null()).then(pl.col(name)).alias(name))

    schema = tree.collect_schema()
    return _mapped(tree, add, dict(schema) | {name: schema[column]})


def _mapped(
    frame: pl.LazyFrame, function: Callable[[pl.DataFrame], pl.DataFrame], schema: Mapping[str, pl.DataType]
) -> pl.LazyFrame:
    """Run an eager function over the whole frame, once, when it is collected; nothing may be cut away before."""
    return frame.map_batches(
        function, predicate_pushdown=False, projection_pushdown=False, slice_pushdown=False, schema=schema
    ).cache()


def _ordered(frame: pl.DataFrame, by: Sequence[str], key: str) -> pl.DataFrame:
    """The order of a tree walk; numpy's stable sort is quick on rows that are nearly in order, as events are."""
    start, end, number = (frame[column].to_numpy() for column in ("start_ns", "end_ns", key))
    return frame[np.lexsort((number, -end, start, _tracks(frame, by)))]


def _tracks(frame: pl.DataFrame, by: Sequence[str]) -> npt.NDArray[np.uint32]:
    """A number for each row's track, rising with ``by``."""
    tracks = frame.select(by).unique().sort(by).with_row_index("_track")
    codes = frame.select(by).join(tracks, on=by, how="left", nulls_equal=True, maintain_order="left")
    return codes["_track"].to_numpy()


def _placed(frame: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    start, end, track = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy(), _tracks(frame, by)
    parent = previous_at_least(end, np.maximum(end, start + 1))
    parent[(parent >= 0) & (track[parent] != track)] = -1
    return frame.with_columns(position=pl.Series(np.arange(len(parent))), parent_position=_positions(parent))


def _positions(found: Integers) -> pl.Series:
    values = pl.Series(found, dtype=pl.Int64)
    return values.set(values < 0, None)


def _parents(frame: pl.DataFrame) -> Integers:
    return frame["parent_position"].fill_null(-1).to_numpy()


def _nearest(parent: Integers, chosen: npt.NDArray[np.bool_]) -> Integers:
    """Follow parents up to a chosen one, all rows at once, twice as far in each round."""
    self_or_up = np.where(chosen | (parent < 0), np.arange(len(parent)), parent)
    while True:
        further = self_or_up[self_or_up]
        if np.array_equal(further, self_or_up):
            break
        self_or_up = further
    found = np.where(parent < 0, -1, self_or_up[parent])
    return np.where((found >= 0) & chosen[found], found, -1)


def _summed(parent: Integers, values: Integers) -> Integers:
    """Carry every value up to all its ancestors, one generation in each round."""
    total: Integers = values.copy()
    at = np.flatnonzero(values)
    amount = values[at]
    while len(at):
        at = parent[at]
        at, amount = at[at >= 0], amount[at >= 0]
        np.add.at(total, at, amount)
    return total


def previous_at_least(values: Integers, needs: Integers) -> Integers:
    """For each i the largest j < i with ``values[j] >= needs[i]``, or -1: O(n log n), without a loop over rows.

    ``levels[k][b]`` is the maximum of the 2**k values from b * 2**k on. A search climbs from i over
    the blocks to its left, each twice as long, until one holds what it needs, then descends in it.
    """
    levels = _maxima(values)
    block, height = np.full(len(values), -1), np.zeros(len(values), dtype=np.int64)
    searching = np.arange(len(values))
    left = searching.copy()
    for level, maxima in enumerate(levels):
        has_block = (left & 1) == 1
        candidates, blocks = searching[has_block], left[has_block] - 1
        hit = maxima[blocks] >= needs[candidates]
        block[candidates[hit]], height[candidates[hit]] = blocks[hit], level
        stays = np.ones(len(searching), dtype=bool)
        stays[np.flatnonzero(has_block)[hit]] = False
        left >>= 1
        stays &= left > 0
        searching, left = searching[stays], left[stays]
    for level in range(len(levels) - 1, 0, -1):
        here = np.flatnonzero((height == level) & (block >= 0))
        right = 2 * block[here] + 1
        block[here] = right - (levels[level - 1][right] < needs[here])
        height[here] = level - 1
    return block


def _maxima(values: Integers) -> list[Integers]:
    levels = [values]
    while len(levels[-1]) > 1:
        if len(levels[-1]) % 2:
            levels[-1] = np.append(levels[-1], _LOWEST)
        levels.append(np.maximum(levels[-1][0::2], levels[-1][1::2]))
    return levels
