"""From a profile's tables and metrics to a report's data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from tracekit.metrics import METRICS
from tracekit.metrics.base import Inputs, OptionValue
from tracekit.report import compare
from tracekit.report.answer import answer
from tracekit.report.blocks import metric_block
from tracekit.report.charts import share_charts, xy_charts
from tracekit.report.facts import facts, moment, notes
from tracekit.report.findings import findings
from tracekit.report.model import NoteLine, ReportData, TableBlock
from tracekit.report.results import Results
from tracekit.report.spans import SPAN_LIMIT
from tracekit.report.timeline import joined, timeline

OPS_LIMIT = 1000
_OWN_SECTION = ("ops", "advice")
_TABLE_OPTIONS: Mapping[str, Mapping[str, OptionValue]] = {"split": {"per": "step"}}
_OPS_FALLBACK = ("ops", "work", "counts")
"""Metrics that can be the table of operators, the best first."""


@dataclass(frozen=True)
class Subject:
    """One profile as a report sees it."""

    name: str
    inputs: Inputs
    window: tuple[int, int] | None = None
    """Only this stretch (ns since the epoch) in the timeline; null for all."""
    about: Mapping[str, str] = field(default_factory=dict)
    """Facts to show about the profile as a whole."""


def subject(name: str, inputs: Inputs, *, clip: bool = False, about: Mapping[str, str] | None = None) -> Subject:
    """A profile to report on.

    Args:
        name: what the profile is called.
        inputs: its tables, and the windows that are measured.
        clip: show only the measured windows in the timeline.
        about: facts about the profile as a whole.
    """
    window = None
    if clip:
        first, last = inputs.scope.select(pl.col("start_ns").min(), pl.col("end_ns").max()).collect().row(0)
        window = None if first is None else (int(first), int(last))
    return Subject(name, inputs, window, about or {})


def report(a: Subject, b: Subject | None = None, *, span_limit: int = SPAN_LIMIT) -> ReportData:
    """Everything that the page shows about a profile, or about two of them side by side.

    Args:
        a: the profile; in a comparison the one before the change.
        b: the profile to compare with.
        span_limit: spans of the timeline at most, both profiles together.
    """
    results = Results(a.inputs)
    share = span_limit if b is None else span_limit // 2
    drawn = timeline(a.inputs, results.get("gaps"), a.window, share)
    origin_ns = drawn.origin_ns if drawn else _origin(a.inputs)
    comparison, charts = None, xy_charts(results, origin_ns)
    about = facts(a.inputs, a.about)
    if b is not None:
        other = Results(b.inputs)
        comparison = compare.side_by_side(a.name, results, b.name, other)
        drawn_b = timeline(b.inputs, other.get("gaps"), b.window, share)
        drawn = joined(drawn, drawn_b) if drawn and drawn_b else drawn
        about += facts(b.inputs, b.about)
    tables = _tables(results, origin_ns)
    return ReportData(
        title=a.name if b is None else f"{a.name} → {b.name}",
        subtitle=_subtitle(a.inputs),
        answer=answer(results) if comparison is None else comparison.answer,
        findings=findings(results, origin_ns),
        shares=share_charts(results) if comparison is None else [],
        charts=charts if comparison is None else [],
        ops=_ops(results, origin_ns),
        tables=tables,
        notes=notes(results, _empty_remarks(results)),
        facts=about,
        timeline=drawn,
        comparison=comparison,
    )


def _origin(inputs: Inputs) -> int:
    first = inputs.scope.select(pl.col("start_ns").min()).collect().item()
    return int(first or 0)


def _subtitle(inputs: Inputs) -> str:
    rows = inputs.sessions.select("device", "first_ns", "instance_type").collect()
    kinds = ", ".join(rows["device"].drop_nulls().unique().sort().to_list())
    machines = ", ".join(rows["instance_type"].drop_nulls().unique().sort().to_list())
    processes = "one process" if rows.height == 1 else f"{rows.height:,} processes"
    first = rows["first_ns"].min()
    captured = moment(first) if isinstance(first, int) else ""
    return " · ".join(part for part in (processes, kinds, machines, captured) if part)


def _ops(results: Results, origin_ns: int) -> TableBlock | None:
    for name in _OPS_FALLBACK:
        frame = results.get(name)
        if frame is not None:
            title = "Operators" if name != "work" else "Device work"
            return metric_block(METRICS[name], frame, origin_ns, limit=OPS_LIMIT, title=title)
    return None


def _tables(results: Results, origin_ns: int) -> list[TableBlock]:
    """A block for every metric that has no section of its own."""
    blocks = []
    for metric in results.metrics():
        if metric.name in _OWN_SECTION:
            continue
        frame = results.get(metric.name, **_TABLE_OPTIONS.get(metric.name, {}))
        if frame is not None:
            blocks.append(metric_block(metric, frame, origin_ns))
    return blocks


def _empty_remarks(results: Results) -> list[NoteLine]:
    """Say why parts of the report are missing."""
    if results.split() is not None:
        return []
    hint = "check the capture with tracekit doctor"
    return [NoteLine("warning", "nothing_measured", "No event lies in the measured windows.", hint, "", None)]
