"""Rows that a source gives more than once, as where saved pieces of one trace overlap."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl


@dataclass
class Seen:
    """Which rows of one session and source have been given so far; keeps eight bytes of each.

    Rows are one if every column of them is equal but their position in the file. A row equals only rows that
    start with it, so batches that share no start are not compared.
    """

    _batches: list[tuple[int, int, pl.Series]] = field(default_factory=list)

    def first(self, rows: pl.DataFrame) -> pl.Series:
        """Whether each row is given for the first time; remembers them.

        Args:
            rows: events, with ``start_ns`` and ``event_id``; always the same columns.
        """
        hashes = rows.drop("event_id").hash_rows()
        start_ns = rows["start_ns"]
        first_ns, last_ns = start_ns.min(), start_ns.max()
        assert isinstance(first_ns, int) and isinstance(last_ns, int)
        fresh = hashes.is_first_distinct()
        for other_first_ns, other_last_ns, others in self._batches:
            if other_first_ns <= last_ns and first_ns <= other_last_ns:
                fresh &= ~hashes.is_in(others.implode())
        self._batches.append((first_ns, last_ns, hashes.filter(fresh)))
        return fresh
