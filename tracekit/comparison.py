"""Two profiles side by side: what changed, by how much, and whether it is more than noise."""

from __future__ import annotations

import difflib
import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from tracekit.errors import TracekitError
from tracekit.metrics import METRICS
from tracekit.metrics.base import Inputs
from tracekit.metrics.gaps import CAUSES
from tracekit.significance import VERDICTS, judge
from tracekit.tables import Column, Table

_COUNT_DOC = "Samples: steps, else sessions' totals."

TOTALS = Table(
    name="diff_totals",
    doc="Each measure of both sides, per step where there are steps: the mean over the steps.",
    key=("measure",),
    columns=(
        Column("measure", pl.String(), "What is measured, e.g. device_time, executions, gap.runtime."),
        Column("unit", pl.String(), "ns or count.", values=("ns", "count")),
        Column("a", pl.Float64(), "Value of the first side, in `unit`."),
        Column("b", pl.Float64(), "Value of the second side."),
        Column("change", pl.Float64(), "b − a."),
        Column("change_ratio", pl.Float64(), "(b − a) / a; null if a is 0.", nullable=True, unit="ratio"),
        Column("a_samples", pl.Int64(), f"{_COUNT_DOC}"),
        Column("b_samples", pl.Int64(), f"{_COUNT_DOC}"),
        Column("p_value", pl.Float64(), "Mann–Whitney U, two-sided; null if no test was made.", nullable=True),
        Column("verdict", pl.String(), "Whether the difference is more than noise.", values=VERDICTS),
    ),
)

OPS = Table(
    name="diff_ops",
    doc="Device time and self CPU time per operator, per step; the changes sum to the change of the whole.",
    key=("name",),
    columns=(
        Column("name", pl.String(), "Operator, or the execution that no operator launched."),
        Column(
            "status", pl.String(), "added, removed, changed or same.", values=("added", "removed", "changed", "same")
        ),
        Column("a_executions", pl.Float64(), "Executions per sample, first side."),
        Column("b_executions", pl.Float64(), "Second side."),
        Column("a_device_ns", pl.Float64(), "Device time per sample, first side.", unit="ns"),
        Column("b_device_ns", pl.Float64(), "Second side.", unit="ns"),
        Column("device_change_ns", pl.Float64(), "b − a.", unit="ns"),
        Column("a_host_ns", pl.Float64(), "Self CPU time per sample, first side.", unit="ns"),
        Column("b_host_ns", pl.Float64(), "Second side.", unit="ns"),
        Column("host_change_ns", pl.Float64(), "b − a.", unit="ns"),
    ),
)

