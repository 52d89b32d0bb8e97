"""Numbers and lists in sentences."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def duration(ns: int) -> str:
    """A length of time with four digits and a fitting unit: ``403.3 µs``."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if abs(ns) >= size:
            whole = len(str(abs(ns) // size))
            return f"{ns / size:,.{max(0, 4 - whole)}f}\u00a0{unit}"
    return f"{ns}\u00a0ns"


def percent(part: int, whole: int) -> str:
    """A share: ``49.4 %``; ``0 %`` of nothing."""
    return f"{100 * part / whole:.1f}\u00a0%" if whole else "0\u00a0%"


def brief(name: str, width: int = 60) -> str:
    """A name in a sentence: that of a kernel can fill the screen, so its arguments or its middle give way."""
    for opening, shortened in (("<", "<…>"), ("(", "(…)")):
        function = name.partition(opening)[0]
        if len(name) > width and 0 < len(function) < len(name):
            name = f"{function}{shortened}"
    tail = (width - 1) // 3
    return name if len(name) <= width else f"{name[: width - 1 - tail]}…{name[-tail:]}"


def sequence(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + f" and {words[-1]}" if words else ""


def numbered(noun: str, numbers: Sequence[int]) -> str:
    """``step 3``, ``3 steps (4 to 6)``, ``3 steps (2, 3 and 7)``, ``40 steps between 2 and 97``; numbers ascend."""
    if len(numbers) == 1:
        return f"{noun} {numbers[0]}"
    count = f"{len(numbers):,} {noun}s"
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{count} ({numbers[0]} to {numbers[-1]})"
    return (
        f"{count} ({sequence([str(n) for n in numbers])})"
        if len(numbers) <= 6
        else (f"{count} between {numbers[0]} and {numbers[-1]}")
    )


def captured(sessions: pl.DataFrame, count: int) -> str:
    """``one process``, ``2 processes``, ``one process in 3 captures``: who was captured, and how often.

    Two sessions are of one process where host, process id and rank are the same and known.

    Args:
        sessions: rows of ``tables.SESSIONS``.
        count: captures.
    """
    host = pl.coalesce("instance_id", "host_name")
    alone = pl.when(host.is_null() | pl.col("process_id").is_null()).then("session")
    processes = sessions.select(host, "process_id", "rank", alone.alias("_alone")).n_unique()
    who = "one process" if processes == 1 else f"{processes:,} processes"
    return who if processes == count else f"{who} in {count:,} captures"
