"""The answer in a few lines, from the results of metrics."""

from __future__ import annotations

import polars as pl

from tracekit import activity, intervals
from tracekit.report.charts import CAUSE_LABELS
from tracekit.report.model import Answer, Figure
from tracekit.report.results import Results
from tracekit.report.timeline import CAUSES
from tracekit.report.words import brief, captured, duration, numbered, percent, sequence

_CAUSE_MEANS = {
    "collective": "a collective ran",
    "copy": "data was copied between host and device",
    "model_switch": "the core changed its model",
    "not_dispatched": "the host had not yet reached the operator that came next",
    "dispatching": "the host was still dispatching the operator that came next",
    "runtime": "the next execution was submitted, but the runtime had not started it",
    "unknown": "nothing links the next execution to the host",
}
_BLOCKED_MEANS = "the launch call of the next execution had begun and did not return, so the host was held up in it"

_NEGLIGIBLE = 0.005
"""Gaps below this share of the measured time are not taken apart."""


def answer(results: Results) -> Answer:
    """Who limits this program, by how much, why, and which operators take the time."""
    split, gaps, ops = results.split(), results.get("gaps"), top_ops(results)
    blocked = _blocked_ns(gaps, results)
    idle = [_idle(gaps, split, blocked), _outside(split, results.get("devices"))]
    sentences = [_measured(results), *idle, _work(ops, results), _steps(results)]
    return Answer(_headline(results, gaps, blocked), [s for s in sentences if s], _figures(results, split, gaps))


def top_ops(results: Results) -> pl.DataFrame | None:
    """Operators (or kernels, where no operator is known) by device time: name, device_ns, execution_count.

    Collectives have the names of the metric ``collectives``: their operator is often only the framework's bookkeeping.
    """
    work = results.get("work", by="op")
    if work is None:
        return None
    columns = ("name", "device_ns", "execution_count")
    named = results.get("collectives")
    if named is not None:
        work = work.filter(pl.col("kind") != "collective")
        found = named.select("name", device_ns="collective_ns", execution_count="collective_count")
        work = pl.concat([work.select(columns), found])
    sums = work.group_by("name").agg(pl.col("device_ns", "execution_count").sum())
    return sums.sort("device_ns", "name", descending=[True, False])


def _sums(frame: pl.DataFrame, *columns: str) -> dict[str, int]:
    return {c: int(frame[c].sum()) for c in columns}


def _headline(results: Results, gaps: pl.DataFrame | None, blocked_ns: int) -> str:
    split = results.split()
    if split is None:
        return "Nothing to measure: this capture holds no timed events."
    s = _sums(split, "window_ns", "device_only_ns", "host_only_ns", "both_ns", "neither_ns")
    window = s["window_ns"]
    busy = s["device_only_ns"] + s["both_ns"]
    several = captured(_measured_sessions(results), split.height)
    whole = duration(window) + ("" if split.height == 1 else f" ({several} added up)")
    if not busy:
        return _no_work(results, window)
    idle, alone = window - busy, s["device_only_ns"]
    if idle <= alone:
        return f"Device-bound: the device works for {percent(busy, window)} of {whole}."
    if _waits_for_host(gaps, window):
        return f"Host-bound: the device is idle for {percent(idle, window)} of {whole}."
    why = _other_reason(gaps, window, blocked_ns)
    return f"Idle device: it does nothing for {percent(idle, window)} of {whole}, {why}."


def _no_work(results: Results, window_ns: int) -> str:
    """Work outside of the measured steps is work all the same."""
    work = intervals.length(activity.device_work(results.inputs.events), ["session", "core_index"])
    elsewhere = int(work.select(pl.col("length_ns").sum()).collect().item())
    if not elsewhere:
        return f"No device work in this capture: it shows {duration(window_ns)} of the host only."
    return (
        f"No device work in the measured {duration(window_ns)}: all {duration(elsewhere)} of it lie outside "
        "(--all measures everything; tracekit doctor says whether clocks disagree)."
    )


def _waits_for_host(gaps: pl.DataFrame | None, window_ns: int) -> bool:
    """Whether late dispatch explains at least half of the gaps, and these are worth a word."""
    if gaps is None or gaps["gap_ns"].sum() < _NEGLIGIBLE * window_ns:
        return False
    late = int(gaps["not_dispatched_ns"].sum()) + int(gaps["dispatching_ns"].sum())
    return 2 * late >= int(gaps["gap_ns"].sum())


