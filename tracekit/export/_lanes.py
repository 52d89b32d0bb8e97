"""Sub-tracks: spans of one track that overlap without nesting are laid side by side, so that a viewer drops none."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tracekit.nesting import previous_at_least

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_NESTED_LANES = 3
"""Sub-tracks on which spans nest; what is left after them gets sub-tracks without nesting, as few as possible."""
_ROUNDS = 8
"""Times that the spans of a track are looked at to fill one such sub-track."""


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
        kept = _nesting(track[rest], start_ns[rest], end_ns[rest])
        lane[rest[kept]] = number
        rest = rest[~kept]
        if not len(rest):
            return lane
    lane[rest] = _NESTED_LANES + _apart(track[rest], start_ns[rest], end_ns[rest])
    return lane


def _nesting(track: Ints, start_ns: Ints, end_ns: Ints) -> Mask:
    """Choose spans of which any two nest or are apart: many, and none of a track that needs too many rounds.

    A round takes out every span that crosses the last one that is open at its start. When there is none left, no two
    cross: of two that do, the later would have a last one open that ends after it, and that one crosses the earlier.
    """
    kept = np.ones(len(track), np.bool_)
    asked = np.arange(len(track))
    for _ in range(_ROUNDS):
        crossed = _crossing(track[asked], start_ns[asked], end_ns[asked])
        if not crossed.any():
            return kept
        kept[asked[crossed]] = False
        again = np.isin(track[asked], np.unique(track[asked[crossed]])) & ~crossed
        asked = asked[again]
    kept[asked] = False
    return kept


def _crossing(track: Ints, start_ns: Ints, end_ns: Ints) -> Mask:
    """Which spans end after the last earlier one of their track that is open at their start."""
    before = previous_at_least(end_ns, start_ns + 1)
    found: Mask = (before >= 0) & (track[before] == track) & (end_ns[before] < end_ns)
    return found


def _apart(track: Ints, start_ns: Ints, end_ns: Ints) -> Ints:
    """Sub-tracks on which no two spans overlap, as few as possible: a span takes the one that was first free again.

    On a track, a span needs a new sub-track when more spans are open than ever before; the j-th that needs none
    follows the span that ended as the j-th. A span without a length ends right after it has begun.
    """
    count = len(track)
    number = np.arange(count)
    first = np.searchsorted(track, track)
    times, ranks = np.unique(np.concatenate([start_ns, end_ns]), return_inverse=True)
    starts, ends = 2 * ranks[:count], 2 * ranks[count:] + (start_ns == end_ns)
    by_end = np.lexsort((ends, track))
    width = 2 * len(times)
    ended = np.searchsorted(track[by_end] * width + ends[by_end], track * width + starts, "right") - first
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
