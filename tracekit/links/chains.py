"""Chains and links out of what the rules found."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracekit import tables
from tracekit.links.executions import Executions

_RANK = {method: rank for rank, method in enumerate(tables.METHODS)}
_COPY_NAME, _MEMORY_NAME = r"(?i)memcpy", r"(?i)memset"


@dataclass(frozen=True)
class Found:
    """What the rules found for some sessions, as frames keyed by index.

    Attributes:
        launches: ``launches.launches``.
        operators: ``launch``, ``event_id``, ``method``, ``name``, ``start_ns``, ``end_ns``.
        submits: ``submits.submits`` with ``launch`` (null if unknown).
        executions: ``executions.executions``, its records with ``submit`` and ``submit_method``.
        work: device work of the framework's trace: ``work``, ``launch``, ``method``, ``event_ids`` and what
            ``Executions.work`` has.
        work_operators: as ``operators``, by ``work``: operators of work without a launch.
        must_launch: ``launch`` of those that must have led to work.
    """

    launches: pl.DataFrame
    operators: pl.DataFrame
    submits: pl.DataFrame
    executions: Executions
    work: pl.DataFrame
    work_operators: pl.DataFrame
    must_launch: pl.DataFrame


def assemble(found: Found, lanes: pl.DataFrame, sessions: pl.DataFrame) -> pl.DataFrame:
    """Make the rows of ``tables.CHAINS``, without ``chain_id``.

    One per piece of device work; then one per execution, submit and launch that no work came of.

    Args:
        found: what the rules found.
        lanes: ``session`` and whether it has each lane, as booleans named as the lanes.
        sessions: ``session``, ``process_id``.
    """
    spine = _spine(found)
    joined = _joined(spine, found).join(
        sessions.select("session", session_process="process_id"), on="session", how="left", validate="m:1"
    )
    has_op = pl.col("dispatch_id").is_not_null()
    present = {
        "dispatch": has_op | (pl.col("call_lane") == "dispatch").fill_null(False),
        "stream": pl.col("stream_event").is_not_null(),
        "runtime": pl.any_horizontal(pl.col("submit_id", "stage_id").is_not_null()),
        "hardware": pl.col("hardware_start_ns").is_not_null(),
    }
    rows = joined.join(lanes, on="session", how="left", validate="m:1")
    gaps = [pl.when(pl.col(f"has_{lane}") & ~here).then(pl.lit(lane)) for lane, here in present.items()]
    return rows.with_columns(
        process_id=pl.coalesce("process_id", "session_process"),
        missing=pl.coalesce(gaps),
        method=_least_certain(),
    ).with_columns(complete=pl.col("missing").is_null())


def _spine(found: Found) -> pl.DataFrame:
    """Which work, record, submit and launch make a chain: one row each, every index of work exactly once."""
    records = found.executions.records.select("session", record="cause", submit="submit")
    submits = found.submits.select("session", "submit", "launch")
    by_record = found.executions.work.select("session", "record", neuron_work="work").join(
        records.drop("session"), on="record", how="left", validate="m:1"
    )
    by_record = by_record.join(submits.drop("session"), on="submit", how="left", validate="m:1")
    by_launch = _behind_launch(found, submits, records)
    spine = pl.concat([by_record, by_launch], how="diagonal_relaxed")
    idle_records = records.join(spine, on="record", how="anti").join(
        submits.drop("session"), on="submit", how="left", validate="m:1"
    )
    spine = pl.concat([spine, idle_records], how="diagonal_relaxed")
    main = found.submits.filter("is_main").select("submit")
    idle_submits = submits.join(main, on="submit", how="semi").join(spine, on="submit", how="anti")
    spine = pl.concat([spine, idle_submits], how="diagonal_relaxed")
    launched = found.launches.select("session", "launch").join(found.must_launch, on="launch", how="semi")
    return pl.concat([spine, launched.join(spine, on="launch", how="anti")], how="diagonal_relaxed")


def _behind_launch(found: Found, submits: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    """Work that the framework's trace tells of, with the submit and record of its launch where the runtime has them."""
    first_submit = submits.drop_nulls("launch").unique("launch", keep="first", maintain_order=True)
    first_record = records.drop_nulls("submit").unique("submit", keep="first", maintain_order=True)
    return (
        found.work.select("session", "launch", kineto_work="work")
        .join(first_submit.drop("session"), on="launch", how="left", validate="m:1")
        .join(first_record.drop("session"), on="submit", how="left", validate="m:1")
    )


