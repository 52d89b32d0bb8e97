"""What a comparison needs of a profile: its measures and operators, one value per step and run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from tracekit import calls, intervals
from tracekit.errors import TracekitError
from tracekit.metrics import METRICS
from tracekit.metrics.base import Inputs
from tracekit.metrics.gaps import CAUSES
from tracekit.tables import Column, Table
from tracekit.vocabulary import FIRST_DATE_NS

_PARTS = ("device_only", "host_only", "both", "neither")

MEASURES: Mapping[str, str] = {
    "device_time": "device_ns",
    "host_time": "host_time_ns",
    "host_self_time": "host_ns",
    "window": "window_ns",
    "executions": "execution_count",
    "operators": "operator_count",
    "launches": "launch_count",
    **{part: f"{part}_ns" for part in _PARTS},
    "exposed_collective": "exposed_collective_ns",
    "exposed_copy": "exposed_copy_ns",
    "gap": "gap_ns",
    **{f"gap.{cause}": f"gap_{cause}_ns" for cause in CAUSES},
}
"""Every measure, and the column that it comes from."""

COUNTS = ("executions", "operators", "launches")
"""Measures that are counts; all others are times."""

_VALUES = pl.List(pl.Float64())
_VALUES_DOC = "per sample; the mean alone for operators that are not tested."
SIDE_OPS = Table(
    name="side_ops",
    doc="Operators of one side, in order of first appearance; work that no operator launched has its own name.",
    key=("name", "shapes"),
    columns=(
        Column("name", pl.String(), "Operator, or the execution that no operator launched."),
        Column("shapes", pl.String(), "Input shapes, where recorded.", nullable=True),
        Column("executions", _VALUES, f"Executions {_VALUES_DOC}"),
        Column("device_ns", _VALUES, f"Device time {_VALUES_DOC}", unit="ns"),
        Column("host_ns", _VALUES, f"Self CPU time {_VALUES_DOC}", unit="ns"),
    ),
)
NUMBERS = ("executions", "device_ns", "host_ns")
_TESTED_VALUES = 20_000
"""Values that are kept of each number of the operators: those of the largest; of the others the mean alone."""

_SAMPLE = ("run", "step")
_OPERATOR = ("name", "shapes")


@dataclass(frozen=True)
class Side:
    """What a comparison needs of one profile, or of several repeats: measured now, or stored as a baseline.

    ``samples`` holds measure → one value per step and run (or one per run), its processes added up; ``ops`` is
    ``SIDE_OPS``; ``sequence`` the executions of one step in order of time (name, device_ns), and
    ``sequence_of`` says of which. ``scope`` is what was asked to be measured, None where that is not known.
    """

    name: str
    samples: Mapping[str, Sequence[float]]
    ops: pl.DataFrame
    sequence: pl.DataFrame
    per_step: bool
    scope: str | int | None = None
    run_count: int = 1
    process_count: int = 1
    sequence_of: str = ""

    @property
    def sample_count(self) -> int:
        """Values per measure."""
        return max((len(values) for values in self.samples.values()), default=0)

    @property
    def basis(self) -> str:
        """What one value of a measure stands for: ``mean of 12 steps``."""
        unit = "step" if self.per_step else "capture"
        what = f"mean of {self.sample_count:,} {unit}s" if self.sample_count > 1 else _ONE[unit]
        if self.per_step and self.run_count > 1:
            what += f" of {self.run_count:,} runs"
        return what + (f", {self.process_count:,} processes added up" if self.process_count > 1 else "")

    def per_process(self) -> Side:
        """Every value divided by the number of processes: what one of them does on average."""
        if self.process_count == 1:
            return self
        shares = (pl.col(number).list.eval(pl.element() / self.process_count) for number in NUMBERS)
        samples = {measure: [v / self.process_count for v in values] for measure, values in self.samples.items()}
        return replace(self, samples=samples, ops=self.ops.with_columns(shares))


_ONE = {"step": "one step", "capture": "the whole capture"}


def side(name: str, *profiles: Inputs, scope: str | int | None = None) -> Side:
    """Measure a profile, or several that repeat the same program, for a comparison.

    Args:
        name: what the side is called.
        profiles: the tables of each.
        scope: what their windows were asked to be.

    Raises:
        TracekitError: if some of the profiles have steps and others have none.
    """
    placed = [_placed(inputs) for inputs in profiles]
    has_steps = {_has_steps(inputs) for inputs, _ in placed}
    if len(has_steps) > 1:
        raise TracekitError(f"{name}: some of its profiles have steps, others have none", hint="add --all")
    parts = [_samples(inputs, runs, MEASURES) for inputs, runs in placed]
    samples = {measure: [value for part in parts for value in part[measure]] for measure in MEASURES}
    first_inputs, first_runs = placed[0]
    sequence, sequence_of = _sequence(first_inputs, first_runs)
    return Side(
        name=name,
        samples=samples,
        ops=_ops(placed),
        sequence=sequence,
        per_step=has_steps == {True},
        scope=scope,
        run_count=sum(runs["run"].n_unique() for _, runs in placed),
        process_count=max((n for _, runs in placed for n in runs["run"].value_counts()["count"]), default=1),
        sequence_of=sequence_of,
    )


def samples(inputs: Inputs, measures: Iterable[str] = MEASURES) -> dict[str, list[float]]:
    """Measures of one profile, one value per step of each run (processes added up), in order of the steps.

    Only what the measures need is computed: one of them takes a third of the time of all. Where any session has
    steps, those without are left out.

    Raises:
        TracekitError: if there is no such measure.
    """
    wanted = list(measures)
    unknown = [measure for measure in wanted if measure not in MEASURES]
    if unknown:
        raise TracekitError(f"no measure {unknown[0]!r}", hint=f"measures are {', '.join(MEASURES)}")
    return _samples(*_placed(inputs), wanted)


def runs(sessions: pl.DataFrame) -> pl.DataFrame:
    """Which sessions are processes of one run, and which repeat it.

    Sessions of one rank are runs one after the other. Sessions whose rank is not known are of one run where
    they overlap in time, or where their clocks have no date; but a process of one machine is in a run once.

    Args:
        sessions: ``tables.SESSIONS``.

    Returns:
        session and run, from 0, by session.
    """
    is_dated = pl.col("first_ns") > FIRST_DATE_NS
    begins = is_dated & (pl.col("first_ns") >= pl.col("last_ns").cum_max().shift())
    by_time = begins.fill_null(value=False).cast(pl.Int64).cum_sum().over("rank")
    by_rank = pl.int_range(pl.len(), dtype=pl.Int64).over("rank")
    by_process = pl.int_range(pl.len(), dtype=pl.Int64).over("rank", "instance_id", "process_id")
    is_known = pl.col("instance_id").is_not_null() & pl.col("process_id").is_not_null()
    without_rank = pl.max_horizontal(by_time, pl.when(is_known).then(by_process))
    run = pl.when(pl.col("rank").is_null()).then(without_rank).otherwise(by_rank)
    return sessions.sort("first_ns", "session").select("session", run=run).sort("session")


def _placed(inputs: Inputs) -> tuple[Inputs, pl.DataFrame]:
    """Tables whose windows are all steps or none, and the runs of their sessions."""
    scope = inputs.scope
    if _has_steps(inputs):
        scope = scope.filter(pl.col("step").is_not_null())
    measured = inputs.sessions.join(scope, on="session", how="semi")
    return replace(inputs, scope=scope), runs(measured.collect())


def _has_steps(inputs: Inputs) -> bool:
    steps = inputs.scope.select("step").collect()["step"]
    return steps.null_count() < len(steps)


def _index(inputs: Inputs, found: pl.DataFrame) -> pl.DataFrame:
    """``_SAMPLE`` of every sample, in order."""
    return inputs.scope.collect().join(found, on="session").select(_SAMPLE).unique().sort(_SAMPLE, nulls_last=True)


def _samples(inputs: Inputs, found: pl.DataFrame, wanted: Iterable[str]) -> dict[str, list[float]]:
    table, asked = _index(inputs, found), set(wanted)
    for measures, rows in _SOURCES:
        columns = [MEASURES[measure] for measure in measures if measure in asked]
        if columns:
            placed = rows(inputs).join(found.lazy(), on="session")
            summed = placed.group_by(_SAMPLE).agg(pl.col(columns).sum()).collect()
            table = table.join(summed, on=_SAMPLE, how="left", nulls_equal=True, maintain_order="left")
    return {measure: table[MEASURES[measure]].fill_null(0).to_list() for measure in wanted}


def _split(inputs: Inputs) -> pl.LazyFrame:
    found = METRICS["split"].compute(inputs, {**_defaults("split"), "per": "step"})
    return found.with_columns(host_time_ns=pl.col("host_only_ns") + pl.col("both_ns"))


def _counts(inputs: Inputs) -> pl.LazyFrame:
    return METRICS["counts"].compute(inputs, {"by": "total", "per": "step"})


def _idle(inputs: Inputs) -> pl.LazyFrame:
    gaps = METRICS["gaps"].compute(inputs, {**_defaults("gaps"), "per": "step"})
    return gaps.rename({f"{cause}_ns": f"gap_{cause}_ns" for cause in CAUSES})


def _defaults(name: str) -> dict[str, str | int | bool | None]:
    return {option.name: option.default for option in METRICS[name].options}


def _executions(inputs: Inputs) -> pl.LazyFrame:
    """Executions that start in the windows: session, step, dispatch_id, name, start_ns, device_ns."""
    ran = inputs.chains.filter(pl.col("hardware_start_ns").is_not_null())
    rows = ran.select("session", "name", "dispatch_id", "device_ns", start_ns="hardware_start_ns")
    return intervals.within(rows, inputs.scope.select("session", "step", "start_ns", "end_ns"), ["session"])


def _host(inputs: Inputs, *, with_shapes: bool = False) -> pl.LazyFrame:
    """Calls of operators that start in the windows: session, step, name, shapes, start_ns, host_ns."""
    found = calls.own(inputs.events, inputs.chains, with_shapes=with_shapes).filter(pl.col("kind") == "op")
    rows = found.select("session", "name", "shapes", "start_ns", host_ns="self_cpu_ns")
    rows = rows.with_columns(pl.col("session", "name", "shapes").cast(pl.String))
    return intervals.within(rows, inputs.scope.select("session", "step", "start_ns", "end_ns"), ["session"])


_SOURCES: Sequence[tuple[tuple[str, ...], Callable[[Inputs], pl.LazyFrame]]] = (
    (("window", "host_time", *_PARTS, "exposed_collective", "exposed_copy"), _split),
    (COUNTS, _counts),
    (("gap", *(f"gap.{cause}" for cause in CAUSES)), _idle),
    (("device_time",), _executions),
    (("host_self_time",), _host),
)
"""Where measures come from: rows by session and step, to be added up."""


def _ops(placed: Sequence[tuple[Inputs, pl.DataFrame]]) -> pl.DataFrame:
    """``SIDE_OPS`` of all profiles together."""
    firsts = [0, *(runs["run"].n_unique() for _, runs in placed)]
    shift = [sum(firsts[: i + 1]) for i in range(len(placed))]
    moved = [runs.with_columns(pl.col("run") + by) for (_, runs), by in zip(placed, shift, strict=True)]
    index = pl.concat([_index(inputs, runs) for (inputs, _), runs in zip(placed, moved, strict=True)])
    rows = pl.concat([_op_rows(inputs, runs).collect() for (inputs, _), runs in zip(placed, moved, strict=True)])
    numbers = [pl.col(number).sum() for number in NUMBERS]
    known = rows.group_by(_OPERATOR).agg(*numbers, pl.col("run", "start_ns").sort_by("run", "start_ns").first())
    size = pl.max_horizontal("device_ns", "host_ns")
    known = known.with_columns(_rank=size.rank("ordinal", descending=True)).sort("run", "start_ns", *_OPERATOR)
    count = max(1, index.height)
    is_tested = pl.col("_rank") <= max(1, _TESTED_VALUES // count)
    order = known.select(*_OPERATOR).with_row_index("_order")
    tested = _per_sample(known.filter(is_tested).select(_OPERATOR), rows, index)
    means = [pl.concat_list(pl.col(number) / count) for number in NUMBERS]
    others = known.filter(~is_tested).select(*_OPERATOR, *means)
    found = pl.concat([SIDE_OPS.conform(tested), SIDE_OPS.conform(others)])
    return found.join(order, on=_OPERATOR, nulls_equal=True).sort("_order").drop("_order")


def _op_rows(inputs: Inputs, found: pl.DataFrame) -> pl.LazyFrame:
    """What each operator did in each sample: ``_SAMPLE``, ``_OPERATOR``, ``NUMBERS``, start_ns."""
    is_op = (pl.col("lane") == "dispatch") & (pl.col("kind") == "op")
    shapes = inputs.events.filter(is_op).select("session", dispatch_id="event_id", shapes=calls.input_shapes())
    ran = _executions(inputs).join(shapes, on=["session", "dispatch_id"], how="left")
    device = ran.with_columns(executions=pl.lit(1, dtype=pl.Int64))
    both = pl.concat([device, _host(inputs, with_shapes=True)], how="diagonal_relaxed")
    key = (*_SAMPLE, *_OPERATOR)
    summed = both.join(found.lazy(), on="session").group_by(key)
    return summed.agg(*(pl.col(number).sum().cast(pl.Int64) for number in NUMBERS), pl.col("start_ns").min())


def _per_sample(ops: pl.DataFrame, rows: pl.DataFrame, index: pl.DataFrame) -> pl.DataFrame:
    """The numbers of ``ops`` as lists with one value per sample, 0 where an operator did not run."""
    every = ops.join(index.with_row_index("_at"), how="cross")
    filled = every.join(rows, on=[*_SAMPLE, *_OPERATOR], how="left", nulls_equal=True).sort("_at")
    values = [pl.col(number).fill_null(0).cast(pl.Float64) for number in NUMBERS]
    return filled.group_by(_OPERATOR).agg(values)


def _sequence(inputs: Inputs, found: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """Executions of the first measured step of the first session, in order of time; and which step that is."""
    rows = _executions(inputs).filter(pl.col("session") == pl.col("session").min())
    first = rows.filter((pl.col("step") == pl.col("step").min()) | pl.col("step").is_null()).collect()
    sequence = first.sort("start_ns", "name").select("name", "device_ns")
    if first.is_empty():
        return sequence, ""
    session, step = first.select("session", "step").row(0)
    words = "the capture" if step is None else f"step {step}"
    return sequence, words + (f" of {session}" if found.height > 1 else "")
