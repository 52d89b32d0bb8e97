"""Two profiles side by side: what changed, by how much, and whether it is more than noise."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from tracekit import alignment, matching
from tracekit.errors import TracekitError
from tracekit.matching import OPS
from tracekit.sides import COUNTS, Side
from tracekit.significance import VERDICTS, judge
from tracekit.tables import Column, Table

__all__ = ["OPS", "REPLACED", "TOTALS", "Comparison", "diff"]

_COUNT_DOC = "Samples: one per step of each run, else one per run; the processes of a run added up."

TOTALS = Table(
    name="diff_totals",
    doc="Each measure of both sides, per step where there are steps: the mean over the samples. Where the sides differ "
    "in their number of processes, per process.",
    key=("measure",),
    columns=(
        Column("measure", pl.String(), "What is measured, e.g. device_time, executions, gap.runtime."),
        Column("unit", pl.String(), "ns or count.", values=("ns", "count")),
        Column("a", pl.Float64(), "Value of the first side, in `unit`."),
        Column("b", pl.Float64(), "Value of the second side."),
        Column("change", pl.Float64(), "b − a."),
        Column("change_ratio", pl.Float64(), "(b − a) / a; null if a is 0.", nullable=True, unit="ratio"),
        Column("a_samples", pl.Int64(), _COUNT_DOC),
        Column("b_samples", pl.Int64(), _COUNT_DOC),
        Column("p_value", pl.Float64(), "Mann–Whitney U, two-sided; null if no test was made.", nullable=True),
        Column("verdict", pl.String(), "Whether the difference is more than noise.", values=VERDICTS),
    ),
)

REPLACED = Table(
    name="diff_replaced",
    doc="Runs of executions of one step (the first measured one) that became other executions, in order of time.",
    key=("position",),
    columns=(
        Column("position", pl.Int64(), "Index of the first execution in the first side's step."),
        Column("a_names", pl.List(pl.String()), "Operators that went."),
        Column("b_names", pl.List(pl.String()), "Operators that came."),
        Column("a_executions", pl.Int64(), "How many went."),
        Column("b_executions", pl.Int64(), "How many came."),
        Column("a_device_ns", pl.Int64(), "Their device time.", unit="ns"),
        Column("b_device_ns", pl.Int64(), "Their device time.", unit="ns"),
    ),
)


@dataclass(frozen=True, repr=False)
class Comparison:
    """The difference between two sides, as tables.

    ``is_per_process``: the sides differ in their number of processes, all values but those of ``replaced`` are
    per process.
    """

    a: Side
    b: Side
    totals: pl.DataFrame
    ops: pl.DataFrame
    replaced: pl.DataFrame
    is_per_process: bool = False

    @property
    def basis(self) -> str:
        """What the values stand for, where that is not the whole capture: ``per step and process``."""
        units = [unit for unit, holds in (("step", self.a.per_step), ("process", self.is_per_process)) if holds]
        return f"per {' and '.join(units)}" if units else ""

    @property
    def lacking(self) -> list[str]:
        """Measures that only one of the sides has."""
        return sorted(set(self.a.samples) ^ set(self.b.samples))

    def total(self, measure: str) -> dict[str, object]:
        """One row of ``totals`` as a mapping.

        Raises:
            TracekitError: if one of the sides does not have the measure.
        """
        rows = self.totals.filter(pl.col("measure") == measure).to_dicts()
        if rows:
            return rows[0]
        lacking = [side.name for side in (self.a, self.b) if measure not in side.samples]
        raise TracekitError(
            f"{' and '.join(lacking)}: no measure {measure!r} in it",
            hint="a baseline of another version: write it again with `tracekit baseline`",
        )

    def __repr__(self) -> str:
        main = [r for r in _told(self.totals) if r["measure"] in _MAIN]
        facts = ", ".join(f"{r['measure']} {r['a']} → {r['b']} {r['unit']}".rstrip() for r in main)
        return f"<Comparison {self.a.name} → {self.b.name}: {facts or 'nothing to compare'}>"

    def _repr_html_(self) -> str:
        caption = f"Comparison {html.escape(self.a.name)} → {html.escape(self.b.name)}"
        heads = "".join(f"<th>{name}</th>" for name in ("", "a", "b", "change", "", "verdict"))
        rows = "".join(
            f"<tr><th>{r['measure']}{', ' + r['unit'] if r['unit'] else ''}</th><td>{r['a']}</td><td>{r['b']}</td>"
            f"<td>{r['change']}</td><td>{r['share']}</td><td>{r['verdict']}</td></tr>"
            for r in _told(self.totals)
        )
        return f"<table><caption>{caption}</caption><tr>{heads}</tr>{rows}</table>"


_MAIN = ("device_time", "host_time", "window", "executions")
"""Measures that stand for a comparison in one line."""


def _told(totals: pl.DataFrame) -> list[dict[str, str]]:
    """The measures that are not 0 on both sides, as text: times in µs."""
    rows = []
    for row in totals.filter((pl.col("a") != 0) | (pl.col("b") != 0)).iter_rows(named=True):
        unit, scale, form = ("", 1, ",.6g") if row["unit"] == "count" else ("µs", 1_000, ",.1f")
        share = "" if row["change_ratio"] is None else f"{100 * row['change_ratio']:+.1f} %"
        told = {"a": f"{row['a'] / scale:{form}}", "b": f"{row['b'] / scale:{form}}"}
        told |= {"change": f"{row['change'] / scale:+{form}}".replace("-", "−"), "share": share.replace("-", "−")}
        rows.append({"measure": row["measure"], "unit": unit, **told, "verdict": row["verdict"]})
    return rows


def diff(a: Side, b: Side) -> Comparison:
    """Compare two sides measure by measure and operator by operator.

    Sides with different numbers of processes are compared per process.

    Returns:
        ``TOTALS`` in order of the measures, ``OPS`` with the largest change of device time (then host time)
        first, ``REPLACED`` in order of time. The changes of ``OPS`` sum to those of ``device_time`` and
        ``host_self_time``; the gap causes to ``gap``; the four parts of the split to ``window``.

    Raises:
        TracekitError: if one side is measured per step and the other is not.
    """
    _refuse_unlike(a, b)
    is_per_process = a.process_count != b.process_count
    first, second = (a.per_process(), b.per_process()) if is_per_process else (a, b)
    measures = [m for m in first.samples if m in second.samples]
    totals = TOTALS.rows([_total(m, first.samples[m], second.samples[m]) for m in measures])
    ops = matching.ops_changed(first.ops, second.ops)
    return Comparison(a, b, totals, ops, _replaced(a.sequence, b.sequence), is_per_process)


def _refuse_unlike(a: Side, b: Side) -> None:
    kinds = [_kind(side) for side in (a, b)]
    if kinds[0] == kinds[1] or (None in kinds and a.per_step == b.per_step):
        return
    told = [f"{side.name} is {_KINDS[kind or _by_steps(side)]}" for side, kind in zip((a, b), kinds, strict=True)]
    raise TracekitError(
        f"{' and '.join(told)}: this cannot be compared",
        hint="measure both alike: --all or --step N for the baseline and here, or captures with steps",
    )


def _kind(side: Side) -> str | None:
    """What a side measures; None where an old baseline does not say which steps."""
    if not side.per_step:
        return "whole"
    return None if side.scope is None else "step" if isinstance(side.scope, int) else "steps"


def _by_steps(side: Side) -> str:
    return "steps" if side.per_step else "whole"


_KINDS = {"whole": "a whole capture", "step": "one chosen step", "steps": "the mean of its steps"}


def _total(measure: str, before: Sequence[float], after: Sequence[float]) -> dict[str, object]:
    first, second = _mean(before), _mean(after)
    is_count = measure in COUNTS
    verdict = judge(before, after, exact=is_count)
    return {
        "measure": measure,
        "unit": "count" if is_count else "ns",
        "a": first,
        "b": second,
        "change": second - first,
        "change_ratio": (second - first) / first if first else None,
        "a_samples": len(before),
        "b_samples": len(after),
        "p_value": verdict.p_value,
        "verdict": verdict.verdict,
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _replaced(before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    first, second = before["name"].to_list(), after["name"].to_list()
    rows = [
        {
            "position": i1,
            "a_names": first[i1:i2],
            "b_names": second[j1:j2],
            "a_executions": i2 - i1,
            "b_executions": j2 - j1,
            "a_device_ns": before["device_ns"].slice(i1, i2 - i1).sum(),
            "b_device_ns": after["device_ns"].slice(j1, j2 - j1).sum(),
        }
        for i1, i2, j1, j2 in alignment.changes(first, second)
    ]
    return REPLACED.rows(rows)
