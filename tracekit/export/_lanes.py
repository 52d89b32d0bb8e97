"""Sub-tracks: spans of one track that overlap without nesting are laid side by side, so that a viewer drops none."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tracekit.nesting import previous_at_least

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_NESTED_LANES = 3
"""Sub-tracks on which spans nest; what is left after them gets sub-tracks without nesting, as few as possible."""


def lanes(track: Ints, start_ns: Ints, end_ns: Ints) -> Ints:
    """Number the sub-track of each span, from 0 on each track: on a sub-track any two spans nest or are apart.

    Args:
        track: track of each span, ascending.
        start_ns: starts, ascending within a track.
        end_ns: ends, of equal starts the latest first.
    """
    lane = np.zeros(len(track), np.int64)
    rest = np.arange(len(track))
    for number in range(_NESTED_LANES):
        crossed = crossing(track[rest], start_ns[rest], end_ns[rest])
        lane[rest[~crossed]] = number
        rest = rest[crossed]
        if not len(rest):
            return lane
    lane[rest] = _NESTED_LANES + _apart(track[rest], start_ns[rest], end_ns[rest])
    return lane


def crossing(track: Ints, start_ns: Ints, end_ns: Ints) -> Mask:
    """Which spans start inside an earlier one of their track that ends before they do; the others nest.

    The nearest earlier span that is open at the start is also the nearest one that ends no earlier, unless something
    in between ends inside.
    """
    open_at_start = previous_at_least(end_ns, start_ns + 1)
    around = previous_at_least(end_ns, np.maximum(end_ns, start_ns + 1))
    same_track = (open_at_start >= 0) & (track[open_at_start] == track)
    found: Mask = same_track & (open_at_start != around)
    return found


def _apart(track: Ints, start_ns: Ints, end_ns: Ints) -> Ints:
    """Sub-tracks on which no two spans overlap, as few as possible: a span takes the one that was first free again.

    On a track, a span needs a new sub-track when more spans are open than ever before; the j-th that needs none
    follows the span that ended as the j-th. All spans have a length.
    """
    count = len(track)
    number = np.arange(count)
    first = np.searchsorted(track, track)
    by_end = np.lexsort((end_ns, track))
    times, ranks = np.unique(np.concatenate([start_ns, end_ns]), return_inverse=True)
    starts, ends = ranks[:count], ranks[count:]
    ended = np.searchsorted(track[by_end] * len(times) + ends[by_end], track * len(times) + starts, "right") - first
    is_open = number - first - ended + 1
    most = np.maximum.accumulate(track * (count + 1) + is_open) - track * (count + 1)
    earlier = np.concatenate([[0], most[:-1]])
    earlier[first] = 0
    is_new = is_open > earlier
    reused = number - first - (most - is_new)
    before = np.where(is_new, number, by_end[np.minimum(first + reused, count - 1)])
    while True:
        further = before[before]
        if np.array_equal(further, before):
            return (most - 1)[before]
        before = further