REPLACED = Table(
    name="diff_replaced",
    doc="Runs of executions of one step that became other executions, in order of time.",
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

_PARTS = ("device_only", "host_only", "both", "neither")
_SHARED_NAMES = ("collective", "copy")
"""Causes whose column also stands in ``split``: there the joined one has a suffix."""

MEASURES: Mapping[str, str | None] = {
    "device_time": "device_ns",
    "host_time": None,
    "host_self_time": "host_ns",
    "window": "window_ns",
    "executions": "execution_count",
    "operators": "operator_count",
    "launches": "launch_count",
    **{part: f"{part}_ns" for part in _PARTS},
    "exposed_collective": "exposed_collective_ns",
    "exposed_copy": "exposed_copy_ns",
    "gap": "gap_ns",
    **{f"gap.{cause}": f"{cause}_ns_gaps" if cause in _SHARED_NAMES else f"{cause}_ns" for cause in CAUSES},
}
"""Every measure, and the column it comes from; None where it is the sum of two."""

COUNTS = ("executions", "operators", "launches")
"""Measures that are counts; all others are times."""
_SEQUENCE_LIMIT = 4_000
"""Executions of one step that are aligned by name; longer steps are compared by totals only."""


@dataclass(frozen=True)
class Side:
    """What a comparison needs of one profile: it can come from a profile or from a stored baseline.

    ``samples`` holds measure → one value per step (or one in all); ``ops`` one row per operator with
    ``executions``, ``device_ns``, ``host_ns`` per sample; ``sequence`` the executions of the first
    measured step in order of time (name, device_ns).
    """

    name: str
    samples: Mapping[str, Sequence[float]]
    ops: pl.DataFrame
    sequence: pl.DataFrame
    per_step: bool


@dataclass(frozen=True, repr=False)
class Comparison:
    """The difference between two sides, as tables."""

    a: Side
    b: Side
    totals: pl.DataFrame
    ops: pl.DataFrame
    replaced: pl.DataFrame

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


def side(name: str, inputs: Inputs) -> Side:
    """Measure one profile for a comparison."""
    steps = inputs.scope.select("session", "step").collect()
    per_step = steps["step"].null_count() < steps.height
    measured = samples(inputs)
    count = max(1, len(measured["window"]))
    return Side(name, measured, _ops(inputs, count), _sequence(inputs), per_step)


def diff(a: Side, b: Side) -> Comparison:
    """Compare two sides measure by measure and operator by operator.

    Returns:
        ``TOTALS`` in order of the measures, ``OPS`` with the largest change of device time (then host time)
        first, ``REPLACED`` in order of time. The changes of ``OPS`` sum to those of ``device_time`` and
        ``host_self_time``; the gap causes to ``gap``; the four parts of the split to ``window``.
    """
    measures = [m for m in a.samples if m in b.samples]
    totals = TOTALS.rows([_total(m, a.samples[m], b.samples[m]) for m in measures])
    return Comparison(a, b, totals, _ops_changed(a.ops, b.ops), _replaced(a.sequence, b.sequence))


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


def samples(inputs: Inputs, measures: Iterable[str] = MEASURES) -> dict[str, list[float]]:
    """Measures of one profile, one value per step (sessions added up), in order of the steps.

    Only what the measures need is computed: one of them takes a third of the time of all.

    Raises:
        TracekitError: if there is no such measure.
    """
    wanted = list(measures)
    unknown = [measure for measure in wanted if measure not in MEASURES]
    if unknown:
        raise TracekitError(f"no measure {unknown[0]!r}", hint=f"measures are {', '.join(MEASURES)}")
    split = METRICS["split"].compute(inputs, {**_defaults("split"), "per": "step"})
    table = split.group_by("step").agg(pl.col("^.*_ns$").sum()).collect().sort("step")
    for suffix, (needing, totals) in _OTHERS.items():
        if not needing.isdisjoint(wanted):
            other = totals(inputs).collect()
            table = table.join(other, on="step", how="left", nulls_equal=True, suffix=suffix, maintain_order="left")
    table = table.fill_null(0).with_columns(host_time=pl.col("host_only_ns") + pl.col("both_ns"))
    return {measure: table[MEASURES[measure] or "host_time"].to_list() for measure in wanted}


def _counts(inputs: Inputs) -> pl.LazyFrame:
    counted = METRICS["counts"].compute(inputs, {"by": "total", "per": "step"})
    return counted.group_by("step").agg(pl.col("^.*_count$").sum())


def _idle(inputs: Inputs) -> pl.LazyFrame:
    gaps = METRICS["gaps"].compute(inputs, {**_defaults("gaps"), "per": "step"})
    return gaps.group_by("step").agg(pl.col("^.*_ns$").exclude("start_ns", "end_ns", "longest_ns").sum())


def _work(inputs: Inputs) -> pl.LazyFrame:
    return _executions(inputs).group_by("step").agg(device_ns=pl.col("device_ns").sum())


def _host_work(inputs: Inputs) -> pl.LazyFrame:
    return _host(inputs, ["step"]).group_by("step").agg(pl.col("host_ns").sum())


_OTHERS: Mapping[str, tuple[frozenset[str], Callable[[Inputs], pl.LazyFrame]]] = {
    "_counts": (frozenset({"executions", "operators", "launches"}), _counts),
    "_gaps": (frozenset({"gap", *(f"gap.{cause}" for cause in CAUSES)}), _idle),
    "_work": (frozenset({"device_time"}), _work),
    "_host": (frozenset({"host_self_time"}), _host_work),
}
"""What does not come from the split: the measures that need it, and their sums by step; by suffix of equal names."""


def _defaults(name: str) -> dict[str, str | int | bool | None]:
    return {option.name: option.default for option in METRICS[name].options}


def _executions(inputs: Inputs) -> pl.LazyFrame:
    """Executions that start in the windows: session, step, name, hardware_start_ns, device_ns."""
    from tracekit import intervals

    ran = inputs.chains.filter(pl.col("hardware_start_ns").is_not_null())
    rows = ran.select("session", "name", "hardware_start_ns", "device_ns", start_ns="hardware_start_ns")
    return intervals.within(rows, inputs.scope.select("session", "step", "start_ns", "end_ns"), ["session"])


def _host(inputs: Inputs, by: list[str]) -> pl.LazyFrame:
    """Self CPU time of operators, by ``by`` (step and name)."""
    ops = METRICS["ops"].compute(inputs, {**_defaults("ops"), "per": "step"})
    return ops.filter(pl.col("kind") == "op").group_by(by).agg(host_ns=pl.col("self_cpu_ns").sum())


def _ops(inputs: Inputs, count: int) -> pl.DataFrame:
    device = _executions(inputs).group_by("name").agg(executions=pl.len(), device_ns=pl.col("device_ns").sum())
    both = device.join(_host(inputs, ["name"]), on="name", how="full", coalesce=True).fill_null(0).sort("name")
    return both.with_columns(pl.col("executions", "device_ns", "host_ns") / count).collect()


def _ops_changed(before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    numbers = ("executions", "device_ns", "host_ns")
    left = before.select("name", *(pl.col(n).alias(f"a_{n}") for n in numbers), in_a=pl.lit(True))
    right = after.select("name", *(pl.col(n).alias(f"b_{n}") for n in numbers), in_b=pl.lit(True))
    both = left.join(right, on="name", how="full", coalesce=True).with_columns(
        pl.col("^[ab]_.*$").fill_null(0), pl.col("in_a", "in_b").fill_null(False)
    )
    device, host = pl.col("b_device_ns") - pl.col("a_device_ns"), pl.col("b_host_ns") - pl.col("a_host_ns")
    is_same = (device == 0) & (host == 0) & (pl.col("a_executions") == pl.col("b_executions"))
    status = (
        pl.when(~pl.col("in_a"))
        .then(pl.lit("added"))
        .when(~pl.col("in_b"))
        .then(pl.lit("removed"))
        .when(is_same)
        .then(pl.lit("same"))
        .otherwise(pl.lit("changed"))
    )
    rows = both.with_columns(device_change_ns=device, host_change_ns=host, status=status)
    size = (pl.col("device_change_ns").abs(), pl.col("host_change_ns").abs())
    return OPS.conform(rows).sort(*size, "name", descending=[True, True, False])


def _sequence(inputs: Inputs) -> pl.DataFrame:
    """Executions of the first measured step of the first session, in order of time."""
    rows = _executions(inputs).with_columns(_step=pl.col("step").rank("dense").over("session"))
    first = rows.filter((pl.col("_step") == 1) | pl.col("step").is_null())
    session = pl.col("session") == pl.col("session").min()
    return first.filter(session).sort("hardware_start_ns", "name").select("name", "device_ns").collect()


def _replaced(before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    if max(before.height, after.height) > _SEQUENCE_LIMIT:
        return REPLACED.empty()
    first, second = before["name"].to_list(), after["name"].to_list()
    matcher = difflib.SequenceMatcher(None, first, second, autojunk=False)
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
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag != "equal"
    ]
    return REPLACED.rows(rows)
