"""Is this capture fit to be analysed? Every check the vendor's troubleshooting list names and a file can show."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from tracekit import activity, intervals
from tracekit.metrics.base import Inputs
from tracekit.metrics.steps import steps
from tracekit.tables import Column, Table

SEVERITIES = ("info", "care", "unusable")
"""info: worth knowing; care: some numbers are missing or uncertain; unusable: there is no answer in it."""

DIAGNOSES = Table(
    name="diagnoses",
    doc="What a capture lacks, and what to do about it.",
    key=("severity", "check", "session"),
    columns=(
        Column("check", pl.String(), "Stable short name."),
        Column("severity", pl.String(), "How much it matters.", values=SEVERITIES),
        Column("session", pl.String(), "Key of `sessions`; null for the whole capture.", nullable=True),
        Column("event_count", pl.Int64(), "Events (or files) concerned.", nullable=True),
        Column("message", pl.String(), "What was found."),
        Column("next_step", pl.String(), "What to do about it.", nullable=True),
    ),
)

Check = Callable[[Inputs, pl.LazyFrame], pl.LazyFrame]
"""From the tables, and what each lane holds, to rows of ``DIAGNOSES``."""

_COVERED_NOTES = frozenset(
    {
        "incomplete_chains_hardware",
        "no_framework_trace",
        "no_device_trace",
        "no_runtime_trace",
        "no_system_trace",
        "artifacts_only",
        "no_events",
    }
)
"""Notes that a check of its own tells better."""
_INFO_NOTES = frozenset({"no_ntff", "neff_from_cache", "nested_archive", "repaired_events"})
_OVERHEAD_RATIO = 0.05
_RESIDUAL_NS = 10_000
_UNRECORDED_RATIO = 0.01
"""Share of a step from which it matters that the profiler was not running."""


def diagnose(inputs: Inputs) -> pl.DataFrame:
    """Run every check.

    Args:
        inputs: the tables, with the scope ``"all"``.

    Returns:
        ``DIAGNOSES``, the gravest first; empty when nothing is wrong.
    """
    lanes = _lanes(inputs).collect().lazy()  # several checks look at it: computed once
    found = pl.concat([DIAGNOSES.conform(check(inputs, lanes)) for check in CHECKS]).collect()
    weight = pl.col("severity").replace_strict(list(SEVERITIES), [2, 1, 0], return_dtype=pl.Int64)
    return found.sort(weight, "check", "session", nulls_last=True)


def verdict(diagnoses: pl.DataFrame) -> int:
    """0 fine, 1 usable with care, 2 unusable."""
    present = set(diagnoses["severity"].to_list())
    return 2 if "unusable" in present else 1 if "care" in present else 0


def _report(
    rows: pl.LazyFrame,
    check: str,
    severity: str,
    message: pl.Expr | str,
    next_step: pl.Expr | str,
    count: str | None = None,
) -> pl.LazyFrame:
    """Rows of ``DIAGNOSES`` from rows with (perhaps) ``session`` and a count."""
    has_session = "session" in rows.collect_schema()
    return rows.select(
        check=pl.lit(check),
        severity=pl.lit(severity),
        session=pl.col("session") if has_session else pl.lit(None, dtype=pl.String),
        event_count=pl.col(count).cast(pl.Int64) if count else pl.lit(None, dtype=pl.Int64),
        message=pl.lit(message) if isinstance(message, str) else message,
        next_step=pl.lit(next_step) if isinstance(next_step, str) else next_step,
    )


def _counted(noun: str, column: str = "event_count") -> pl.Expr:
    """``1 event``, ``2 events``: a count with its noun."""
    many = pl.when(pl.col(column) == 1).then(pl.lit("")).otherwise(pl.lit("s"))
    return pl.format("{} " + noun + "{}", column, many)


_ACTIVITIES = {"neuron": "PrivateUse1", "cuda": "CUDA", "rocm": "CUDA", "xpu": "XPU", "mtia": "MTIA"}
_MODULES = {"neuron": "neuron", "cuda": "cuda", "rocm": "cuda", "xpu": "xpu", "mtia": "mtia"}
"""Device of a session → its ``ProfilerActivity`` and its module in torch."""


def _of_device(names: dict[str, str], otherwise: str) -> pl.Expr:
    """What ``names`` has for the session's ``device``."""
    return pl.col("device").replace_strict(names, default=otherwise, return_dtype=pl.String)


