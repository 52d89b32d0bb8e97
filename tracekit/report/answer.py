"""The answer in a few lines, from the results of metrics."""

from __future__ import annotations

import polars as pl

from tracekit.report.charts import CAUSE_LABELS
from tracekit.report.model import Answer, Figure
from tracekit.report.results import Results
from tracekit.report.timeline import CAUSES
from tracekit.report.words import brief, duration, percent, sequence

_CAUSE_MEANS = {
    "collective": "a collective ran",
    "copy": "data was copied between host and device",
    "model_switch": "the core changed its model",
    "not_dispatched": "the host had not yet reached the operator that came next",
    "dispatching": "the host was still dispatching the operator that came next",
    "runtime": "the next execution was submitted, but the runtime had not started it",
    "unknown": "nothing links the next execution to the host",
}


def answer(results: Results) -> Answer:
    """Who limits this program, by how much, why, and which operators take the time."""
    split, gaps, ops = results.split(), results.get("gaps"), top_ops(results)
    idle = [_idle(gaps, split), _outside(split, results.get("devices"))]
    sentences = [_measured(results), *idle, _work(ops, results), _steps(results.get("steps"))]
    return Answer(_headline(split, gaps), [s for s in sentences if s], _figures(results, split, gaps))


def top_ops(results: Results) -> pl.DataFrame | None:
    """Operators (or kernels, where no operator is known) by device time: name, device_ns, execution_count."""
    work = results.get("work", by="op")
    if work is None:
        return None
    sums = work.group_by("name").agg(pl.col("device_ns", "execution_count").sum())
    return sums.sort("device_ns", "name", descending=[True, False])


def _sums(frame: pl.DataFrame, *columns: str) -> dict[str, int]:
    return {c: int(frame[c].sum()) for c in columns}


def _headline(split: pl.DataFrame | None, gaps: pl.DataFrame | None) -> str:
    if split is None:
        return "Nothing to measure: this capture holds no timed events."
    s = _sums(split, "window_ns", "device_only_ns", "host_only_ns", "both_ns", "neither_ns")
    window = s["window_ns"]
    busy = s["device_only_ns"] + s["both_ns"]
    whole = duration(window) + ("" if split.height == 1 else f" ({split.height} processes added up)")
    if not busy:
        return f"No device work in this capture: it shows {duration(window)} of the host only."
    idle, alone = window - busy, s["device_only_ns"]
    if idle > alone and _waits_for_host(gaps):
        return f"Host-bound: the device is idle for {percent(idle, window)} of {whole}."
    if idle > alone:
        return f"Idle device: it does nothing for {percent(idle, window)} of {whole}, and late dispatch is not why."
    return f"Device-bound: the device works for {percent(busy, window)} of {whole}."


def _waits_for_host(gaps: pl.DataFrame | None) -> bool:
    """Whether late dispatch explains at least half of the gaps, or nothing else is known."""
    if gaps is None or not gaps["gap_ns"].sum():
        return True
    late = int(gaps["not_dispatched_ns"].sum()) + int(gaps["dispatching_ns"].sum())
    return 2 * late >= int(gaps["gap_ns"].sum())


def _measured(results: Results) -> str:
    """What was measured: steps or everything, of how many processes."""
    scope = results.inputs.scope.collect()
    sessions = scope["session"].n_unique()
    if not sessions:
        return ""
    steps = scope["step"].drop_nulls().unique().sort().to_list()
    where = "one process" if sessions == 1 else f"{sessions} processes"
    if not steps:
        return f"Measured: the whole capture of {where}, since it marks no steps."
    named = f"step {steps[0]}" if len(steps) == 1 else f"{len(steps)} steps ({steps[0]} to {steps[-1]})"
    return f"Measured: {named} of {where}."


_NEGLIGIBLE = 0.005
"""Gaps below this share of the measured time are not taken apart."""


