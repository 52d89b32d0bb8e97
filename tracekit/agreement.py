"""Whether two sources tell the same of a lane, and in what they differ."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

_LARGE_PRIME = 1_000_000_007


@dataclass(frozen=True)
class Difference:
    """What differs between two sources of one lane."""

    name_count: int
    """Event names that differ."""
    event_count: int
    """Events that one has and the other has not; where both have as many, all of that name."""
    example: str
    """The name that differs most, and in what."""


def summary(rows: pl.DataFrame) -> pl.DataFrame:
    """Per event name: how many, their summed duration, when the first starts, and a sum that tells all starts.

    Args:
        rows: ``name``, ``start_ns`` and ``end_ns`` of events.

    Returns:
        ``name``, ``events``, ``busy_ns``, ``first_ns``, ``starts_ns``, in any order.
    """
    start_ns = pl.col("start_ns")
    single = rows.select(
        pl.col("name").cast(pl.String),
        events=pl.lit(1, dtype=pl.Int64),
        busy_ns=pl.col("end_ns") - start_ns,
        first_ns=start_ns,
        starts_ns=start_ns % _LARGE_PRIME,
    )
    return merged([single])


def merged(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Summaries of parts of a lane as one."""
    sums = pl.col("events", "busy_ns", "starts_ns").sum()
    return pl.concat(frames).group_by("name").agg(sums, pl.col("first_ns").min())


def difference(here: pl.DataFrame, there: pl.DataFrame) -> Difference | None:
    """In what two summaries differ; None if they agree in every name."""
    both = there.join(here, on="name", how="full", coalesce=True, suffix="_here")
    both = both.with_columns(pl.col("^(events|busy_ns|starts_ns).*$").fill_null(0))
    differs = pl.any_horizontal(pl.col(c) != pl.col(f"{c}_here") for c in ("events", "busy_ns", "starts_ns"))
    gaps = {c: (pl.col(f"{c}_here") - pl.col(c)).fill_null(0) for c in ("events", "busy_ns", "first_ns")}
    odd = both.filter(differs).with_columns(**{f"more_{c}": gap for c, gap in gaps.items()})
    if odd.is_empty():
        return None
    concerned = pl.when(pl.col("more_events") != 0).then(pl.col("more_events").abs()).otherwise("events")
    order = [pl.col(f"more_{c}").abs() for c in gaps]
    worst = odd.sort(*order, "name", descending=[True, True, True, False]).row(0, named=True)
    return Difference(odd.height, int(odd.select(concerned.sum()).item()), _told(worst))


def _told(row: dict[str, object]) -> str:
    """One name's difference as text."""
    here, there, longer, later = (row[c] for c in ("events_here", "events", "more_busy_ns", "more_first_ns"))
    assert isinstance(longer, int) and isinstance(later, int)
    if here != there:
        told = [f"{row['name']} has {here} events here, {there} there"]
    else:
        told = [f"{row['name']} has {here} events in both"]
    if longer:
        told.append(f"which take {abs(longer)} ns {'more' if longer > 0 else 'less'} here")
    if here == there and later:
        told.append(f"the first starts {abs(later)} ns {'later' if later > 0 else 'earlier'} here")
    if len(told) == 1 and here == there:
        told.append("some start at other times")
    return ", ".join(told)