def _lanes(inputs: Inputs) -> pl.LazyFrame:
    """Per session: events in each lane that can carry work, and its device."""
    lane = pl.col("lane")
    counted = (
        inputs.events.filter("is_primary")
        .group_by("session")
        .agg(
            dispatch=((lane == "dispatch") & pl.col("kind").is_in(["op", "call"])).sum(),
            launches=((lane == "stream") | ((lane == "dispatch") & (pl.col("kind") == "call"))).sum(),
            runtime=(lane == "runtime").sum(),
            hardware=((lane == "hardware") & ~pl.col("kind").is_in(["annotation", "sync", "other"])).sum(),
        )
    )
    return (
        inputs.sessions.select("session", "device")
        .join(counted, on="session", how="left")
        .with_columns(pl.col("dispatch", "launches", "runtime", "hardware").fill_null(0))
    )


def _no_events(inputs: Inputs, _: pl.LazyFrame) -> pl.LazyFrame:
    events = inputs.events.select(event_count=pl.len()).filter(pl.col("event_count") == 0)
    role = pl.col("role")
    files = inputs.artifacts.select(neff=(role == "neff").sum(), ntff=(role == "ntff").sum())
    counted = events.join(files, how="cross")
    only = pl.format("no events: only {} and {}", _counted("NEFF file", "neff"), _counted("NTFF file", "ntff"))
    has_files = (pl.col("neff") > 0) | (pl.col("ntff") > 0)
    message = pl.when(has_files).then(only).otherwise(pl.lit("no events: there is nothing to analyse"))
    again = "capture with torch.profiler (docs/capture.md)"
    export = f"{again} and NeuronConfig, or export what the runtime wrote: neuron-explorer view -d DIR --ingest-only"
    step = pl.when(has_files).then(pl.lit(export)).otherwise(pl.lit(again))
    return _report(counted, "no_events", "unusable", message, step, "event_count")


def _no_device_events(_: Inputs, lanes: pl.LazyFrame) -> pl.LazyFrame:
    bare = lanes.filter((pl.col("hardware") == 0) & (pl.col("dispatch") > 0) & (pl.col("launches") == 0))
    expected = bare.filter(pl.col("runtime") > 0)
    cpu = bare.filter(pl.col("runtime") == 0)
    step = pl.format(
        "request ProfilerActivity.{} beside CPU, and synchronise before the profiler stops",
        _of_device(_ACTIVITIES, "PrivateUse1 (CUDA on a GPU)"),
    )
    told = "no device events: this is a CPU-only trace, device time and gaps cannot be told"
    return pl.concat(
        [
            _report(expected, "no_device_events", "care", "launches, but no device events", step, "runtime"),
            _report(cpu, "cpu_only", "info", told, step, "dispatch"),
        ]
    )


def _no_system_trace(_: Inputs, lanes: pl.LazyFrame) -> pl.LazyFrame:
    alone = lanes.filter((pl.col("hardware") == 0) & (pl.col("launches") > 0))
    message = "launches and no hardware events: the runtime's system trace is missing or could not be read"
    step = "pass NeuronConfig with ProfileMode.RUNTIME, or export it: neuron-explorer view -d DIR --ingest-only"
    return _report(alone, "no_system_trace", "care", message, step, "launches")


def _no_framework_trace(_: Inputs, lanes: pl.LazyFrame) -> pl.LazyFrame:
    alone = lanes.filter((pl.col("dispatch") == 0) & (pl.col("hardware") > 0))
    message = "device events and no operators: work cannot be told by operator"
    return _report(
        alone, "no_framework_trace", "care", message, "capture with torch.profiler (CPU activity)", "hardware"
    )


def _no_synchronise(inputs: Inputs, lanes: pl.LazyFrame) -> pl.LazyFrame:
    ran = lanes.filter(pl.col("hardware") > 0).select("session", "device")
    never = inputs.chains.filter((pl.col("hardware_ids").list.len() == 0) & (pl.col("kind") != "memory"))
    counted = never.group_by("session").agg(event_count=pl.len()).join(ran, on="session")
    message = pl.format("{} without an execution on the device", _counted("launched operation"))
    module = _of_device(_MODULES, "<device>")
    step = pl.format("call torch.{}.synchronize() before the profiler stops", module)
    return _report(counted, "no_synchronise_before_stop", "care", message, step, "event_count")


def _dropped(inputs: Inputs, _: pl.LazyFrame) -> pl.LazyFrame:
    lost = inputs.notes.filter(pl.col("code") == "unpaired_events").group_by("session").agg(pl.col("event_count").sum())
    message = pl.format("{} without start or stop: the ring buffer was full", _counted("event"))
    return _report(
        lost,
        "dropped_events",
        "care",
        message,
        "raise NeuronConfig(max_events_per_nc=…) or profile fewer steps",
        "event_count",
    )