def _joined(spine: pl.DataFrame, found: Found) -> pl.DataFrame:
    """The spine with everything a chain says."""
    launches = found.launches.select(
        "launch",
        "call_id",
        "call_lane",
        "call_name",
        "stream_event",
        "stream_name",
        launch_process="process_id",
        launch_stream="stream_id",
        launch_model="model_id",
        launch_name="name",
        launch_start_ns="start_ns",
        launch_end_ns="end_ns",
    )
    operators = _operator_columns(found.operators)
    submits = found.submits.select(
        "submit",
        submit_event="event_id",
        submit_process="process_id",
        submit_core="core_index",
        submit_model="model_id",
        submit_name="name",
        submit_start_ns="start_ns",
        submit_stop_ns="end_ns",
    )
    records = found.executions.records.select(
        "stage_id",
        "wait_id",
        "wait_start_ns",
        "wait_end_ns",
        "submit_method",
        "stage_name",
        "stage_end_ns",
        stage_start_ns="start_ns",
        record="cause",
        record_process="process_id",
        record_core="core_index",
        record_model="model_id",
        record_execution="execution_id",
    )
    return _chain_columns(
        _with_work(spine, found)
        .join(launches, on="launch", how="left", validate="m:1")
        .join(operators, on="launch", how="left", validate="m:1")
        .join(submits, on="submit", how="left", validate="m:1")
        .join(records, on="record", how="left", validate="m:1")
    )


def _operator_columns(operators: pl.DataFrame, key: str = "launch", prefix: str = "op") -> pl.DataFrame:
    names = {"event_id": "id", "method": "method", "name": "name", "start_ns": "start_ns", "end_ns": "end_ns"}
    return operators.select(key, **{f"{prefix}_{new}": pl.col(old) for old, new in names.items()})


def _with_work(spine: pl.DataFrame, found: Found) -> pl.DataFrame:
    """The spine with the device's own rows, whichever format told of them."""
    neuron = found.executions.work.rename({"work": "neuron_work", "process_id": "work_process"}).drop(
        "record", "session"
    )
    kineto = found.work.rename({"work": "kineto_work"}).drop("launch", "session")
    kineto = kineto.join(
        _operator_columns(found.work_operators, "work", "bare").rename({"work": "kineto_work"}),
        on="kineto_work",
        how="left",
        validate="1:1",
    )
    by_runtime = spine.filter(pl.col("neuron_work").is_not_null()).join(neuron, on="neuron_work", validate="1:1")
    by_framework = spine.filter(pl.col("kineto_work").is_not_null()).join(kineto, on="kineto_work", validate="1:1")
    idle = spine.filter(pl.col("neuron_work").is_null() & pl.col("kineto_work").is_null())
    return pl.concat([by_runtime, by_framework, idle], how="diagonal_relaxed").rename({"method": "work_method"})


def _chain_columns(rows: pl.DataFrame) -> pl.DataFrame:
    names = ("op_name", "bare_name", "stream_name", _dispatched_name(), "name")
    return _with_submit(rows).with_columns(
        process_id=pl.coalesce("launch_process", "submit_process", "record_process", "work_process"),
        core_index=pl.coalesce("core_index", "record_core", "submit_core"),
        stream_number=pl.coalesce("stream_id", "launch_stream"),
        name=pl.coalesce(*names, "launch_name", "submit_name", "stage_name"),
        execution_name="name",
        kind=pl.coalesce("kind", _launched_kind()),
        model_id=pl.coalesce("model_id", "record_model", "submit_model", "launch_model"),
        execution_id=pl.coalesce("execution_id", "record_execution"),
        dispatch_id=pl.coalesce("op_id", "bare_id"),
        launch_id="call_id",
        stream_id="stream_event",
        hardware_ids=pl.col("event_ids").fill_null(pl.lit([], dtype=pl.List(pl.Int64))),
        dispatch_start_ns=pl.coalesce("op_start_ns", "bare_start_ns"),
        dispatch_end_ns=pl.coalesce("op_end_ns", "bare_end_ns"),
        hardware_start_ns="start_ns",
        hardware_end_ns="end_ns",
        device_ns=pl.col("device_ns").fill_null(0),
    )


