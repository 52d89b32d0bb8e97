"""How a measure changed over runs: one point per run, commit or machine type, and where its level steps.

Steps of the level are found by PELT (Killick et al. 2012) as the library ``ruptures`` implements it: least squares,
exact, with the penalty 3 σ² ln n of the Bayesian information criterion; σ comes from the median absolute deviation of
the differences between neighbours, so that steps themselves do not widen it. A step found so counts only if
``significance.judge`` calls the two levels around it different.
"""

from __future__ import annotations

import html
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import polars as pl

from tracekit import sides
from tracekit.errors import VERIFY_HINT, ArchiveError, TracekitError, damage
from tracekit.profile import Archive
from tracekit.runs import label_column
from tracekit.significance import judge
from tracekit.tables import Column, Table

TREND = Table(
    name="trend",
    doc="A measure over runs, in order; the level is the median of the points between two steps.",
    key=("position",),
    columns=(
        Column("position", pl.Int64(), "Order, from 0."),
        Column("point", pl.String(), "Run, label or machine type."),
        Column(
            "started_at", pl.Datetime("ns", "UTC"), "First run of the point; null where its clock has no date.", True
        ),
        Column("run_count", pl.Int64(), "Profiles of the point."),
        Column("sample_count", pl.Int64(), "Steps measured, of all its runs."),
        Column("value", pl.Float64(), "Median over the samples, in the measure's unit."),
        Column("low", pl.Float64(), "First quartile."),
        Column("high", pl.Float64(), "Third quartile."),
        Column("level", pl.Float64(), "Median of the points of its level.", nullable=True),
        Column("step_ratio", pl.Float64(), "Where a level begins: change against the one before.", True, "ratio"),
        Column(
            "verdict",
            pl.String(),
            "changed, or unproven: too few samples to tell.",
            True,
            values=("changed", "unproven"),
        ),
    ),
)

COUNTS = ("executions", "operators", "launches")
"""Measures that are counts; all others are nanoseconds."""
_MIN_POINTS = 4
_MIN_SIZE = 2


@dataclass(frozen=True)
class _Point:
    """What is measured at one place of the order."""

    name: str
    started_at: object
    run_count: int
    samples: list[float]

    @property
    def value(self) -> float:
        return statistics.median(self.samples)


def trend(archive: Archive, measure: str, by: str = "time") -> pl.DataFrame:
    """Follow a measure over the runs of an archive.

    Args:
        archive: the runs.
        measure: as in ``tracekit diff``: device_time, host_time, window, executions, gap, gap.runtime, …
        by: ``time``: one point per run, by start; ``label:<key>``: one per value, by its first run; or a column of
            ``runs`` (instance_type, host_name, version_torch): one per value, by name, without steps.

    Returns:
        ``TREND``; runs without the label, and runs in which nothing was measured, are left out.

    Raises:
        TracekitError: if there is no such measure or column.
    """
    runs = archive.runs.collect()
    column = _column(by, runs)
    named = runs.with_columns(point=pl.col(column)).filter(pl.col("point").is_not_null())
    is_ordered = by == "time" or by.startswith("label:") or by.startswith("version_")
    order = "first_ns" if is_ordered else "point"
    earliest = pl.col("first_ns", "started_at").min()
    groups = named.group_by("point").agg(pl.col("profile").sort_by("first_ns"), earliest).sort(order, "point")
    points = []
    for name, profiles, started_at in groups.select("point", "profile", "started_at").rows():
        samples = [value for profile in profiles for value in _samples(archive, profile, measure)]
        if samples:
            points.append(_Point(str(name), started_at, len(profiles), samples))
    return _table(points, measure, steps=is_ordered)


def _column(by: str, runs: pl.DataFrame) -> str:
    if by == "time":
        return "profile"
    key = by.removeprefix("label:")
    name = label_column(key) if by.startswith("label:") else by
    if name in runs.columns:
        return name
    labels = [f"label:{c.removeprefix('label_')}" for c in runs.columns if c.startswith("label_")]
    known = ", ".join(["time", *labels])
    if name == by:
        raise TracekitError(f"cannot order by {by!r}", hint=f"use {known} or a column of the table runs")
    raise TracekitError(
        f"no profile has the label {key!r}",
        hint=f"set it: tracekit archive label ARCHIVE PROFILE {key}=…, or batch --label {key}=…; or order by {known}",
    )


def _samples(archive: Archive, profile: str, measure: str) -> Sequence[float]:
    try:
        return sides.samples(archive[profile].inputs(), [measure])[measure]
    except pl.exceptions.PolarsError as error:
        problem = damage(error)
        if problem is None:
            raise
        raise ArchiveError(f"{profile}: damaged: {problem}", hint=VERIFY_HINT) from error


