"""A measure over runs as a page: the answer, a chart with its steps marked, and the points as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from tracekit.report.compare import measure_label
from tracekit.report.model import (
    Answer,
    Cell,
    FactGroup,
    Figure,
    Mark,
    ReportData,
    Series,
    TableBlock,
    TableColumn,
    Tone,
    XYChart,
)
from tracekit.report.words import duration

_METHOD = (
    "Steps of the level are found by PELT (least squares, BIC penalty) and confirmed by the test that tracekit diff "
    "uses; with fewer than five samples on a side a step is called unproven."
)
_STEP_LIMIT = 8
_SPREAD = "A dot is the median of the samples of a point, its bar reaches from the first to the third quartile."


def trend_report(frame: pl.DataFrame, measure: str, by: str, *, is_count: bool, about: Mapping[str, str]) -> ReportData:
    """What ``tracekit trend`` found, as a report with ``part`` ``trend``.

    Args:
        frame: ``trend.TREND``.
        measure: what is followed.
        by: what orders the points.
        is_count: whether values are counts, else nanoseconds.
        about: facts about the page as a whole.
    """
    rows = frame.to_dicts()
    words = _Words(measure_label(measure), is_count)
    steps = [row for row in rows if row["verdict"] is not None]
    return ReportData(
        title=f"{words.label.capitalize()} {'over' if by == 'time' else 'by'} {by.removeprefix('label:')}",
        subtitle=_subtitle(rows),
        answer=Answer(_headline(rows, steps, words), _sentences(rows, steps, words), _figures(rows, steps, words)),
        findings=[],
        shares=[],
        charts=[_chart(rows, steps, words, by)] if rows else [],
        ops=_points(rows, words),
        tables=[],
        notes=[],
        facts=[FactGroup("This page", list(about.items()))],
        timeline=None,
    )


class _Words:
    """A measure and its values in words."""

    def __init__(self, label: str, is_count: bool) -> None:
        self.label = label
        self.unit = "" if is_count else "ns"

    def value(self, value: float) -> str:
        return duration(round(value)) if self.unit else f"{value:,.0f}"

    def change(self, ratio: float | None) -> str:
        if ratio is None:
            return "from nothing"
        return f"×{1 + ratio:,.0f}" if ratio >= 9 else f"{'+' if ratio > 0 else '−'}{abs(100 * ratio):.1f}\u00a0%"


def _subtitle(rows: Sequence[Mapping[str, Any]]) -> str:
    runs = sum(row["run_count"] for row in rows)
    starts = [row["started_at"] for row in rows if row["started_at"] is not None]
    span = f"{min(starts):%Y-%m-%d} to {max(starts):%Y-%m-%d}" if starts else ""
    return " · ".join(part for part in (f"{runs:,} run{'' if runs == 1 else 's'}", span) if part)


def _headline(rows: Sequence[Mapping[str, Any]], steps: Sequence[Mapping[str, Any]], words: _Words) -> str:
    if not rows:
        return f"No run holds {words.label}."
    label = words.label.capitalize()
    if rows[0]["level"] is None:
        least, most = min(rows, key=lambda r: r["value"]), max(rows, key=lambda r: r["value"])
        span = " to ".join(f"{words.value(row['value'])} ({row['point']})" for row in (least, most))
        return f"{label}: {span}."
    sure = [row for row in steps if row["verdict"] == "changed"]
    if not sure:
        maybe = f"; {len(steps)} possible, with too few samples to tell" if steps else ""
        return f"{label} has no proven step over {len(rows):,} points{maybe}."
    last = sure[-1]
    count = f", the last of {len(sure)} steps" if len(sure) > 1 else ""
    return f"{label} {words.change(last['step_ratio'])} at {last['point']}{count}."


def _sentences(rows: Sequence[Mapping[str, Any]], steps: Sequence[Mapping[str, Any]], words: _Words) -> list[str]:
    if not rows:
        return ["Runs without the label, and runs in which nothing was measured, are left out."]
    found = []
    for row in steps[-_STEP_LIMIT:]:
        before = words.value(rows[row["position"] - 1]["level"])
        sure = "" if row["verdict"] == "changed" else "; unproven, too few samples to tell"
        now = words.value(row["level"])
        found.append(f"{before} before {row['point']}, {now} from there on ({words.change(row['step_ratio'])}{sure}).")
    if len(steps) > len(found):
        found.insert(0, f"{len(steps)} steps; the last {len(found)}:")
    if rows[0]["level"] is not None and len(rows) < 4:
        found.append("Steps are looked for from four points on.")
    return found


def _figures(rows: Sequence[Mapping[str, Any]], steps: Sequence[Mapping[str, Any]], words: _Words) -> list[Figure]:
    points = Figure("points", len(rows), "", f"{sum(row['sample_count'] for row in rows):,} samples")
    if not rows or rows[0]["level"] is None:
        return [points]
    unproven = sum(row["verdict"] == "unproven" for row in steps)
    proven = Figure("steps of the level", len(steps) - unproven, "", f"{unproven} unproven")
    first, last = rows[0], rows[-1]
    ratio = last["level"] / first["level"] - 1 if first["level"] else None
    change = "the same as at first" if ratio == 0 else f"{words.change(ratio)} against the first"
    return [
        Figure(f"first {words.label}", first["level"], words.unit, str(first["point"])),
        Figure(f"{words.label} now", last["level"], words.unit, change),
        points,
        proven,
    ]


def _chart(rows: Sequence[Mapping[str, Any]], steps: Sequence[Mapping[str, Any]], words: _Words, by: str) -> XYChart:
    labels = {"value": "median", "low": "first quartile", "high": "third quartile", "level": "level"}
    return XYChart(
        id="trend",
        title=words.label.capitalize(),
        doc=f"{_SPREAD} {_METHOD if rows[0]['level'] is not None else ''}".strip(),
        kind="points",
        x=[row["position"] for row in rows],
        x_label="",
        x_unit="",
        y_unit=words.unit,
        series=[Series(key, label, [row[key] for row in rows]) for key, label in labels.items()],
        names=[str(row["point"]) for row in rows],
        ticks=_ticks(rows, by),
        marks=[Mark(r["position"], words.change(r["step_ratio"]), _tone(r)) for r in steps],
    )


def _ticks(rows: Sequence[Mapping[str, Any]], by: str) -> list[str]:
    """Names below the axis: dates where points are single runs, whose own names are long."""
    if by != "time":
        return [str(row["point"]) for row in rows]
    days = [row["started_at"] and f"{row['started_at']:%Y-%m-%d}" for row in rows]
    if len(set(days)) <= len(days) / 2:
        days = [row["started_at"] and f"{row['started_at']:%m-%d %H:%M}" for row in rows]
    return [day or str(row["point"]) for day, row in zip(days, rows, strict=True)]


def _tone(row: Mapping[str, Any]) -> Tone:
    """Every measure of ``tracekit trend`` is a cost: more of it is worse."""
    if row["verdict"] != "changed":
        return "neutral"
    return "good" if row["step_ratio"] is not None and row["step_ratio"] < 0 else "bad"


def _points(rows: Sequence[Mapping[str, Any]], words: _Words) -> TableBlock:
    columns = [
        TableColumn("point", "point", "Run, label or machine type.", "", False),
        TableColumn("position", "no.", "Order, from 1.", "", True),
        TableColumn("started_at", "started", "First run of the point, UTC.", "", False),
        TableColumn("run_count", "runs", "Profiles of the point.", "", True),
        TableColumn("sample_count", "samples", "Steps measured, of all its runs.", "", True),
        TableColumn("value", "median", "Median over the samples.", words.unit, True),
        TableColumn("low", "first quartile", "A quarter of the samples is below.", words.unit, True),
        TableColumn("high", "third quartile", "A quarter of the samples is above.", words.unit, True),
        TableColumn("level", "level", "Median of the points between two steps.", words.unit, True),
        TableColumn("step_ratio", "step", "Where a level begins: change against the one before.", "", False),
        TableColumn("verdict", "verdict", "changed, or unproven: too few samples to tell.", "", False),
    ]
    shown = [c for c in columns if not rows or any(row[c.name] is not None for row in rows)]
    values = [[_cell(row, c.name, words) for row in rows] for c in shown]
    doc = "In order; a click on a heading sorts."
    return TableBlock("points", "Points", doc, shown, values, len(rows))


def _cell(row: Mapping[str, Any], name: str, words: _Words) -> Cell:
    value = row[name]
    if name == "position":
        return int(value) + 1
    if name == "started_at":
        return None if value is None else f"{value:%Y-%m-%d %H:%M}"
    if name == "step_ratio":
        return words.change(value) if row["verdict"] is not None else None
    cell: Cell = value
    return cell
