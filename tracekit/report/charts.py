"""Charts of a report, from the results of metrics."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from tracekit.report.model import Part, Series, ShareChart, Shares, XYChart
from tracekit.report.results import Results
from tracekit.report.timeline import CAUSES

SPLIT_PARTS: Mapping[str, str] = {
    "device_only": "device only",
    "both": "device and host",
    "host_only": "host only",
    "neither": "neither",
}
CAUSE_LABELS: Mapping[str, str] = {
    "collective": "collective",
    "copy": "copy",
    "model_switch": "model switch",
    "not_dispatched": "not dispatched",
    "dispatching": "dispatching",
    "runtime": "runtime",
    "unknown": "unknown",
}
BAR_LIMIT = 8
"""Bars of one chart; more sessions or cores are added up."""
POINT_LIMIT = 600
_COUNTER_LIMIT = 6
_CORE_LIMIT = 4


def share_charts(results: Results) -> list[ShareChart]:
    """The split of the measured time, and the idle time by cause; each only where there is something to show."""
    charts = [_split_chart(results.split(), results), _cause_chart(results.get("gaps"), results)]
    return [chart for chart in charts if chart is not None]


def _split_chart(split: pl.DataFrame | None, results: Results) -> ShareChart | None:
    if split is None:
        return None
    columns = {key: f"{key}_ns" for key in SPLIT_PARTS}
    bars = _bars(split, "window_ns", columns, SPLIT_PARTS, session_labels(results))
    doc = "Who worked during the measured time. Device-only time is limited by the device, host-only time by the host."
    return ShareChart("split", "Device and host", doc, bars) if bars else None


def _cause_chart(gaps: pl.DataFrame | None, results: Results) -> ShareChart | None:
    if gaps is None:
        return None
    names = session_labels(results)
    labelled = gaps.with_columns(core=pl.format("core {}", pl.col("core_index").cast(pl.String).fill_null("?")))
    columns = {cause: f"{cause}_ns" for cause in CAUSES}
    bars = _bars(labelled, "gap_ns", columns, CAUSE_LABELS, names, by=("session", "core"))
    doc = "Idle time between executions, by what the core waited for: the parts sum to the gaps exactly."
    return ShareChart("causes", "Why the device was idle", doc, bars) if bars else None


def _bars(
    frame: pl.DataFrame,
    whole: str,
    columns: Mapping[str, str],
    labels: Mapping[str, str],
    names: Mapping[str, str],
    by: tuple[str, ...] = ("session",),
) -> list[Shares]:
    """One bar per group, or one for all together where there are too many."""
    sums = frame.group_by(by, maintain_order=True).agg(pl.col(whole, *columns.values()).sum()).sort(by)
    if sums.height > BAR_LIMIT:
        sums = frame.select(pl.col(whole, *columns.values()).sum())
    out = []
    for row in sums.to_dicts():
        label = " · ".join(names.get(str(row[c]), str(row[c])) for c in by if c in row) or "all together"
        parts = [Part(key, labels[key], int(row[column])) for key, column in columns.items()]
        if row[whole]:
            out.append(Shares(label, int(row[whole]), parts))
    return out


def session_labels(results: Results) -> dict[str, str]:
    """How sessions are called: by rank where they have one."""
    rows = results.inputs.sessions.select("session", "rank").collect().to_dicts()
    return {r["session"]: f"rank {r['rank']}" if r["rank"] is not None else r["session"] for r in rows}


def xy_charts(results: Results, origin_ns: int) -> list[XYChart]:
    """Steps, lengths of gaps, queue and counters; each only where there is something to show."""
    lengths = _gap_lengths(results.get("gaps"))
    several = [*_queues(results, origin_ns), *_counters(results, origin_ns)]
    return [*_step_charts(results), *([lengths] if lengths else []), *several]


def _step_charts(results: Results) -> list[XYChart]:
    split = results.get("split", per="step")
    if split is None:
        return []
    labels = session_labels(results)
    charts: list[XYChart] = []
    sessions = split.filter(pl.col("step").is_not_null()).partition_by("session", maintain_order=True)
    for part in sessions[:_CORE_LIMIT]:
        if part.height < 2:
            continue
        session, rows = part["session"][0], part.sort("step").head(POINT_LIMIT)
        series = [Series(key, text, rows[f"{key}_ns"].to_list()) for key, text in SPLIT_PARTS.items()]
        title = "Steps" if len(sessions) == 1 else f"Steps of {labels.get(session, session)}"
        doc = "Length of each measured step, and who worked."
        x = [float(step) for step in rows["step"]]
        charts.append(XYChart(f"steps-{len(charts)}", title, doc, "stacked_bars", x, "step", "", "ns", series))
    return charts


def _gap_lengths(gaps: pl.DataFrame | None) -> XYChart | None:
    """Idle time by the length of its gap, two classes per power of ten."""
    if gaps is None or gaps.height < 3:
        return None
    half_decade = (pl.col("gap_ns").log10() * 2).floor().cast(pl.Int64)
    sums = gaps.group_by(bin=half_decade).agg(pl.col(f"{cause}_ns").sum() for cause in CAUSES).sort("bin")
    low, high = int(sums["bin"][0]), int(sums["bin"][-1])
    every = pl.DataFrame({"bin": range(low, high + 1)}, schema={"bin": pl.Int64})
    rows = every.join(sums, on="bin", how="left", maintain_order="left").fill_null(0)
    used = [cause for cause in CAUSES if rows[f"{cause}_ns"].sum()]
    series = [Series(cause, CAUSE_LABELS[cause], rows[f"{cause}_ns"].to_list()) for cause in used]
    x = [bin / 2 for bin in rows["bin"].to_list()]
    doc = "How much idle time lies in short and in long gaps: a bar sums the gaps from its length up to the next."
    return XYChart(
        "gap-lengths", "Idle time by length of the gap", doc, "stacked_bars", x, "gap length", "log_ns", "ns", series
    )


def _queues(results: Results, origin_ns: int) -> list[XYChart]:
    """Submitted executions that have not finished, over time and per core: the most in each stretch."""
    queue = results.get("queue", by="time")
    if queue is None:
        return []
    names = session_labels(results)
    points = queue.filter(pl.col("start_ns").is_not_null(), pl.col("outstanding_max").is_not_null())
    cores = points.partition_by("session", "core_index", maintain_order=True)
    charts: list[XYChart] = []
    for rows in cores[:_CORE_LIMIT]:
        place = f"{names.get(rows['session'][0], rows['session'][0])} · core {rows['core_index'][0]}"
        title = "Queue depth" if len(cores) == 1 else f"Queue depth of {place}"
        thin = _thinned(rows.select(at_ns="start_ns", value="outstanding_max"), origin_ns, pl.col("value").max())
        series = [Series("main", "outstanding", thin["value"].cast(pl.Float64).to_list())]
        doc = "Executions submitted to the device and not finished. At 0 the device has nothing to do."
        x = thin["at_ns"].to_list()
        charts.append(XYChart(f"queue-{len(charts)}", title, doc, "step_line", x, "time", "ns", "", series))
    return charts


def _counters(results: Results, origin_ns: int) -> list[XYChart]:
    """Sampled counters over time, the most often sampled first."""
    samples = results.inputs.samples
    series = ["counter", "core_index", "process_id"]
    ranked = (
        samples.group_by(series).len().sort("len", *series, descending=[True, False, False, False], nulls_last=True)
    )
    charts: list[XYChart] = []
    for row in ranked.head(_COUNTER_LIMIT).collect().to_dicts():
        same = [pl.col(c).eq_missing(row[c]) for c in series]
        rows = samples.filter(*same).select("at_ns", "value", "unit").collect()
        if rows["value"].n_unique() < 2:
            continue
        points = _thinned(rows, origin_ns, pl.col("value").mean())
        core = "" if row["core_index"] is None else f", core {row['core_index']}"
        line = [Series("main", row["counter"], points["value"].to_list())]
        unit = str(rows["unit"].drop_nulls().first() or "")
        title, doc, x = f"{row['counter']}{core}", f"Counter, {rows.height:,} samples.", points["at_ns"].to_list()
        charts.append(XYChart(f"counter-{len(charts)}", title, doc, "step_line", x, "time", "ns", unit, line))
    return charts


def _thinned(rows: pl.DataFrame, origin_ns: int, value: pl.Expr) -> pl.DataFrame:
    """At most ``POINT_LIMIT`` points (``at_ns`` since the origin, ``value``) by equal stretches of time."""
    rows = rows.with_columns(pl.col("at_ns") - origin_ns).sort("at_ns")
    if rows.is_empty():
        return rows
    first, last = int(rows["at_ns"][0]), int(rows["at_ns"][-1])
    if rows.height <= POINT_LIMIT:
        return rows.group_by("at_ns", maintain_order=True).agg(value)
    width = max(1, (last - first) // POINT_LIMIT)
    stretch = (pl.col("at_ns") - first) // width
    return rows.group_by(stretch=stretch, maintain_order=True).agg(pl.col("at_ns").first(), value)