def _table(points: Sequence[_Point], measure: str, *, steps: bool) -> pl.DataFrame:
    starts = dict(_steps(points, measure)) if steps else {}
    bounds = [0, *sorted(starts), len(points)]
    levels: list[float | None] = []
    for begin, end in pairwise(bounds):
        levels += [statistics.median(p.value for p in points[begin:end])] * (end - begin) if end > begin else []
    rows: list[dict[str, object]] = []
    for i, point in enumerate(points):
        low, _, high = statistics.quantiles(point.samples * 2, n=4, method="inclusive")
        before = levels[i - 1] if i in starts else None
        now = levels[i]
        rows.append(
            {
                "position": i,
                "point": point.name,
                "started_at": point.started_at,
                "run_count": point.run_count,
                "sample_count": len(point.samples),
                "value": point.value,
                "low": low,
                "high": high,
                "level": now if steps else None,
                "step_ratio": (now - before) / before if now is not None and before else None,
                "verdict": starts.get(i),
            }
        )
    return TREND.rows(rows)


def _steps(points: Sequence[_Point], measure: str) -> list[tuple[int, str]]:
    """First points of new levels, and how sure they are."""
    found = []
    bounds = change_points([p.value for p in points])
    edges = [0, *bounds, len(points)]
    for i, position in enumerate(bounds):
        before, after = points[edges[i] : position], points[position : edges[i + 2]]
        verdict = judge(_evidence(before), _evidence(after), exact=measure in COUNTS).verdict
        if verdict in ("changed", "unproven"):
            found.append((position, verdict))
    return found


def _evidence(points: Sequence[_Point]) -> list[float]:
    """One value per point where there are enough of them, else the samples of all: steps of one run are alike."""
    values = [p.value for p in points]
    return values if len(values) >= 5 else [v for p in points for v in p.samples]


def change_points(values: Sequence[float]) -> list[int]:
    """Positions at which the level of a series steps, by PELT; see the module.

    Raises:
        TracekitError: if ruptures is not installed.
    """
    if len(values) < _MIN_POINTS:
        return []
    try:
        import ruptures
    except ImportError as error:
        raise TracekitError("steps are found with ruptures", hint="pip install 'tracekit[trend]'") from error
    import numpy as np

    signal = np.asarray(values, dtype=float)
    scale = float(np.abs(signal).max()) or 1.0
    moves = np.diff(signal / scale)
    sigma = float(np.median(np.abs(moves - np.median(moves)))) / (0.6745 * math.sqrt(2))
    penalty = 3 * max(sigma, 1e-6) ** 2 * math.log(len(values))
    search = ruptures.KernelCPD(kernel="linear", min_size=_MIN_SIZE).fit((signal / scale).reshape(-1, 1))
    return [int(position) for position in search.predict(pen=penalty)[:-1]]


def chart(frame: pl.DataFrame, title: str, text: Callable[[float], str]) -> str:
    """``TREND`` as a self-contained SVG: a dot per point with its quartiles, levels as lines, steps marked.

    Args:
        frame: ``TREND``.
        title: heading.
        text: a value with its unit.
    """
    width, height, left, top = 800, 300, 90, 40
    rows = frame.to_dicts()
    low = min((r["low"] for r in rows), default=0.0)
    span = (max((r["high"] for r in rows), default=1.0) - low) or 1.0

    def x(row: dict[str, Any]) -> float:
        return left + (width - left - 20) * (int(row["position"]) + 0.5) / max(1, len(rows))

    def y(value: float) -> float:
        return top + (height - top - 30) * (1 - (value - low) / span)

    parts = [f'<text x="{left}" y="22" font-weight="bold">{html.escape(title)}</text>']
    parts += [f'<text x="4" y="{y(v) + 4:.1f}">{html.escape(text(v))}</text>' for v in (low, low + span)]
    for row in rows:
        at, name = x(row), html.escape(f"{row['point']}: {text(row['value'])}")
        bar = f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y(row["low"]):.1f}" y2="{y(row["high"]):.1f}" stroke="#9ab"/>'
        dot = f'<circle cx="{at:.1f}" cy="{y(row["value"]):.1f}" r="3" fill="#246"/>'
        parts.append(f"<g><title>{name}</title>{bar}{dot}</g>")
        if row["verdict"] is not None:
            parts.append(
                f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{height - 30}" stroke="#c40" class="step"/>'
            )
            parts.append(f'<text x="{at + 4:.1f}" y="{top + 10}" fill="#c40">{html.escape(str(row["point"]))}</text>')
    levels = " ".join(f"{x(r):.1f},{y(r['level']):.1f}" for r in rows if r["level"] is not None)
    parts.append(f'<polyline points="{levels}" fill="none" stroke="#246" stroke-opacity="0.5"/>')
    font = 'font-family="sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {font}>'
    return "\n".join((head, f'<rect width="{width}" height="{height}" fill="#fff"/>', *parts, "</svg>")) + "\n"


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """A series as bars of eight heights; a long one is cut into ``width`` parts of which the medians show."""
    if not values:
        return ""
    count = min(width, len(values))
    parts = [values[i * len(values) // count : (i + 1) * len(values) // count] for i in range(count)]
    shown = [statistics.median(part) for part in parts]
    low, high = min(shown), max(shown)
    if high == low:
        return "▄" * count
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(8 * (v - low) / (high - low)))] for v in shown)
