"""Where to cut a trace into pieces. The cuts depend on the file's bytes alone, never on who reads the pieces."""

from __future__ import annotations

from tracekit.sources._chrome_bytes import TraceBytes
from tracekit.sources._chrome_piece import Piece
from tracekit.sources._chrome_split import learn_separator

PIECE = 2 << 20
"""Distance of the grid that cuts follow, in bytes."""
LONGEST = 64 << 20
"""No element of the event array may be longer than this."""
_WINDOW = 1 << 16


class Plan:
    """Cuts an event array into pieces, each at the first separator behind a point of the grid.

    Attributes:
        is_sure: whether a separator is known; without one, cuts fall anywhere.
    """

    def __init__(self, data: TraceBytes, start: int, base_ns: int) -> None:
        self._data = data
        self._position = start
        self._base_ns = base_ns
        self._ended = False
        head = data.read(start, start + 4 * _WINDOW)
        self._separator = learn_separator(head.decode("latin-1"), 0)
        self.is_sure = self._separator is not None

    def next_piece(self) -> Piece | None:
        """The next piece; None at the end of the file."""
        if self._ended:
            return None
        start = self._position
        goal = (start // PIECE + 1) * PIECE
        stop, self._position = self._cut(goal)
        return Piece(start, stop, self._base_ns) if stop > start else None

    def _cut(self, goal: int) -> tuple[int, int]:
        """End of one piece (before the comma) and start of the next (at its brace)."""
        separator = self._separator
        if separator is None:
            separator = b""
        position = goal
        while position < goal + LONGEST:
            text = self._data.read(position, position + _WINDOW)
            found = text.find(separator)
            if found >= 0 and text:
                cut = position + found
                return (cut + separator.index(b","), cut + separator.index(b"{")) if separator else (cut, cut)
            if len(text) < _WINDOW:
                break
            position += _WINDOW - len(separator) + 1
        else:
            return goal, goal
        self._ended = True
        return self._end(goal, position + len(text)), 0

    def _end(self, goal: int, end: int) -> int:
        """The end of the file; it may lie before the point of the grid that was looked at."""
        if end > goal:
            return end
        return self._position + len(self._data.read(self._position, goal))
