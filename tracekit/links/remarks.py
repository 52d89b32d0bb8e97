"""What is worth knowing about links and chains, as rows of ``tables.NOTES``."""

from __future__ import annotations

import polars as pl

from tracekit import tables

_SYNCHRONISE = "synchronise the device before the profiler stops"
_BREAKS = {
    "dispatch": "record the framework in the same capture (torch.profiler), and start before the first launch",
    "stream": "keep the backend's driver events: profile with the device's activity",
    "runtime": "record the whole run: raise the buffer of the runtime's trace, or profile fewer steps",
    "hardware": f"{_SYNCHRONISE}, so that the last executions are in the capture",
}
"""Lane where chains break → how to have it next time."""

_ABSENT = (
    (
        "no_framework_events",
        pl.col("has_hardware") & ~pl.col("has_dispatch"),
        "no framework events: chains start at the runtime",
        "record operators too: torch.profiler with ProfilerActivity.CPU, instead of environment variables alone",
    ),
    (
        "no_device_events",
        (pl.col("has_stream") | pl.col("has_runtime")) & ~pl.col("has_hardware"),
        "no device events: chains end before the hardware",
        f"record the device too: ProfileMode.RUNTIME on Neuron, its ProfilerActivity elsewhere; {_SYNCHRONISE}",
    ),
)


def remarks(chains: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """Say where chains break, and which lanes whole sessions lack.

    Args:
        chains: ``tables.CHAINS``.
        lanes: ``session`` and ``has_<lane>`` of each lane.

    Returns:
        ``tables.NOTES``.
    """
    broken = (
        chains.filter(~pl.col("complete"))
        .group_by("session", "missing")
        .agg(event_count=pl.len(), has_work=(pl.col("hardware_ids").list.len() > 0).sum())
    )
    hints = pl.col("missing").replace_strict(_BREAKS, return_dtype=pl.String)
    told = broken.select(
        "session",
        severity=pl.when(pl.col("missing") == "hardware").then(pl.lit("warning")).otherwise(pl.lit("info")),
        code=pl.lit("incomplete_chains_") + pl.col("missing"),
        message=pl.format("{} chain(s) without an event of lane {}", "event_count", "missing"),
        hint=hints,
        event_count="event_count",
    )
    absent = [
        lanes.filter(condition).select(
            "session", severity=pl.lit("info"), code=pl.lit(code), message=pl.lit(message), hint=pl.lit(hint)
        )
        for code, condition, message, hint in _ABSENT
    ]
    return pl.concat([tables.NOTES.conform(f.cast({"session": pl.String})) for f in (told, *absent, _unlinked(chains))])


def _unlinked(chains: pl.DataFrame) -> pl.DataFrame:
    """Device work that nothing on the host is known to have launched."""
    alone = pl.all_horizontal(pl.col("dispatch_id", "launch_id", "submit_id", "wait_id").is_null())
    counted = chains.filter(alone, pl.col("hardware_ids").list.len() > 0).group_by("session").agg(event_count=pl.len())
    return counted.select(
        "session",
        severity=pl.lit("info"),
        code=pl.lit("unlinked_work"),
        message=pl.format(
            "{} piece(s) of device work without a launch in the capture, kept as chains of their own", "event_count"
        ),
        hint=pl.lit("start the profiler before the work is launched, or record runtime calls as well"),
        event_count="event_count",
    )


def ambiguous(counted: pl.DataFrame) -> pl.DataFrame:
    """Say how many links time had to decide because an id stood on several events.

    Args:
        counted: ``what``, ``events``.
    """
    some = counted.filter(pl.col("events") > 0)
    return tables.NOTES.conform(
        some.select(
            severity=pl.lit("info"),
            code=pl.lit("ambiguous_links"),
            message=pl.format("{} link(s) by repeated {}, decided by order in time", "events", "what"),
            event_count=pl.col("events").cast(pl.Int64),
        )
    )
