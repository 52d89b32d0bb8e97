"""Launches: the call that put work on a device, its event on the device stream, and the work it led to."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from tracekit.links import match
from tracekit.links.rows import LAUNCH_NAME, NOT_A_LAUNCH, is_id

_THREAD = ("session", "process_id", "thread_id")
_SEQUENCE = ("session", "sequence_id")
_CORRELATION = ("session", "correlation_id")
_EXTERNAL = ("session", "external_id")
_IDS = ("sequence_id", "external_id", "correlation_id")


class Matched(NamedTuple):
    """``effect``, ``cause``, ``method`` of each pair, and how many of them time alone decided."""

    pairs: pl.DataFrame
    ambiguous: int


def launches(calls: pl.DataFrame, streams: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """One row per call or stream event that may launch work, the two of one launch brought together.

    By sequence number, else by External id.

    Returns:
        ``launch`` (index), ``call_id``, ``call_lane``, ``call_name``, ``stream_event``, ``stream_name``,
        ``stream_id``, ``model_id``, and of the call (of the stream event where there is no call) ``session``,
        ``process_id``, ``thread_id``, ``start_ns``, ``end_ns``, ``at``, ``name`` and the ids; and how many
        were told apart by time only.
    """
    causes = match.indexed(calls.filter(_may_launch()), "cause")
    effects = match.indexed(streams, "effect")
    met = _with_stream(causes, effects)
    shared = ("session", "process_id", "thread_id", "start_ns", "end_ns", "at", "name", *_IDS)
    call = causes.select("cause", *shared, call_id="event_id", call_lane="lane", call_name="name")
    stream = effects.select("effect", "stream_id", "model_id", stream_event="event_id", stream_name="name")
    with_call = call.join(met.drop("ambiguous"), on="cause", how="left", validate="1:1").join(
        stream, on="effect", how="left", validate="m:1"
    )
    alone = effects.select("effect", *shared).join(met, on="effect", how="anti").join(stream, on="effect")
    sequence = effects.select("effect", stream_sequence="sequence_id", stream_external="external_id")
    made = (
        pl.concat([with_call, alone], how="diagonal")
        .join(sequence, on="effect", how="left", validate="m:1")
        .with_columns(
            sequence_id=pl.coalesce("sequence_id", "stream_sequence"),
            external_id=pl.coalesce("external_id", "stream_external"),
        )
        .drop("cause", "effect", "stream_sequence", "stream_external")
        .sort("at", "call_id", "stream_event")
    )
    return match.indexed(made, "launch"), int(met["ambiguous"].sum())


def _with_stream(causes: pl.DataFrame, effects: pl.DataFrame) -> pl.DataFrame:
    first = match.pair(causes, effects, _SEQUENCE)
    free = (causes.join(first, on="cause", how="anti"), effects.join(first, on="effect", how="anti"))
    numberless = pl.col("sequence_id").is_null() & is_id("external_id")
    return pl.concat([first, match.pair(free[0].filter(numberless), free[1].filter(numberless), _EXTERNAL)])


def _may_launch() -> pl.Expr:
    """Calls with any id, and those that look like a launch."""
    ids = pl.any_horizontal(pl.col(_IDS).is_not_null())
    return ids | pl.col("name").str.contains(LAUNCH_NAME)


def of_work(made: pl.DataFrame, work: pl.DataFrame, flows: pl.LazyFrame) -> Matched:
    """Find the launch of each piece of device work that the framework's trace tells of.

    By correlation, else by sequence number, else by flow.

    Args:
        made: ``launches``.
        work: ``effect``, ``event_id``, ``session``, ``process_id``, ``thread_id``, ``start_ns``, ``end_ns``,
            ``at`` and the ids.
        flows: ``tables.FLOWS``.
    """
    causes = made.filter(pl.col("call_id").is_not_null()).rename({"launch": "cause"})
    by_correlation = _by_correlation(causes, work)
    rest = work.join(by_correlation, on="effect", how="anti")
    by_sequence = match.owner(causes, rest, _SEQUENCE)
    rest = rest.join(by_sequence, on="effect", how="anti")
    by_flow = _by_flow(causes, rest, flows)
    found = [
        by_correlation.with_columns(method=pl.lit("id")),
        by_sequence.with_columns(method=pl.lit("id")),
        by_flow.with_columns(method=pl.lit("flow")),
    ]
    pairs = pl.concat(found)
    return Matched(pairs.drop("ambiguous"), int(pairs["ambiguous"].sum()))


def _by_correlation(causes: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Correlations join calls and device work; where processes share a trace, each device has one process.

    Correlations of several processes in one trace collide. Which process drives a device is learnt from the
    correlations that only one process has.
    """
    known = causes.select("cause", "at", *_CORRELATION, "process_id")
    simple = match.owner(known, work, _CORRELATION)
    processes = known.group_by("session").agg(several=pl.col("process_id").n_unique() > 1).filter("several")
    doubtful = simple.filter("ambiguous").join(work.join(processes, on="session", how="semi"), on="effect", how="semi")
    if doubtful.is_empty():
        return simple
    home = _home_process(known, work, simple)
    placed = work.join(doubtful, on="effect", how="semi").rename({"process_id": "device_process"})
    placed = placed.join(home, on=["session", "device_process"], validate="m:1")
    at_home = match.owner(known, placed, (*_CORRELATION, "process_id"))
    return pl.concat([simple.join(at_home, on="effect", how="anti"), at_home])


