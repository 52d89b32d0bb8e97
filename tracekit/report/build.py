"""From a profile's tables and metrics to a report's data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import polars as pl

from tracekit.metrics import METRICS
from tracekit.metrics.base import Inputs, OptionValue
from tracekit.report import compare
from tracekit.report.answer import answer
from tracekit.report.blocks import metric_block
from tracekit.report.charts import share_charts, xy_charts
from tracekit.report.facts import facts, moment, notes
from tracekit.report.findings import findings
from tracekit.report.model import NoteLine, ReportData, TableBlock, Timeline
from tracekit.report.results import Results
from tracekit.report.spans import SPAN_LIMIT
from tracekit.report.timeline import joined, timeline
from tracekit.report.words import captured

OPS_LIMIT = 1000
_OWN_SECTION = ("ops", "advice")
TABLE_OPTIONS: Mapping[str, Mapping[str, OptionValue]] = {"split": {"per": "step"}}
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

    Side by side, findings, operators and tables are those of ``b``: what is left to do after the change.

    Args:
        a: the profile; in a comparison the one before the change.
        b: the profile to compare with.
        span_limit: spans of the timeline at most, both profiles together.
    """
    results = Results(a.inputs)
    if b is None:
        drawn = timeline(a.inputs, results.get("gaps"), a.window, span_limit)
        origin_ns = drawn.origin_ns if drawn else _origin(a.inputs)
        return _about(a, results, drawn, origin_ns)
    later = Results(b.inputs)
    first = timeline(a.inputs, results.get("gaps"), a.window, span_limit // 2)
    second = timeline(b.inputs, later.get("gaps"), b.window, span_limit // 2)
    origin_ns = second.origin_ns if second else _origin(b.inputs)
    found = compare.side_by_side(a.name, results, b.name, later)
    base = _about(b, later, joined(first, second) if first and second else second or first, origin_ns)
    sides = [("A", facts(a.inputs, a.about), notes(results, [])), ("B", base.facts, base.notes)]
    return replace(
        base,
        title=f"{a.name} → {b.name}",
        subtitle=f"A: {_subtitle(a.inputs)} — B: {base.subtitle}",
        answer=found.answer,
        shares=[],
        charts=[],
        facts=[replace(group, title=f"{side}: {group.title}") for side, groups, _ in sides for group in groups],
        notes=[replace(n, where=f"{side} · {n.where}".rstrip(" ·")) for side, _, lines in sides for n in lines],
        comparison=found,
    )


def _about(one: Subject, results: Results, drawn: Timeline | None, origin_ns: int) -> ReportData:
    """Everything about one profile."""
    return ReportData(
        title=one.name,
        subtitle=_subtitle(one.inputs),
        answer=answer(results),
        findings=findings(results, origin_ns),
        shares=share_charts(results),
        charts=xy_charts(results, origin_ns),
        ops=_ops(results, origin_ns),
        tables=_tables(results, origin_ns),
        notes=notes(results, _empty_remarks(results)),
        facts=facts(one.inputs, one.about),
        timeline=drawn,
    )


def _origin(inputs: Inputs) -> int:
    first = inputs.scope.select(pl.col("start_ns").min()).collect().item()
    return int(first or 0)


def _subtitle(inputs: Inputs) -> str:
    rows = inputs.sessions.collect()
    kinds = ", ".join(rows["device"].drop_nulls().unique().sort().to_list())
    machines = ", ".join(rows["instance_type"].drop_nulls().unique().sort().to_list())
    first = rows["first_ns"].min()
    began = moment(first) if isinstance(first, int) else ""
    return " · ".join(part for part in (captured(rows, rows.height), kinds, machines, began) if part)


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
        frame = results.get(metric.name, **TABLE_OPTIONS.get(metric.name, {}))
        if frame is not None:
            blocks.append(metric_block(metric, frame, origin_ns))
    return blocks


def _empty_remarks(results: Results) -> list[NoteLine]:
    """Say why parts of the report are missing."""
    if results.split() is not None:
        return []
    hint = "check the capture with tracekit doctor"
    return [NoteLine("warning", "nothing_measured", "No event lies in the measured windows.", hint, "", None)]