def _warmup(inputs: Inputs, _: pl.LazyFrame) -> pl.LazyFrame:
    found = steps(inputs.events)
    loads = inputs.events.filter(pl.col("is_primary") & (pl.col("name") == "model_load")).select("session", "start_ns")
    kept = found.filter(~pl.col("is_warmup")).select("session", "start_ns", "end_ns")
    inside = intervals.within(loads, kept, ["session"]).group_by("session").agg(event_count=pl.len())
    message = pl.format("{} inside the measured steps", _counted("model load"))
    return _report(
        inside,
        "no_warmup",
        "care",
        message,
        "profile after warm-up: schedule(wait=2, warmup=1, active=…)",
        "event_count",
    )


def _artifact_problems(inputs: Inputs, _: pl.LazyFrame) -> pl.LazyFrame:
    damaged = inputs.artifacts.filter(pl.col("problem").is_not_null() & pl.col("role").is_in(["neff", "ntff"]))
    counted = damaged.group_by("session").agg(
        event_count=pl.len(), example=pl.format("{}: {}", "path", "problem").min()
    )
    message = pl.format("{} with a problem, e.g. {}", _counted("NEFF/NTFF file"), "example")
    return _report(counted, "neff_ntff", "info", message, "tracekit artifacts PATH lists them", "event_count")


def _only_protobuf(inputs: Inputs, _: pl.LazyFrame) -> pl.LazyFrame:
    not_read = inputs.notes.filter(pl.col("code") == "ntrace_not_understood").select("session")
    message = "ntrace.pb could not be decoded: its layout is not documented"
    step = "export it where the Neuron tools are: neuron-explorer view -d DIR --ingest-only --data-path OUT"
    return _report(not_read, "only_protobuf", "care", message, step)


def _idle_cores(inputs: Inputs, _: pl.LazyFrame) -> pl.LazyFrame:
    owned = inputs.artifacts.filter((pl.col("role") == "ntff") & pl.col("core_index").is_not_null())
    used = activity.device_work(inputs.events).select("session", "core_index").unique()
    sessions = used.select("session").unique()
    idle = (
        owned.select("session", "core_index").unique()
        .join(sessions, on="session", how="semi")
        .join(used, on=["session", "core_index"], how="anti")
        .group_by("session").agg(event_count=pl.len())
    )  # fmt: skip
    message = pl.format("{} owned and never used", _counted("core"))
    return _report(
        idle, "idle_cores", "info", message, "set NEURON_RT_VISIBLE_CORES to the cores that are used", "event_count"
    )


def _windows(inputs: Inputs) -> pl.LazyFrame:
    """When the profiler of each session was running, as far as its trace tells."""
    return (
        inputs.events.filter((pl.col("kind") == "window") & (pl.col("end_ns") > pl.col("start_ns")))
        .group_by("session").agg(opened_ns=pl.col("start_ns").min(), closed_ns=pl.col("end_ns").max())
    )  # fmt: skip


def _outside_window(inputs: Inputs, _: pl.LazyFrame) -> pl.LazyFrame:
    inside = (pl.col("end_ns") > pl.col("opened_ns")) & (pl.col("start_ns") < pl.col("closed_ns"))
    measured = inputs.events.filter(
        pl.col("is_primary") & ~pl.col("kind").is_in(["window", "annotation", "python", "overhead", "other"])
    )
    stray = measured.join(_windows(inputs), on="session").filter(~inside).group_by("session").agg(event_count=pl.len())
    message = pl.format("{} outside the profiler's window", _counted("event"))
    return _report(
        stray, "outside_window", "care", message, "synchronise before the profiler starts and stops", "event_count"
    )


def _unrecorded_steps(inputs: Inputs, _: pl.LazyFrame) -> pl.LazyFrame:
    """Measured steps that began before the profiler did, or lasted on when it had stopped."""
    until = pl.min_horizontal("end_ns", "closed_ns")
    recorded = (until - pl.max_horizontal("start_ns", "opened_ns")).clip(lower_bound=0)
    cut = (
        steps(inputs.events).filter(~pl.col("is_warmup"))
        .join(_windows(inputs), on="session")
        .with_columns(_outside_ns=pl.col("duration_ns") - recorded)
        .filter(pl.col("_outside_ns") > _UNRECORDED_RATIO * pl.col("duration_ns"))
        .group_by("session")
        .agg(event_count=pl.len(), _share=(100 * pl.col("_outside_ns") / pl.col("duration_ns")).max().round(1))
    )  # fmt: skip
    message = pl.format(
        "{} outside the profiler's window for up to {} % of its time: nothing is recorded there, and it counts as idle",
        _counted("step"),
        "_share",
    )
    step = "call prof.step() at the end of every step, and stop the profiler right after it"
    return _report(cut, "step_outside_window", "care", message, step, "event_count")


