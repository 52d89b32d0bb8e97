"""One clock: how the clocks of a profile's sessions relate, and whether causes come before effects."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracekit import tables

_TOLERANCE_NS = 200_000
"""Two ranks leave the same collective within this time of each other."""
_LARGEST_OFFSET_NS = 5_000_000_000
"""Clocks further apart than this are not aligned: nothing but a wrong match would be left."""
_MOST_COLLECTIVES = 1_500
"""Collectives of a session that are compared; more add no certainty."""
_FEWEST_MATCHES = 3
_CHANCE = 5
"""How many times more matches there must be than chance would give."""
_BARRIERS = ("c10d::barrier",)


@dataclass(frozen=True)
class Aligned:
    """``sessions`` with their ``clock_`` columns filled, and what there is to say about it."""

    sessions: pl.DataFrame
    notes: pl.DataFrame


def align(events: pl.LazyFrame, sessions: pl.DataFrame) -> Aligned:
    """Find what to add to each session's times to be on one clock.

    Sessions of one machine share its clock. Other machines are aligned with the machine of the reference
    session (the one with the most collectives, then the lowest rank) where both ran the same collectives
    or barriers: ranks leave a collective together, so that the offset is the one at which most ends
    coincide. The times of events are not touched.

    Args:
        events: ``tables.EVENTS``.
        sessions: ``tables.SESSIONS``.

    Returns:
        Sessions with ``clock_method`` (``reference``: the clock the others are compared with, and sessions on
        the same machine; ``collectives``; ``none``), ``clock_offset_ns`` and ``clock_residual_ns`` (largest
        disagreement of the matched ends; null where nothing was compared), in the order given.
    """
    hosts = sessions.select(
        "session", "rank", host=pl.coalesce("instance_id", "host_name", pl.format("session {}", "session"))
    )
    if hosts["host"].n_unique() < 2:
        return Aligned(_filled(sessions, _same_clock(hosts)), tables.NOTES.empty())
    ends = _shared_ends(events)
    ranked = (
        hosts.join(ends.group_by("session").agg(shared=pl.len()), on="session", how="left")
        .with_columns(pl.col("shared").fill_null(0))
        .sort("shared", "rank", "session", descending=[True, False, False], nulls_last=True)
    )
    speakers = ranked.unique("host", keep="first", maintain_order=True)
    reference = speakers.head(1)
    first = ends.join(reference.select("session"), on="session", how="semi")
    found = [_same_clock(reference)]
    found += [
        _offset(first, ends.join(other.select("session"), on="session", how="semi"), other)
        for other in speakers.slice(1).partition_by("host", maintain_order=True)
    ]
    by_host = pl.concat(found).drop("session")
    by_session = hosts.select("session", "host").join(by_host, on="host", how="left", validate="m:1")
    return Aligned(_filled(sessions, by_session), _notes(by_session))


def _same_clock(hosts: pl.DataFrame) -> pl.DataFrame:
    return hosts.select(
        "session",
        "host",
        clock_method=pl.lit("reference"),
        clock_offset_ns=pl.lit(0, dtype=pl.Int64),
        clock_residual_ns=pl.lit(None, dtype=pl.Int64),
        matched=pl.lit(0, dtype=pl.Int64),
    )


def _shared_ends(events: pl.LazyFrame) -> pl.DataFrame:
    """``session``, ``name``, ``step``, ``end_ns`` of collectives and barriers, the first of each session."""
    lane, kind, name = pl.col("lane"), pl.col("kind"), pl.col("name")
    on_device = (lane == "hardware") & ((kind == "collective") | ((kind == "sync") & name.str.contains("barrier")))
    on_host = (lane == "dispatch") & (kind == "op") & name.is_in(list(_BARRIERS))
    found = (
        events.filter("is_primary", on_device | on_host)
        .select("session", "name", "start_ns", "end_ns")
        .collect(engine="streaming")
    )
    firsts = found.sort("session", "end_ns", "name").filter(pl.int_range(pl.len()).over("session") < _MOST_COLLECTIVES)
    steps = (
        events.filter(lane == "dispatch", kind == "annotation", name.str.starts_with("ProfilerStep#"))
        .select("session", "start_ns", step=name.str.extract(r"#(\d+)$").cast(pl.Int64, strict=False))
        .collect(engine="streaming")
        .sort("start_ns")
    )
    return firsts.sort("start_ns").join_asof(
        steps, on="start_ns", by="session", strategy="backward", check_sortedness=False
    )


def _offset(first: pl.DataFrame, other: pl.DataFrame, speaker: pl.DataFrame) -> pl.DataFrame:
    """One row: the offset at which most ends of ``other`` coincide with ends of ``first``."""
    steps = set(first["step"].drop_nulls()) & set(other["step"].drop_nulls())
    key = ["name", "step"] if steps else ["name"]
    left, right = (f.with_columns(pl.int_range(pl.len()).alias("row")) for f in (first, other))
    pairs = left.join(right, on=key, suffix="_other").with_columns(apart=pl.col("end_ns") - pl.col("end_ns_other"))
    pairs = pairs.filter(pl.col("apart").abs() <= _LARGEST_OFFSET_NS).select("apart", "row", "row_other").sort("apart")
    agreeing = _densest(pairs)
    matched = agreeing.height
    if matched < max(_FEWEST_MATCHES, _CHANCE * _by_chance(pairs)):
        absent = pl.lit(None, dtype=pl.Int64)
        return _same_clock(speaker).with_columns(
            clock_method=pl.lit("none"), clock_offset_ns=absent, clock_residual_ns=absent
        )
    offset = int(agreeing["apart"].quantile(0.5, interpolation="nearest") or 0)
    apart = (agreeing["apart"] - offset).abs().max()
    return _same_clock(speaker).with_columns(
        clock_method=pl.lit("collectives"),
        clock_offset_ns=pl.lit(offset, dtype=pl.Int64),
        clock_residual_ns=pl.lit(apart, dtype=pl.Int64),
        matched=pl.lit(matched, dtype=pl.Int64),
    )


def _densest(pairs: pl.DataFrame) -> pl.DataFrame:
    """The differences inside the window of the tolerance's width that holds the most; the smallest of equals.

    Each collective is used once, with the partner nearest to the middle of the window.
    """
    if pairs.is_empty():
        return pairs
    windows = pairs.with_columns(
        inside=pl.col("apart").search_sorted(pl.col("apart") + _TOLERANCE_NS, side="right") - pl.int_range(pl.len())
    )
    best = windows.sort("inside", pl.col("apart").abs(), descending=[True, False]).head(1)
    low = int(best["apart"][0])
    inside = pairs.filter(pl.col("apart").is_between(low, low + _TOLERANCE_NS))
    nearest = inside.sort((pl.col("apart") - pl.col("apart").median()).abs(), "apart", maintain_order=True)
    for row in ("row", "row_other"):
        nearest = nearest.unique(row, keep="first", maintain_order=True)
    return nearest


def _by_chance(pairs: pl.DataFrame) -> float:
    """How many differences a window holds if they are spread evenly."""
    if pairs.height < 2:
        return 0.0
    spread = int(pairs["apart"][-1]) - int(pairs["apart"][0])
    return pairs.height * _TOLERANCE_NS / max(spread, 1) if spread > 10 * _TOLERANCE_NS else 0.0


def _filled(sessions: pl.DataFrame, clocks: pl.DataFrame) -> pl.DataFrame:
    columns = ("clock_method", "clock_offset_ns", "clock_residual_ns")
    filled = sessions.drop(columns, strict=False).join(
        clocks.select("session", *columns), on="session", how="left", validate="1:1", maintain_order="left"
    )
    return tables.SESSIONS.conform(filled)


def _notes(clocks: pl.DataFrame) -> pl.DataFrame:
    is_none = pl.col("clock_method") == "none"
    aligned = pl.format(
        "clock aligned by {} shared collectives: offset {} ns, residual {} ns",
        "matched",
        pl.col("clock_offset_ns").fill_null(0),
        pl.col("clock_residual_ns").fill_null(0),
    )
    alone = pl.lit("clock not aligned with the other machines: no collectives or barriers in common")
    return tables.NOTES.conform(
        clocks.filter(pl.col("clock_method") != "reference").select(
            "session",
            severity=pl.lit("info"),
            code=pl.when(is_none).then(pl.lit("clock_not_aligned")).otherwise(pl.lit("clock_aligned")),
            message=pl.when(is_none).then(alone).otherwise(aligned),
            hint=pl.when(is_none).then(pl.lit("profile the same steps on every rank; compare durations, not times")),
            event_count=pl.col("matched").cast(pl.Int64),
        )
    )


def causality(chains: pl.DataFrame) -> pl.DataFrame:
    """Count effects that start before their cause; times are left as they are.

    Args:
        chains: ``tables.CHAINS``.

    Returns:
        ``tables.NOTES``: per session and hop one row with how many chains break causality and by how much
        at most; empty if none does.
    """
    hops = (
        ("submit_before_dispatch", "submit", "its operator", "dispatch_start_ns", "submit_ns"),
        ("hardware_before_submit", "hardware execution", "its submit", "submit_ns", "hardware_start_ns"),
        ("hardware_before_dispatch", "hardware execution", "its operator", "dispatch_start_ns", "hardware_start_ns"),
    )
    found = []
    for code, effect, cause, cause_ns, effect_ns in hops:
        early = pl.col(cause_ns) - pl.col(effect_ns)
        counted = (
            chains.filter(early > 0).group_by("session").agg(event_count=pl.len(), early_ns=early.max()).sort("session")
        )
        message = pl.format(
            "{} " + effect + "(s) with a start before " + cause + ", by up to {} ns", "event_count", "early_ns"
        )
        found.append(
            counted.select(
                "session",
                severity=pl.lit("warning"),
                code=pl.lit(code),
                message=message,
                hint=pl.lit("the clocks of host and device disagree: hop times of this session are that uncertain"),
                event_count="event_count",
            )
        )
    return pl.concat([tables.NOTES.conform(f) for f in found])
