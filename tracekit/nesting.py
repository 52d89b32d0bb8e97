"""Which interval lies in which: parents by time on each track; knows no domain.

The parent of an interval is the nearest one before it, in the order of start and then longest first, that
ends no earlier and is not over when it starts. Where intervals nest this is the innermost around it; one
that only overlaps its predecessor is no child of it, but parent of what follows inside. This is how
``EventList._populate_cpu_children`` of PyTorch (torch/autograd/profiler_util.py) builds its tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from tracekit.intervals import Integers, group_numbers

_LOWEST = np.iinfo(np.int64).min
_ROUNDS = 256
"""Generations up to which parents are sought step by step: calls do not nest deeper, but for runaway recursion."""


def nested(spans: pl.DataFrame, by: Sequence[str], key: str = "event_id") -> pl.DataFrame:
    """Put intervals in the order of a tree walk and say where each one's parent is.

    Args:
        spans: any frame with ``by``, ``key``, and Int64 ``start_ns``, ``end_ns`` without nulls.
        by: columns that name a track; null is a track of its own.
        key: an integer column that decides between equal intervals: the lower one is the parent.

    Returns:
        ``spans``, sorted by ``by``, start, end (latest first) and ``key``, so that descendants follow their
        ancestor, plus ``position`` (row number) and ``parent_position`` (null at the top).
    """
    track = group_numbers(spans.select(by)).to_numpy()
    start, end, number = (spans[column].to_numpy() for column in ("start_ns", "end_ns", key))
    order = np.lexsort((number, -end, start, track))
    if (order[1:] < order[:-1]).any():
        spans, track, start, end = spans[order], track[order], start[order], end[order]
    parent = _enclosing(track, start, end)
    return spans.with_columns(position=pl.Series(np.arange(len(parent))), parent_position=_positions(parent))


def nearest(tree: pl.DataFrame, chosen: pl.Expr, name: str) -> pl.DataFrame:
    """Add the position of the nearest ancestor for which ``chosen`` holds; null if there is none.

    Args:
        tree: rows of ``nested``, all of them and in its order.
        chosen: Boolean expression; null does not hold.
        name: the column to add.
    """
    holds = tree.select(chosen.fill_null(value=False)).to_series().to_numpy()
    return tree.with_columns(_positions(_nearest(_parents(tree), holds)).alias(name))


def below(tree: pl.DataFrame, value: pl.Expr, name: str) -> pl.DataFrame:
    """Add the sum of ``value`` (Int64, null counts as 0) over the direct children of each row.

    Args:
        tree: rows of ``nested``, all of them and in its order.
        value: what to add up.
        name: the column to add.
    """
    return _with_sums(tree, value, name, _summed_children)


def totals(tree: pl.DataFrame, value: pl.Expr, name: str) -> pl.DataFrame:
    """Add the sum of ``value`` (Int64, null counts as 0) over each row and its descendants.

    Args:
        tree: rows of ``nested``, all of them and in its order.
        value: what to add up.
        name: the column to add.
    """
    return _with_sums(tree, value, name, _summed)


def taken(tree: pl.DataFrame, column: str, position: str, name: str) -> pl.DataFrame:
    """Add the ``column`` of the row at ``position``; null where that is null."""
    return tree.with_columns(tree[column].gather(tree[position]).alias(name))


def _with_sums(
    tree: pl.DataFrame, value: pl.Expr, name: str, summed: Callable[[Integers, Integers], Integers]
) -> pl.DataFrame:
    values = tree.select(value.cast(pl.Int64).fill_null(0)).to_series().to_numpy()
    return tree.with_columns(pl.Series(name, summed(_parents(tree), values)))


def _enclosing(track: Integers, start: Integers, end: Integers) -> Integers:
    """The position of each row's parent, or -1.

    The row before is the first candidate. One that fails hands the search on to its own candidate, since what lies
    between these two ended earlier still: a row skips in each round what its last candidate has skipped so far.
    """
    needs = np.maximum(end, start + 1)
    parent = np.arange(-1, len(end) - 1)
    parent[1:][track[1:] != track[:-1]] = -1
    searching = np.arange(len(end))
    for _ in range(_ROUNDS):
        candidate = parent[searching]
        fails = (candidate >= 0) & (end[candidate] < needs[searching])
        searching, candidate = searching[fails], candidate[fails]
        if not len(searching):
            return parent
        parent[searching] = parent[candidate]
    parent[searching] = previous_at_least(end, needs)[searching]
    parent[(parent >= 0) & (track[parent] != track)] = -1
    return parent


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


def _summed_children(parent: Integers, values: Integers) -> Integers:
    total = np.zeros_like(values)
    is_child = parent >= 0
    np.add.at(total, parent[is_child], values[is_child])
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