def _idle(gaps: pl.DataFrame | None, split: pl.DataFrame | None) -> str:
    if gaps is None:
        return ""
    whole = int(gaps["gap_ns"].sum())
    if split is not None and whole < _NEGLIGIBLE * int(split["window_ns"].sum()):
        return f"The device hardly waits between executions: {duration(whole)} in all."
    causes = _sums(gaps, *(f"{cause}_ns" for cause in CAUSES))
    column, ns = max(causes.items(), key=lambda item: item[1])
    cause = column.removesuffix("_ns")
    late = (
        gaps.filter(pl.col("after_name").is_not_null()).group_by("after_name").agg(pl.col(column).sum())
        .sort(column, "after_name", descending=[True, False]).head(1)
    )  # fmt: skip
    many = "One gap between executions lasts" if gaps.height == 1 else f"{gaps.height:,} gaps between executions last"
    text = (
        f"{many} {duration(whole)}{'' if gaps.height == 1 else ' in all'}; {percent(ns, whole)} of that is "
        f"“{CAUSE_LABELS[cause]}”: {_CAUSE_MEANS[cause]}."
    )
    if late.is_empty():
        return text
    return f"{text} The largest share of it, {duration(late[column][0])}, lies before {brief(late['after_name'][0])}."


def _outside(split: pl.DataFrame | None, devices: pl.DataFrame | None) -> str:
    """How long a device without steps had no work yet, or no more: gaps do not tell of it."""
    if split is None or devices is None or devices["session"].to_list() != split["session"].to_list():
        return ""
    whole = int(split["window_ns"].sum())
    outside = whole - int(devices["window_ns"].sum())
    if outside <= _NEGLIGIBLE * whole:
        return ""
    return f"Another {duration(outside)} pass before the device's first work and after its last."


def _work(ops: pl.DataFrame | None, results: Results) -> str:
    if ops is not None and ops["device_ns"].sum():
        whole = int(ops["device_ns"].sum())
        top = [f"{brief(row['name'])} {percent(row['device_ns'], whole)}" for row in ops.head(3).to_dicts()]
        return f"Most device time goes to {sequence(top)}."
    table = results.get("ops")
    column = "self_cpu_ns"
    if table is None or column not in table.columns:
        return ""
    operators = table.filter(pl.col("kind") == "op")
    sums = operators.group_by("name").agg(pl.col(column).sum()).sort(column, "name", descending=[True, False])
    whole, inside = int(table[column].sum()), int(sums[column].sum())
    if not inside:
        return ""
    top = [f"{brief(row['name'])} {percent(row[column], whole)}" for row in sums.head(3).to_dicts()]
    outside = f" {percent(whole - inside, whole)} is spent outside operators, in Python and ranges." if whole else ""
    return f"Most CPU time goes to {sequence(top)}.{outside}"


def _steps(steps: pl.DataFrame | None) -> str:
    if steps is None or not steps["is_warmup"].any():
        return ""
    warm = steps.filter("is_warmup")
    numbers = [str(n) for n in warm["step"].unique().sort().to_list()]
    reasons = [r.replace("_", " ") for r in warm["warmup_reason"].drop_nulls().unique().sort().to_list()]
    named = f"Step {numbers[0]} is" if len(numbers) == 1 else f"Steps {sequence(numbers[:6])} are"
    return f"{named} warm-up ({sequence(reasons)}) and left out of the numbers unless the whole capture was asked for."


def _figures(results: Results, split: pl.DataFrame | None, gaps: pl.DataFrame | None) -> list[Figure]:
    figures: list[Figure] = []
    if split is not None:
        s = _sums(split, "window_ns", "device_only_ns", "both_ns", "exposed_collective_ns", "exposed_copy_ns")
        busy = s["device_only_ns"] + s["both_ns"]
        figures.append(Figure("Measured time", s["window_ns"], "ns", "all processes" if split.height > 1 else ""))
        if busy:
            figures.append(Figure("Device busy", busy, "ns", percent(busy, s["window_ns"])))
        exposed = s["exposed_collective_ns"] + s["exposed_copy_ns"]
        if exposed:
            figures.append(Figure("Exposed communication", exposed, "ns", "no execution hides it"))
    if gaps is not None:
        figures.append(Figure("Idle in gaps", int(gaps["gap_ns"].sum()), "ns", f"{gaps.height:,} gaps"))
    counts = results.get("counts", by="total")
    if counts is not None:
        c = _sums(counts, "operator_count", "execution_count")
        figures.append(Figure("Operator calls", c["operator_count"], ""))
        if c["execution_count"]:
            figures.append(Figure("Hardware executions", c["execution_count"], ""))
    return figures
