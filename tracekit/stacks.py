"""What a host thread was doing when: its innermost operator and the user's line of Python."""

from __future__ import annotations

import polars as pl

from tracekit import intervals

THREAD = ("session", "process_id", "thread_id")
NO_OPERATOR = "(between operators)"
NO_THREAD = "(thread not known)"

_STEP = r"^ProfilerStep#\d+$"
_TRACK = ("_thread",)
_NO_ID = pl.lit(None, dtype=pl.Int64)
_FOREIGN_FRAME = r"^<|^torch/|^threading\.py|^runpy\.py|^contextlib\.py|/site-packages/"


def doing(rows: pl.LazyFrame, events: pl.LazyFrame) -> pl.LazyFrame:
    """Cut rows wherever their thread went over to something else.

    A thread does what its innermost operator, call, wait or annotation says (steps apart), for the line of
    Python that is the innermost one outside PyTorch and the interpreter. No time is lost: where nothing
    is known, ``host_name`` says so.

    Args:
        rows: any frame with the columns of ``THREAD`` (a thread of ``events``, or null), ``start_ns``, ``end_ns``.
        events: ``tables.EVENTS``.

    Returns:
        The columns of ``rows`` with the cut times, then ``host_name`` and ``host_frame`` (null without
        stacks), in no particular order.
    """
    kind, name = pl.col("kind"), pl.col("name")
    on_host = events.filter(pl.col("is_primary") & (pl.col("lane") == "dispatch"))
    operators = on_host.filter(kind.is_in(["op", "call", "sync", "annotation"]) & ~name.str.contains(_STEP))
    frames = on_host.filter((kind == "python") & ~name.str.contains(_FOREIGN_FRAME))
    unknown = pl.when(pl.col("thread_id").is_null()).then(pl.lit(NO_THREAD)).otherwise(pl.lit(NO_OPERATOR))
    threads = _threads(events)
    rows = rows.with_row_index("_row").cache()
    pieces = rows.join(threads, on=THREAD, how="left", nulls_equal=True).select("_row", *_TRACK, "start_ns", "end_ns")
    pieces = intervals.clip(pieces, _innermost(operators, threads, "host_name"), _TRACK)
    pieces = intervals.clip(pieces, _innermost(frames, threads, "host_frame"), _TRACK)
    names = rows.collect_schema().names()[1:]
    cut = rows.drop("start_ns", "end_ns").join(pieces, on="_row")
    return cut.with_columns(host_name=pl.coalesce("host_name", unknown)).select(*names, "host_name", "host_frame")


def enclosing_op(rows: pl.LazyFrame, events: pl.LazyFrame, name: str = "op_name") -> pl.LazyFrame:
    """Add the innermost operator that runs on the row's thread when the row starts; null if none does.

    Args:
        rows: any frame with the columns of ``THREAD`` (a thread of ``events``, or null) and ``start_ns``.
        events: ``tables.EVENTS``.
        name: the column to add.

    Returns:
        ``rows`` plus ``name``, in no particular order.
    """
    operators = events.filter(pl.col("is_primary") & (pl.col("lane") == "dispatch") & (pl.col("kind") == "op"))
    threads = _threads(events)
    rows = rows.join(threads, on=THREAD, how="left", nulls_equal=True)
    return intervals.within(rows, _innermost(operators, threads, name), _TRACK).drop(_TRACK)


def _threads(events: pl.LazyFrame) -> pl.LazyFrame:
    """Numbers all threads, the unknown one of each session included: one integer is quicker than three columns."""
    threads = events.select(THREAD).unique()
    unknown = threads.select("session", process_id=_NO_ID, thread_id=_NO_ID)
    return pl.concat([threads, unknown]).unique().sort(THREAD).with_row_index("_thread")


def _innermost(spans: pl.LazyFrame, threads: pl.LazyFrame, name: str) -> pl.LazyFrame:
    """The name of the innermost span at any time of any thread."""
    placed = spans.join(threads, on=THREAD, nulls_equal=True).select(
        *_TRACK, "start_ns", "end_ns", pl.col("name").alias(name)
    )
    return intervals.innermost(placed, _TRACK, name, threads.select(_TRACK))
