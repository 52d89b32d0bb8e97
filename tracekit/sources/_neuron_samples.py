"""Usage tables of the Neuron system profile (CPU, host memory, device memory) as ``tables.SAMPLES``."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

TIME_COLUMNS = ("timestamp", "timestamp_ns", "ts", "ts_ns", "start_ts", "time_ns", "at_ns")
"""Spellings of the time of a sample, Unix ns; the public descriptions give the first only."""

_IDS = ("instance_id", "process_id")
_SERIES = ("cpu_id", "hbm_idx", "nd_idx", "device_idx", "vnc_idx", "pcore_idx")
_CORES = ("nc_idx", "lnc_idx")
_SKIPPED = frozenset((*TIME_COLUMNS, *_IDS, *_SERIES, *_CORES, "id", "worker_gid"))

Process = tuple[str | None, int | None]


def sample_frames(rows: pl.DataFrame, table: str) -> Iterator[tuple[Process, pl.DataFrame]] | None:
    """Turn a wide usage table into samples, process by process.

    Every number column becomes a counter ``<table>/<column>``; columns that number a CPU or a memory
    bank are part of the counter's name (``cpu_util/util/cpu_id=3``).

    Args:
        rows: one row per time; numbers may be text.
        table: name to begin the counters with.

    Returns:
        ((instance id, process id), ``tables.SAMPLES`` without session), or None if no column holds a time.
    """
    times = [name for name in TIME_COLUMNS if name in rows.columns]
    return _frames(rows, table, times) if times else None


def _frames(rows: pl.DataFrame, table: str, times: list[str]) -> Iterator[tuple[Process, pl.DataFrame]]:
    at_ns = pl.coalesce(pl.col(name).cast(pl.Int64, strict=False) for name in times)
    process = pl.col("process_id") if "process_id" in rows.columns else pl.lit(None)
    instance = pl.col("instance_id") if "instance_id" in rows.columns else pl.lit(None)
    cores = [pl.col(name).cast(pl.Int32, strict=False) for name in _CORES if name in rows.columns]
    core = pl.coalesce(cores) if cores else pl.lit(None, dtype=pl.Int32)
    suffix = [
        pl.when(pl.col(name).is_null()).then(pl.lit("")).otherwise(pl.format(f"/{name}={{}}", pl.col(name)))
        for name in _SERIES
        if name in rows.columns
    ]
    keyed = rows.select(
        at_ns.alias("at_ns"),
        process.cast(pl.Int64, strict=False).alias("process_id"),
        instance.cast(pl.String).alias("instance_id"),
        core.alias("core_index"),
        (pl.concat_str(suffix) if suffix else pl.lit("")).alias("series"),
        *(_number(name, dtype) for name, dtype in rows.schema.items() if _is_value(name, dtype)),
    )
    values = [name for name in keyed.columns if name in rows.columns and name not in _SKIPPED]
    long = keyed.unpivot(on=values, index=["at_ns", "process_id", "instance_id", "core_index", "series"])
    long = long.filter(pl.col("value").is_not_null() & pl.col("at_ns").is_not_null())
    samples = long.select(
        "instance_id",
        "process_id",
        "core_index",
        "at_ns",
        pl.format(f"{table}/{{}}{{}}", "variable", "series").alias("counter"),
        "value",
        _unit().alias("unit"),
    )
    for part in samples.partition_by("instance_id", "process_id", maintain_order=True):
        yield (part["instance_id"][0], part["process_id"][0]), part.drop("instance_id")


def _is_value(name: str, dtype: pl.DataType) -> bool:
    return name not in _SKIPPED and (dtype.is_numeric() or dtype == pl.String())


def _number(name: str, dtype: pl.DataType) -> pl.Expr:
    return pl.col(name).cast(pl.Float64, strict=False)


def _unit() -> pl.Expr:
    """Bytes where the name says so or the counter is memory in use; percent for percentages and CPU use."""
    name = pl.col("variable")
    return (
        pl.when(name.str.contains("percent") | (name == "util"))
        .then(pl.lit("%"))
        .when(name.str.ends_with("_bytes") | (name == "usage"))
        .then(pl.lit("B"))
        .otherwise(pl.lit(None, dtype=pl.String))
    )