def _with_submit(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``submit_id``, ``submit_ns`` and ``submit_end_ns``.

    The submit to the Neuron runtime; else the runtime's launch call, or the call that device work is linked to
    directly; else, where nothing more is left of an execution, its first host stage.
    """
    is_direct = pl.col("kineto_work").is_not_null() | (pl.col("call_lane") == "runtime").fill_null(False)
    by_call = pl.col("submit_event").is_null() & pl.col("call_id").is_not_null() & is_direct
    by_stage = pl.all_horizontal(pl.col("submit_event", "call_id", "stream_event", "wait_id", "event_ids").is_null())
    sources = (
        ("submit_id", "submit_event", "call_id", "stage_id"),
        ("submit_ns", "submit_start_ns", "launch_start_ns", "stage_start_ns"),
        ("submit_end_ns", "submit_stop_ns", "launch_end_ns", "stage_end_ns"),
    )
    return rows.with_columns(
        pl.coalesce(submit, pl.when(by_call).then(call), pl.when(by_stage).then(stage)).alias(name)
        for name, submit, call, stage in sources
    )


def _launched_kind() -> pl.Expr:
    """Kind of what a call launched, as far as its name tells."""
    call = pl.col("call_name")
    return (
        pl.when(call.str.contains(_COPY_NAME))
        .then(pl.lit("copy"))
        .when(call.str.contains(_MEMORY_NAME))
        .then(pl.lit("memory"))
        .otherwise(pl.lit("execution"))
    )


def _dispatched_name() -> pl.Expr:
    """The call's name where it is the framework's own: it is named after the operator."""
    return pl.when(pl.col("call_lane") == "dispatch").then("call_name")


def _least_certain() -> pl.Expr:
    """The least certain link of a chain; null without any."""
    has_call, has_stream, has_submit = (pl.col(c).is_not_null() for c in ("call_id", "stream_event", "submit_event"))
    by_id = ((has_call | has_stream) & has_submit) | (has_call & has_stream)
    methods: list[str | pl.Expr] = [
        "op_method",
        pl.when(pl.col("op_id").is_null()).then("bare_method"),
        pl.when(has_submit).then("submit_method"),
        "work_method",
        pl.when(by_id).then(pl.lit("id")),
    ]
    codes = [pl.col(m) if isinstance(m, str) else m for m in methods]
    worst = pl.max_horizontal(*(c.replace_strict(_RANK, return_dtype=pl.Int8) for c in codes))
    return worst.replace_strict(list(_RANK.values()), list(_RANK), return_dtype=pl.String)


def link(rows: pl.DataFrame, stages: pl.DataFrame) -> pl.DataFrame:
    """Make the rows of ``tables.LINKS``: each pair once, by its most certain method.

    Args:
        rows: what ``assemble`` returns.
        stages: ``Executions.stages``.
    """
    launch, work = pl.coalesce("call_id", "stream_event"), "hardware_ids"
    direct = pl.col("kineto_work").is_not_null()
    staged = pl.col("stage_id").is_not_null() & ~direct
    by_id = pl.lit("id")
    counted = pl.when(pl.col("record_execution").is_not_null()).then(by_id).otherwise(pl.lit("order"))
    staging = rows.select("session", "record", "stage_id", "record_execution").join(stages, on="record")
    pairs = [
        _edge(rows, "op_id", launch, "op_method"),
        _edge(rows, "call_id", "stream_event", by_id),
        _edge(rows, pl.coalesce("stream_event", "call_id"), "submit_event", by_id),
        _edge(rows, "submit_event", "stage_id", "submit_method"),
        _edge(staging, "stage_id", "event_id", counted).filter(pl.col("from_id") != pl.col("to_id")),
        _edge(rows, pl.when(staged).then("stage_id"), work, "work_method"),
        _edge(rows, pl.when(~staged & ~direct).then("submit_event"), work, "submit_method"),
        _edge(rows, pl.when(direct).then("call_id"), work, "work_method"),
        _edge(rows, pl.when(direct).then("bare_id"), work, "bare_method"),
    ]
    ordered = pl.concat(pairs).sort("from_id", "to_id", "rank")
    once = ordered.filter(pl.any_horizontal(pl.col(c).ne_missing(pl.col(c).shift()) for c in ("from_id", "to_id")))
    method = pl.col("rank").replace_strict(list(_RANK.values()), list(_RANK), return_dtype=pl.String)
    return once.select(pl.col("session").cast(pl.String), "from_id", "to_id", method=method)


def _edge(rows: pl.DataFrame, cause: str | pl.Expr, effect: str | pl.Expr, method: str | pl.Expr) -> pl.DataFrame:
    """One link per row that has both ends, or per item where the effect is a list."""
    rank = (pl.col(method) if isinstance(method, str) else method).replace_strict(_RANK, return_dtype=pl.Int8)
    ends = {
        name: pl.col(part) if isinstance(part, str) else part for name, part in (("from_id", cause), ("to_id", effect))
    }
    made = rows.select("session", **ends, rank=rank).drop_nulls(["from_id", "to_id", "rank"])
    return made.explode("to_id", empty_as_null=False) if isinstance(made.schema["to_id"], pl.List) else made