def _home_process(known: pl.DataFrame, work: pl.DataFrame, simple: pl.DataFrame) -> pl.DataFrame:
    """``session``, ``device_process``, ``process_id``: which process launches what a device runs."""
    sure = simple.filter(~pl.col("ambiguous"))
    told = sure.join(known.select("cause", "process_id"), on="cause").join(
        work.select("effect", "session", device_process="process_id"), on="effect"
    )
    return (
        told.group_by("session", "device_process", "process_id")
        .agg(rows=pl.len())
        .sort("rows", "process_id", descending=[True, False])
        .unique(["session", "device_process"], keep="first", maintain_order=True)
        .drop("rows")
    )


def _by_flow(causes: pl.DataFrame, work: pl.DataFrame, flows: pl.LazyFrame) -> pl.DataFrame:
    """Arrows that end at work without an id, followed back to the call they start from."""
    if work.is_empty() or causes.is_empty():
        return match.NO_MATCH
    sessions = work["session"].dtype
    names = work["session"].unique().cast(pl.String).to_list()
    arrows = flows.filter(pl.col("session").is_in(names), pl.col("category").fill_null("") != "fwdbwd")
    ends = _ends_at(work, arrows.filter(pl.col("phase") == "end"), sessions)
    if ends.is_empty():
        return match.NO_MATCH
    key = ["session", "category", "flow_id"]
    starts = (
        arrows.filter(pl.col("phase") == "start")
        .with_columns(pl.col("session").cast(sessions), pl.col("category").fill_null(""))
        .join(ends.select(key).unique().lazy(), on=key, how="semi")
        .select(*key, *_THREAD[1:], "at_ns")
        .collect(engine="streaming")
    )
    calls = _holding(match.indexed(starts, "arrow"), causes.select("cause", *_THREAD, "start_ns", "end_ns"))
    origins = calls.select("cause", *key, at="at_ns")
    return match.owner(origins, ends.select("effect", *key, at="at_ns"), key)


def _ends_at(work: pl.DataFrame, arrows: pl.LazyFrame, sessions: pl.DataType) -> pl.DataFrame:
    """``effect`` with the arrow that ends in it: within it if bound to what encloses it, else the next one."""
    rows = (
        arrows.with_columns(pl.col("session").cast(sessions), pl.col("category").fill_null(""))
        .join(work.select(_THREAD).unique().lazy(), on=list(_THREAD), how="semi")
        .select("category", "flow_id", *_THREAD, "at_ns", "binds_enclosing")
        .collect(engine="streaming")
    )
    held = pl.col("binds_enclosing").fill_null(False)
    targets = work.select("effect", *_THREAD, "start_ns", "end_ns")
    inside = _holding(match.indexed(rows.filter(held), "arrow"), targets)
    ahead = (
        rows.filter(~held)
        .sort("at_ns")
        .join_asof(
            targets.sort("start_ns"),
            left_on="at_ns",
            right_on="start_ns",
            by=list(_THREAD),
            strategy="forward",
            check_sortedness=False,
        )
        .drop_nulls("effect")
    )
    columns = ("effect", "session", "category", "flow_id", "at_ns")
    both = pl.concat([inside.select(columns), ahead.select(columns)])
    return both.unique("effect", keep="first", maintain_order=True)


def _holding(arrows: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Arrows with the event of their thread that holds their moment (the last one to start)."""
    return (
        arrows.sort("at_ns")
        .join_asof(
            events.sort("start_ns"),
            left_on="at_ns",
            right_on="start_ns",
            by=list(_THREAD),
            strategy="backward",
            check_sortedness=False,
            coalesce=False,
        )
        .filter(pl.col("at_ns") <= pl.col("end_ns"))
    )


def is_launch(made: pl.DataFrame, launched: pl.DataFrame) -> pl.DataFrame:
    """The launches that must have led to work, whether it was found or not.

    Those with a stream event or a sequence number; runtime calls whose name says so; and calls whose name
    has led to work elsewhere in the session.

    Args:
        made: ``launches``.
        launched: ``launch`` of those that work was found for.
    """
    proven = made.join(launched, on="launch", how="semi").select("session", "call_name").unique()
    looks = (pl.col("call_name").str.contains(LAUNCH_NAME) & ~pl.col("call_name").str.contains(NOT_A_LAUNCH)).fill_null(
        False
    ) & pl.col("call_lane").eq("runtime").fill_null(False)
    certain = pl.col("stream_event").is_not_null() | pl.col("sequence_id").is_not_null() | looks
    by_name = made.join(proven, on=["session", "call_name"], how="semi").select("launch")
    return pl.concat([made.filter(certain).select("launch"), by_name]).unique().sort("launch")