def _zero_times(inputs: Inputs, _: pl.LazyFrame) -> pl.LazyFrame:
    work = activity.device_work(inputs.events).filter(pl.col("end_ns") == pl.col("start_ns"))
    counted = work.group_by("session").agg(event_count=pl.len())
    message = pl.format("{} without a duration", _counted("device event"))
    return _report(
        counted, "zero_durations", "info", message, "they count as executions and add no time", "event_count"
    )


def _clocks(inputs: Inputs, _: pl.LazyFrame) -> pl.LazyFrame:
    apart = inputs.sessions.filter(pl.col("clock_residual_ns") > _RESIDUAL_NS)
    message = pl.format("clocks agree to {} µs only after alignment", (pl.col("clock_residual_ns") / 1_000).round(1))
    return _report(apart, "clocks_disagree", "care", message, "compare durations, not times, across these hosts")


def _ranks(inputs: Inputs, _: pl.LazyFrame) -> pl.LazyFrame:
    known = inputs.sessions.filter(pl.col("rank").is_not_null())
    twice = known.group_by("rank").agg(event_count=pl.len()).filter(pl.col("event_count") > 1)
    several = known.select(sizes=pl.col("world_size").drop_nulls().n_unique()).filter(pl.col("sizes") > 1)
    world, seen = pl.col("world_size").max(), pl.col("rank").n_unique()
    absent = known.select(world=world, seen=seen).filter((pl.col("seen") > 1) & (pl.col("seen") < pl.col("world")))
    step = "keep the ranks of one run in one directory"
    repeated = pl.format("rank {} occurs {} times", "rank", "event_count")
    missing = pl.format("{} of {} ranks are there", "seen", "world")
    return pl.concat(
        [
            _report(twice, "mixed_ranks", "care", repeated, step, "event_count"),
            _report(several, "mixed_ranks", "care", "ranks of jobs of different size", step, "sizes"),
            _report(absent, "missing_ranks", "info", missing, "copy the others too"),
        ]
    )


def _overhead(inputs: Inputs, _: pl.LazyFrame) -> pl.LazyFrame:
    spans = inputs.events.filter(pl.col("is_primary") & (pl.col("kind") == "overhead"))
    length = intervals.length(spans, ["session"])
    span = pl.col("last_ns") - pl.col("first_ns")
    heavy = (
        inputs.sessions.select("session", window_ns=span)
        .join(length, on="session")
        .filter(pl.col("length_ns") > _OVERHEAD_RATIO * pl.col("window_ns"))
    )
    percent = (100 * pl.col("length_ns") / pl.col("window_ns")).round(1)
    message = pl.format("the profiler itself took {} % of the time", percent)
    return _report(heavy, "profiler_overhead", "care", message, "record fewer options: no with_stack, no record_shapes")


def _notes(inputs: Inputs, _: pl.LazyFrame) -> pl.LazyFrame:
    """What the readers and the linker noted and no check above tells."""
    told = {"unpaired_events", "ntrace_not_understood", *_COVERED_NOTES}
    rest = inputs.notes.filter((pl.col("severity") != "info") & ~pl.col("code").is_in(list(told)))
    place = pl.when(pl.col("path").is_not_null()).then(pl.col("path") + ": ").otherwise(pl.lit(""))
    mild = pl.col("code").is_in(list(_INFO_NOTES))
    return rest.select(
        check="code",
        severity=pl.when(mild).then(pl.lit("info")).otherwise(pl.lit("care")),
        session="session",
        event_count="event_count",
        message=place + pl.col("message"),
        next_step="hint",
    )


CHECKS: tuple[Check, ...] = (
    _no_events,
    _no_device_events,
    _no_system_trace,
    _no_framework_trace,
    _no_synchronise,
    _dropped,
    _warmup,
    _artifact_problems,
    _only_protobuf,
    _idle_cores,
    _outside_window,
    _unrecorded_steps,
    _zero_times,
    _clocks,
    _ranks,
    _overhead,
    _notes,
)
"""Every check, one small function each; a new check is one line here."""
