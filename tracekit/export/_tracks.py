"""Which track of a Perfetto trace every event, gap and sample goes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from tracekit.activity import DEVICE_WORK_KINDS
from tracekit.metrics.base import Inputs
from tracekit.tables import LANES

KEYS = ("session", "group", "major", "minor", "thread", "process", "counter", "unit", "is_beside")
"""Columns that name a track; which of them are null depends on its group."""

GROUPS = (*LANES, "gaps", "counters")
_NO_INT, _NO_TEXT, _NO_FLAG = pl.lit(None, pl.Int64), pl.lit(None, pl.String), pl.lit(None, pl.Boolean)


@dataclass(frozen=True)
class Tracks:
    """``table``: ``KEYS``, then ``track`` (from 0 on, in the order shown) and ``label``. ``processes``: session,
    process_id (unique, positive, 31 bits), label."""

    table: pl.DataFrame
    processes: pl.DataFrame


def event_keys() -> dict[str, pl.Expr]:
    """``KEYS`` of primary events.

    A thread (lane ``dispatch``), a stream, a logical core (``runtime``; a thread where no core is known) or a physical
    core (``hardware``; a stream on GPUs) is a track. What a device does beside its work (annotations, waits, changes
    of the model) has a track of its own, so that a track of work is as busy as the tables say.
    """
    lane = pl.col("lane")
    is_core, is_device, is_stream = lane == "runtime", lane == "hardware", lane == "stream"
    core = pl.col("core_index").cast(pl.Int64)
    needs_thread = (lane == "dispatch") | (is_core & core.is_null())
    return {
        "group": lane,
        "major": pl.when(is_core | is_device).then(core).when(is_stream).then(pl.coalesce("stream_id", "thread_id")),
        "minor": pl.when(is_device).then(pl.coalesce(pl.col("physical_core").cast(pl.Int64), "stream_id")),
        "thread": pl.when(needs_thread).then(pl.col("thread_id")),
        "process": pl.when(needs_thread).then(pl.col("process_id")),
        "counter": _NO_TEXT,
        "unit": _NO_TEXT,
        "is_beside": pl.when(is_device).then(~pl.col("kind").is_in(DEVICE_WORK_KINDS)),
    }


def gap_keys() -> dict[str, pl.Expr]:
    """``KEYS`` of gaps: one track per logical core."""
    numbers = {"minor": _NO_INT, "thread": _NO_INT, "process": _NO_INT}
    rest = {"counter": _NO_TEXT, "unit": _NO_TEXT, "is_beside": _NO_FLAG}
    return {"group": pl.lit("gaps"), "major": pl.col("core_index").cast(pl.Int64), **numbers, **rest}


def sample_keys() -> dict[str, pl.Expr]:
    """``KEYS`` of samples: one track per counter, core and process."""
    return {
        "group": pl.lit("counters"),
        "major": pl.col("core_index").cast(pl.Int64),
        "minor": _NO_INT,
        "thread": _NO_INT,
        "process": pl.col("process_id"),
        "counter": pl.col("counter"),
        "unit": pl.col("unit"),
        "is_beside": _NO_FLAG,
    }


def tracks(inputs: Inputs, gaps: pl.LazyFrame) -> Tracks:
    """Every track of a profile.

    Args:
        inputs: ``events``, ``samples``, ``threads``, ``sessions``.
        gaps: rows of the metric ``gaps``.
    """
    primary = inputs.events.filter("is_primary")
    is_core = (pl.col("lane") == "hardware") & pl.col("physical_core").is_not_null()
    keyed = [
        primary.select("session", **event_keys(), has_cores=is_core).group_by(KEYS).agg(pl.col("has_cores").any()),
        gaps.select("session", **gap_keys(), has_cores=True).unique(),
        inputs.samples.select("session", **sample_keys(), has_cores=False).unique(),
    ]
    found = pl.concat(f.select(*KEYS, "has_cores") for f in keyed).collect(engine="streaming")
    labelled = found.join(_thread_names(inputs), on=["session", "process", "thread"], how="left", nulls_equal=True)
    order = pl.col("group").cast(pl.Enum(GROUPS))
    table = (
        labelled.with_columns(label=_label())
        .sort("session", order, *KEYS[2:], nulls_last=True)
        .select(*KEYS, "label")
        .with_row_index("track")
        .with_columns(pl.col("track").cast(pl.Int64))
    )
    return Tracks(table, _processes(inputs))


def _thread_names(inputs: Inputs) -> pl.DataFrame:
    """One row per thread that has a name or a text for an id."""
    columns = {"process": "process_id", "thread": "thread_id"}
    return (
        inputs.threads.select("session", "thread_name", "thread_label", **columns)
        .filter(pl.col("thread_name").is_not_null() | pl.col("thread_label").is_not_null())
        .unique(("session", "process", "thread"), keep="first", maintain_order=True)
        .collect()
    )


def _label() -> pl.Expr:
    group = pl.col("group")
    major, minor, thread = (pl.col(c).cast(pl.String) for c in ("major", "minor", "thread"))
    on_core = pl.format("core {} · physical core {}", major.fill_null("?"), minor.fill_null("?"))
    on_stream = pl.format("device {} · stream {}", major.fill_null("?"), minor.fill_null("?"))
    device = pl.when("has_cores").then(on_core).otherwise(on_stream)
    beside = pl.when("is_beside").then(pl.lit(" · annotations and other")).otherwise(pl.lit(""))
    number = pl.coalesce("thread_label", "thread " + thread, pl.lit("thread ?"))
    named = pl.concat_str(number, " " + pl.col("thread_name"), ignore_nulls=True)
    of_core = pl.concat_str("counter", " · core " + major, ignore_nulls=True)
    cases: Mapping[str, pl.Expr] = {
        "runtime": pl.when(major.is_not_null())
        .then(pl.format("core {} · runtime", major))
        .otherwise(named + " · runtime"),
        "stream": pl.format("stream {}", major.fill_null("?")),
        "hardware": device + beside,
        "gaps": pl.format("core {} · gaps", major.fill_null("?")),
        "counters": of_core,
    }
    return pl.coalesce(*(pl.when(group == name).then(label) for name, label in cases.items()), named)


def _processes(inputs: Inputs) -> pl.DataFrame:
    """A process per session; its own number if no session before has it, else one made up."""
    rank = pl.lit("rank ") + pl.col("rank").cast(pl.String) + " · "
    is_own = pl.col("process_id").is_between(1, 2**30 - 1) & pl.col("process_id").is_first_distinct()
    return (
        inputs.sessions.select("session", "process_id", label=pl.concat_str(rank, "session", ignore_nulls=True))
        .sort("session")
        .with_columns(
            process_id=pl.when(is_own).then("process_id").otherwise(2**30 + pl.int_range(pl.len(), dtype=pl.Int64))
        )
        .collect()
    )
