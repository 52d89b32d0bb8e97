"""Two profiles side by side: key figures, shares and operators."""

from __future__ import annotations

import polars as pl

from tracekit.report.answer import top_ops
from tracekit.report.charts import share_charts
from tracekit.report.model import (
    Answer,
    CompareRow,
    Comparison,
    Figure,
    Part,
    ShareChart,
    Shares,
    TableBlock,
    TableColumn,
)
from tracekit.report.results import Results
from tracekit.report.timeline import CAUSES
from tracekit.report.words import duration

OP_LIMIT = 500
_FIGURES = (
    ("split", {}, "window_ns", "Measured time", "ns"),
    ("work", {}, "device_ns", "Device time", "ns"),
    ("split", {}, "host_only_ns", "Host only", "ns"),
    ("split", {}, "device_only_ns", "Device only", "ns"),
    ("split", {}, "both_ns", "Device and host", "ns"),
    ("split", {}, "neither_ns", "Neither", "ns"),
    ("split", {}, "exposed_collective_ns", "Exposed collectives", "ns"),
    ("split", {}, "exposed_copy_ns", "Exposed copies", "ns"),
    ("counts", {"by": "total"}, "operator_count", "Operator calls", ""),
    ("counts", {"by": "total"}, "execution_count", "Hardware executions", ""),
    ("gaps", {}, "gap_ns", "Idle in gaps", "ns"),
    *(("gaps", {}, f"{cause}_ns", f"Gaps: {cause.replace('_', ' ')}", "ns") for cause in CAUSES),
)
"""Metric, its options, column to sum, label, unit."""


def comparison(name_a: str, a: Results, name_b: str, b: Results) -> Comparison:
    """Key figures, bars and operators of both sides; rows that are 0 or unknown on both are left out."""
    rows = []
    for metric, options, column, label, unit in _FIGURES:
        values = [_total(side, metric, options, column) for side in (a, b)]
        if any(values):
            rows.append(CompareRow(label, unit, values[0], values[1]))
    operators = _operators(a, b)
    return Comparison(name_a, name_b, rows, _charts(a, b), [operators] if operators else [])


def answer(found: Comparison) -> Answer:
    """What changed from A to B, in a line, and the figures of B."""
    by_label = {row.label: row for row in found.rows}
    main = next((by_label[name] for name in ("Device time", "Measured time") if name in by_label), None)
    if main is None or main.a is None or main.b is None:
        return Answer("The two profiles have no figure in common.")
    runs = by_label.get("Hardware executions")
    sentences = [f"A is {found.a}. B is {found.b}."]
    if runs and runs.a is not None and runs.b is not None:
        sentences.append(f"Hardware executions: {runs.a:,} → {runs.b:,}.")
    window = by_label.get("Measured time")
    if window and window is not main and window.a is not None and window.b is not None:
        sentences.append(f"Measured time: {duration(int(window.a))} → {duration(int(window.b))} ({_change(window.a, window.b)}).")
    sentences.append("One capture on each side cannot tell a real change from noise: see tracekit diff for a test over steps.")
    change = f"{main.label} {duration(int(main.a))} → {duration(int(main.b))} ({_change(main.a, main.b)})."
    figures = [Figure(r.label, r.b, r.unit, f"{_change(r.a or 0, r.b or 0)} from A") for r in found.rows[:2]]
    return Answer(change, sentences, figures)


def _change(a: float, b: float) -> str:
    if a == b:
        return "no change"
    return f"{100 * (b / a - 1):+.1f} %".replace("-", "−") if a else "new"


def _total(results: Results, metric: str, options: dict[str, str], column: str) -> int | None:
    frame = results.get(metric, **options)
    return None if frame is None or column not in frame.columns else int(frame[column].sum())


def _charts(a: Results, b: Results) -> list[ShareChart]:
    """The bars of both sides in one chart each, sessions and cores added up."""
    sides = [{chart.id: chart for chart in share_charts(results)} for results in (a, b)]
    out = []
    for id in ("split", "causes"):
        charts = [side.get(id) for side in sides]
        bars = [_added(chart, label) for chart, label in zip(charts, "AB", strict=True) if chart]
        first = next((chart for chart in charts if chart), None)
        if first:
            out.append(ShareChart(id, first.title, first.doc, bars))
    return out


def _added(chart: ShareChart, label: str) -> Shares:
    parts: dict[str, Part] = {}
    for bar in chart.bars:
        for part in bar.parts:
            before = parts[part.key].ns if part.key in parts else 0
            parts[part.key] = Part(part.key, part.label, before + part.ns)
    return Shares(label, sum(bar.whole_ns for bar in chart.bars), list(parts.values()))


def _operators(a: Results, b: Results) -> TableBlock | None:
    """Operators by device time on both sides, the largest change first; absent on one side is null there."""
    sides = [top_ops(side) for side in (a, b)]
    frames = [
        (pl.DataFrame(schema={"name": pl.String(), "device_ns": pl.Int64(), "execution_count": pl.Int64()}) if s is None else s)
        .rename({"device_ns": f"{label}_ns", "execution_count": f"{label}_count"})
        for s, label in zip(sides, "ab", strict=True)
    ]  # fmt: skip
    joined = frames[0].join(frames[1], on="name", how="full", coalesce=True)
    if joined.is_empty():
        return None
    change = pl.col("b_ns").fill_null(0) - pl.col("a_ns").fill_null(0)
    ratio = pl.when(pl.col("a_ns") > 0).then(pl.col("b_ns") / pl.col("a_ns") - 1)
    rows = joined.with_columns(change_ns=change, change_ratio=ratio).sort(
        change.abs(), pl.col("name"), descending=[True, False]
    )
    columns = [
        TableColumn("name", "operator", "Operator that launched the work, or the kernel's own name.", "", False),
        TableColumn("a_ns", "A device time", "Summed device time in A; – where A has no such operator.", "ns", True),
        TableColumn("b_ns", "B device time", "Summed device time in B; – where B has no such operator.", "ns", True),
        TableColumn("change_ns", "change", "B minus A.", "ns", True),
        TableColumn("change_ratio", "change in %", "Change as a share of A.", "ratio", True),
        TableColumn("a_count", "A executions", "Executions in A.", "", True),
        TableColumn("b_count", "B executions", "Executions in B.", "", True),
    ]
    shown = rows.head(OP_LIMIT)
    values = [shown[c.name].to_list() for c in columns]
    doc = "Matched by name, the largest change first; the changes sum to the change of the device time."
    return TableBlock("compared-ops", "Operators, A and B", doc, columns, values, rows.height, find="name")


