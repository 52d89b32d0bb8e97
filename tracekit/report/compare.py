"""Two profiles side by side: what ``comparison`` found, as parts of a report."""

from __future__ import annotations

from typing import Any

from tracekit.comparison import OPS, REPLACED, Comparison, diff
from tracekit.report.blocks import table_block
from tracekit.report.charts import share_charts
from tracekit.report.model import Answer, CompareRow, Figure, Part, ShareChart, Shares, SideBySide, TableBlock
from tracekit.report.results import Results
from tracekit.report.words import duration, sequence
from tracekit.sides import Side, side

_LABELS = {
    "device_time": "device time",
    "host_time": "host time",
    "host_self_time": "self CPU time of operators",
    "window": "measured time",
    "executions": "hardware executions",
    "operators": "operator calls",
    "both": "device and host",
}
_VERDICTS = {
    "same": "same",
    "changed": "changed",
    "noise": "within the noise",
    "unproven": "too few samples to tell",
}
_HEADLINES = ("device_time", "host_time", "window")
"""Measure that leads the answer: the first that is not 0 on both sides."""
_FIGURES = ("device_time", "host_time", "window", "executions", "operators", "gap")


def side_by_side(name_a: str, a: Results, name_b: str, b: Results) -> SideBySide:
    """Key figures, bars and operators of both sides; figures that are 0 on both are left out."""
    found = diff(side(name_a, a.inputs), side(name_b, b.inputs))
    rows = [
        CompareRow(
            measure_label(r["measure"]), "" if r["unit"] == "count" else "ns", r["a"], r["b"], _VERDICTS[r["verdict"]]
        )
        for r in found.totals.to_dicts()
        if r["a"] or r["b"]
    ]
    basis = f"A: {found.a.basis} and B: {found.b.basis}{'; values per process' if found.is_per_process else ''}."
    return SideBySide(name_a, name_b, _answer(found), basis, rows, _charts(a, b), _tables(found))


def measure_label(measure: str) -> str:
    """A measure of a comparison in words."""
    if measure.startswith("gap."):
        return f"gaps: {measure.removeprefix('gap.').replace('_', ' ')}"
    return _LABELS.get(measure, "gaps" if measure == "gap" else measure.replace("_", " "))


def _answer(found: Comparison) -> Answer:
    """What changed from A to B: a line, the reason, and the figures of B."""
    totals = {row["measure"]: row for row in found.totals.to_dicts()}
    lead = next((totals[m] for m in _HEADLINES if m in totals and (totals[m]["a"] or totals[m]["b"])), None)
    if lead is None:
        return Answer("Neither profile holds measured time.")
    label = measure_label(lead["measure"])
    times = f"{duration(round(lead['a']))} → {duration(round(lead['b']))}"
    headline = f"{label.capitalize()} {times} ({_change(lead['a'], lead['b'])})."
    sentences = [f"A is {found.a.name}, B is {found.b.name}.", _verdict(lead["verdict"], label), *_counts(totals)]
    replaced = found.replaced.sort("a_device_ns", descending=True).head(1).to_dicts()
    sentences += [_replacement(row, found.a) for row in replaced]
    shown = [totals[m] for m in _FIGURES if m in totals and (totals[m]["a"] or totals[m]["b"])]
    return Answer(headline, [s for s in sentences if s], [_figure(row) for row in shown])


def _figure(row: dict[str, Any]) -> Figure:
    unit = "" if row["unit"] == "count" else "ns"
    return Figure(measure_label(row["measure"]), row["b"], unit, f"B; {_change(row['a'], row['b'])} from A")


def _verdict(verdict: str, label: str) -> str:
    return {
        "same": f"The {label} is the same on both sides.",
        "changed": f"The {label} differs by more than chance explains.",
        "noise": f"The difference of the {label} is within the noise of the steps.",
        "unproven": f"There are too few steps to tell a real change of the {label} from noise.",
    }[verdict]


def _counts(totals: dict[str, dict[str, object]]) -> list[str]:
    row = totals.get("executions")
    if row is None or row["a"] == row["b"]:
        return []
    return [f"Hardware executions: {row['a']:g} → {row['b']:g}."]


def _replacement(row: dict[str, object], first: Side) -> str:
    went, came = row["a_names"], row["b_names"]
    if not isinstance(went, list) or not isinstance(came, list) or not went or not came:
        return ""
    place = f" in {first.sequence_of}" if first.sample_count > 1 else ""
    return f"Where A runs {_named(went)}{place}, B runs {_named(came)}."


def _named(names: list[str]) -> str:
    """Different names in order of first use, with how often each occurs."""
    counted = {name: names.count(name) for name in dict.fromkeys(names)}
    words = [name if count == 1 else f"{count} × {name}" for name, count in counted.items()]
    return sequence(words if len(words) <= 8 else [*words[:7], f"{len(words) - 7} others"])


def _change(a: float, b: float) -> str:
    if a == b:
        return "no change"
    return f"{100 * (b / a - 1):+.1f}\u00a0%".replace("-", "−") if a else "new"


def _charts(a: Results, b: Results) -> list[ShareChart]:
    """The bars of both sides in one chart each, sessions and cores added up."""
    sides = [{chart.id: chart for chart in share_charts(results)} for results in (a, b)]
    out = []
    for id in ("split", "causes"):
        charts = [side.get(id) for side in sides]
        bars = [_added(chart, label) for chart, label in zip(charts, "AB", strict=True)]
        first = next((chart for chart in charts if chart), None)
        if first:
            out.append(ShareChart(id, first.title, first.doc, bars))
    return out


def _added(chart: ShareChart | None, label: str) -> Shares:
    if chart is None:
        return Shares(label, 0, [])
    parts: dict[str, Part] = {}
    for bar in chart.bars:
        for part in bar.parts:
            before = parts[part.key].ns if part.key in parts else 0
            parts[part.key] = Part(part.key, part.label, before + part.ns)
    return Shares(label, sum(bar.whole_ns for bar in chart.bars), list(parts.values()))


def _tables(found: Comparison) -> list[TableBlock]:
    blocks = []
    if found.replaced.height:
        title = "Executions that became others"
        blocks.append(table_block("replaced", title, REPLACED.doc, REPLACED, found.replaced, 0))
    if found.ops.height:
        blocks.append(table_block("compared-ops", "Operators, A and B", OPS.doc, OPS, found.ops, 0))
    return blocks
