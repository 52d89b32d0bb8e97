"""Chains per operator: how many, where they break, and the time of each hop."""

from __future__ import annotations

import polars as pl

from tracekit.tables import LANES, Column, Table

HOPS = ("to_submit", "to_start", "device")
"""Operator start → submit start → hardware start → hardware end."""

_DOCS = {
    "to_submit": "from the operator's start to the submit",
    "to_start": "from the submit to the start on the hardware",
    "device": "on the hardware, physical cores merged",
}
_STATISTICS = {"median": "Median time", "p95": "95th percentile of the time", "total": "Total time"}


def _hop_columns() -> list[Column]:
    return [
        Column(f"{hop}_{statistic}_ns", pl.Int64(), f"{doc} {_DOCS[hop]}.", statistic != "total", "ns")
        for hop in HOPS
        for statistic, doc in _STATISTICS.items()
    ]


CHAIN_SUMMARY = Table(
    name="chain_summary",
    doc="Chains per operator and kind of work: where they break and the time of each hop.",
    key=("name", "kind"),
    columns=(
        Column("name", pl.String(), "Operator that launched; the execution's own name if none is known."),
        Column("kind", pl.String(), "Kind of work, as in `chains`."),
        Column("chain_count", pl.Int64(), "Chains."),
        Column("complete_count", pl.Int64(), "Chains with every lane that their session has."),
        *(Column(f"missing_{lane}_count", pl.Int64(), f"Chains whose first absent lane is {lane}.") for lane in LANES),
        *_hop_columns(),
    ),
)


def summary(chains: pl.LazyFrame, scope: pl.LazyFrame) -> pl.LazyFrame:
    """Count chains per operator and measure their hops.

    A chain belongs to the window in which it starts (its first known time). A hop is measured where both of its
    ends are known; one that runs backwards (clocks that disagree) stays negative.

    Args:
        chains: ``tables.CHAINS``.
        scope: windows, ``metrics.base.SCOPE``.

    Returns:
        ``CHAIN_SUMMARY``, most time on the hardware first, then most chains.
    """
    hops = {
        "to_submit": pl.col("submit_ns") - pl.col("dispatch_start_ns"),
        "to_start": pl.col("hardware_start_ns") - pl.col("submit_ns"),
        "device": pl.when(pl.col("hardware_start_ns").is_not_null()).then("device_ns"),
    }
    measured = [
        statistic.cast(pl.Int64).alias(f"{hop}_{name}_ns")
        for hop, length in hops.items()
        for name, statistic in (
            ("median", length.median()),
            ("p95", length.quantile(0.95, "nearest")),
            ("total", length.sum()),
        )
    ]
    missing = [(pl.col("missing") == lane).sum().cast(pl.Int64).alias(f"missing_{lane}_count") for lane in LANES]
    grouped = (
        _within(chains, scope)
        .group_by("name", "kind")
        .agg(
            pl.len().cast(pl.Int64).alias("chain_count"),
            pl.col("complete").sum().cast(pl.Int64).alias("complete_count"),
            *missing,
            *measured,
        )
    )
    return CHAIN_SUMMARY.conform(grouped).sort(
        "device_total_ns", "chain_count", "name", "kind", descending=[True, True, False, False]
    )


def _within(chains: pl.LazyFrame, scope: pl.LazyFrame) -> pl.LazyFrame:
    first_ns = pl.min_horizontal("dispatch_start_ns", "submit_ns", "wait_start_ns", "hardware_start_ns")
    windows = scope.select("session", window_ns="start_ns", window_end_ns="end_ns").sort("window_ns")
    return (
        chains.with_columns(first_ns=first_ns)
        .sort("first_ns")
        .join_asof(
            windows,
            left_on="first_ns",
            right_on="window_ns",
            by="session",
            strategy="backward",
            check_sortedness=False,
        )
        .filter(pl.col("first_ns") < pl.col("window_end_ns"))
    )