def _other_reason(gaps: pl.DataFrame | None, window_ns: int, blocked_ns: int) -> str:
    """What an idle device does not wait for, as far as the gaps tell."""
    whole = 0 if gaps is None else int(gaps["gap_ns"].sum())
    if whole < _NEGLIGIBLE * window_ns:
        return f"{'hardly any' if whole else 'none'} of it between two executions"
    if 2 * blocked_ns >= whole:
        return "most of its gaps while the host is held up inside a launch call"
    return "and late dispatch is not why"


def _blocked_ns(gaps: pl.DataFrame | None, results: Results) -> int:
    """How much of the gaps that end in the runtime passes before the launch call of the next execution returns."""
    if gaps is None:
        return 0
    calls = results.inputs.chains.select("submit_ns", "submit_end_ns", after_chain_id="chain_id").collect()
    inside = pl.min_horizontal("end_ns", "submit_end_ns") - pl.max_horizontal("start_ns", "submit_ns")
    blocked = pl.min_horizontal(inside.clip(lower_bound=0), "runtime_ns")
    found = gaps.filter(pl.col("runtime_ns") > 0).join(calls, on="after_chain_id")
    return int(found.filter(pl.col("submit_end_ns").is_not_null()).select(blocked.sum()).item())


def _measured_sessions(results: Results) -> pl.DataFrame:
    return results.inputs.sessions.join(results.inputs.scope, on="session", how="semi").collect()


def _measured(results: Results) -> str:
    """What was measured: steps or everything, of how many processes."""
    scope = results.inputs.scope.collect()
    sessions = scope["session"].n_unique()
    if not sessions:
        return ""
    where = captured(_measured_sessions(results), sessions)
    in_steps = scope.filter(pl.col("step").is_not_null())
    steps = in_steps["step"].unique().sort().to_list()
    if steps:
        rest = sessions - in_steps["session"].n_unique()
        besides = f"; of {rest} without steps, everything" if rest else ""
        return f"Measured: {numbered('step', steps)} of {where}{besides}."
    marked = results.get("steps")
    if marked is None:
        return f"Measured: the whole capture of {where}, since it marks no steps."
    known = numbered("step", marked["step"].unique().sort().to_list())
    return f"Measured: the whole capture of {where}, {known} and what lies around."


def _idle(gaps: pl.DataFrame | None, split: pl.DataFrame | None, blocked_ns: int) -> str:
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
    is_blocked = cause == "runtime" and 2 * blocked_ns >= ns
    text = (
        f"{many} {duration(whole)}{'' if gaps.height == 1 else ' in all'}; {percent(ns, whole)} of that is "
        f"“{CAUSE_LABELS[cause]}”: {_BLOCKED_MEANS if is_blocked else _CAUSE_MEANS[cause]}."
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


def _steps(results: Results) -> str:
    steps = results.get("steps")
    if steps is None or not steps["is_warmup"].any():
        return ""
    warm = steps.filter("is_warmup")
    numbers = [str(n) for n in warm["step"].unique().sort().to_list()]
    reasons = [r.replace("_", " ") for r in warm["warmup_reason"].drop_nulls().unique().sort().to_list()]
    named = f"Step {numbers[0]} is" if len(numbers) == 1 else f"Steps {sequence(numbers[:6])} are"
    scope = results.inputs.scope.select("session", "start_ns", "end_ns")
    is_counted = (
        not intervals.within(warm.lazy().select("session", "start_ns"), scope, ["session"]).collect().is_empty()
    )
    treated = "part of the numbers, as asked for" if is_counted else "left out of the numbers (--all keeps them)"
    return f"{named} warm-up ({sequence(reasons)}) and {treated}."


def _figures(results: Results, split: pl.DataFrame | None, gaps: pl.DataFrame | None) -> list[Figure]:
    figures: list[Figure] = []
    if split is not None:
        s = _sums(split, "window_ns", "device_only_ns", "both_ns", "exposed_collective_ns", "exposed_copy_ns")
        busy = s["device_only_ns"] + s["both_ns"]
        figures.append(Figure("Measured time", s["window_ns"], "ns", "all together" if split.height > 1 else ""))
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
