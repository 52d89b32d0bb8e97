"""Two sequences of names side by side: which runs of one became which runs of the other, in linear time."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from itertools import takewhile

Change = tuple[int, int, int, int]
"""``first[a:b]`` became ``second[c:d]``, as (a, b, c, d)."""

_WINDOW = 1_000
"""Elements of each side that are aligned at once; the effort grows with its square, and only linearly beyond."""


def changes(first: Sequence[str], second: Sequence[str], *, window: int = _WINDOW) -> list[Change]:
    """How ``first`` becomes ``second``: runs to replace, in order; between them both are equal.

    What both begin and end with is skipped; the rest is aligned in windows by ``difflib``. An insertion that is
    longer than a window may be told in several parts or one larger one, but what is told is always true.
    """
    head = _common(first, second)
    tail = _common(first[head:][::-1], second[head:][::-1])
    ends = len(first) - tail, len(second) - tail
    found: list[Change] = []
    i = j = head
    while (i, j) != ends:
        parts = _aligned(first[i : min(i + window, ends[0])], second[j : min(j + window, ends[1])])
        is_last = i + window >= ends[0] and j + window >= ends[1]
        cut = len(parts) if is_last else _trusted(parts, window)
        found += [(i + a, i + b, j + c, j + d) for tag, a, b, c, d in parts[:cut] if tag != "equal"]
        i, j = i + parts[cut - 1][2], j + parts[cut - 1][4]
        while i < ends[0] and j < ends[1] and first[i] == second[j]:
            i, j = i + 1, j + 1
    return _merged(found)


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of what both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def _aligned(first: Sequence[str], second: Sequence[str]) -> Sequence[tuple[str, int, int, int, int]]:
    return difflib.SequenceMatcher(None, first, second, autojunk=False).get_opcodes()


def _trusted(parts: Sequence[tuple[str, int, int, int, int]], window: int) -> int:
    """How many parts of a window to keep: up to the last equal run that begins in its first half.

    What follows might align better with what the window does not show.
    """
    equal = [k for k, (tag, a, *_) in enumerate(parts) if tag == "equal" and a <= window // 2]
    return equal[-1] if equal and equal[-1] else len(parts)


def _merged(found: Sequence[Change]) -> list[Change]:
    """Neighbours as one change."""
    out: list[Change] = []
    for change in found:
        if out and out[-1][1] == change[0] and out[-1][3] == change[2]:
            out[-1] = (out[-1][0], change[1], out[-1][2], change[3])
        else:
            out.append(change)
    return out
