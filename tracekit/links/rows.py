"""The rows of ``events`` that linking needs, by the part they play."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

WORK_KINDS = ("execution", "collective", "copy_in", "copy_out", "copy", "memory")
"""Kinds of lane ``hardware`` that are work of the device."""

SUBMITS = ("nrta_execute_schedule", "nrt_execute", "nrt_model_submit", "post_request")
"""Runtime events that put an execution into a queue."""

STAGES = {"runtime_execute": 0, "kbl_exec_pre": 1, "kmgr_exec_core": 2, "kbl_exec_wait": 3, "kbl_exec_post": 4}
"""Host stages of one execution, in the order they start."""

WAIT = "kbl_exec_wait"

LAUNCH_NAME = r"(?i)(launch|memcpy|memset)"
"""Names of runtime calls that put work on a device queue: cudaLaunchKernel, hipMemcpyWithStream, cuMemsetD8Async, …"""

NOT_A_LAUNCH = r"(?i)(hostfunc|callconfiguration)"
"""Calls whose name looks like a launch and that put nothing on the device."""

_FRAMEWORK = pl.col("source") == "kineto"
_LANE, _KIND = pl.col("lane"), pl.col("kind")
_IS_CALL = _KIND.eq("call") & (_LANE.eq("dispatch") | (_LANE.eq("runtime") & _FRAMEWORK))
_IS_STREAM = _LANE.eq("stream") & _KIND.eq("call")
_IS_SYSTEM = _LANE.eq("runtime") & ~_FRAMEWORK & pl.col("name").is_in([*SUBMITS, *STAGES])
_IS_WORK = _LANE.eq("hardware") & _KIND.is_in(list(WORK_KINDS))

_COMMON = ("event_id", "session", "process_id", "thread_id", "name", "start_ns", "end_ns")
_IDS = ("external_id", "correlation_id", "sequence_id")
_PARTS = {
    "calls": (_IS_CALL, (*_COMMON, "lane", *_IDS)),
    "streams": (_IS_STREAM, (*_COMMON, "stream_id", "model_id", *_IDS)),
    "system": (_IS_SYSTEM, (*_COMMON, "core_index", "model_id", "execution_id", "sequence_id")),
    "hardware": (
        _IS_WORK,
        (*_COMMON, "kind", "source", "core_index", "physical_core", "stream_id", "model_id", "execution_id", *_IDS),
    ),
}
"""Which rows and columns each part takes."""


@dataclass(frozen=True)
class Rows:
    """Events of some sessions; ``session`` is an Enum, ids that mean "none" are null, ``at`` is ``start_ns``."""

    calls: pl.DataFrame
    """Calls that may launch work: of the framework's backend (lane dispatch) or of a GPU runtime."""
    streams: pl.DataFrame
    system: pl.DataFrame
    """Submits and stages of a Neuron runtime."""
    hardware: pl.DataFrame
    operators: pl.LazyFrame
    """``event_id, session, process_id, thread_id, start_ns, end_ns, external_id, name``; not yet read."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing that a chain could start or end with."""
        return all(f.is_empty() for f in (self.calls, self.streams, self.system, self.hardware))


def present(events: pl.LazyFrame) -> pl.DataFrame:
    """Count what chains can be made of, and say which of those sessions have operators.

    Without launches and below-framework lanes, two narrow columns are all that a trace costs.

    Returns:
        ``session``, ``lane``, ``kind``, ``rows`` of primary events; of lane ``dispatch`` only calls, and
        operators of sessions that are listed anyway.
    """
    lane, kind = pl.col("lane"), pl.col("kind")
    key = ["session", "lane", "kind"]
    below = events.filter("is_primary", (lane != "dispatch") | (kind == "call"))
    counted = below.group_by(key).agg(rows=pl.len()).sort(key).collect(engine="streaming")
    if counted.is_empty():
        return counted
    operators = events.filter("is_primary", lane == "dispatch", kind == "op").group_by(key).agg(rows=pl.len())
    told = operators.collect(engine="streaming").join(counted, on="session", how="semi")
    return pl.concat([counted, told]).sort(key)


def is_id(column: str) -> pl.Expr:
    """Whether a number names something: 0 and -1 (as unsigned, the largest number) stand for none."""
    return ~pl.col(column).is_in([0, -1])


def load(events: pl.LazyFrame, sessions: list[str]) -> Rows:
    """Read the rows of ``sessions``; operators stay a query, since most are never needed."""
    wanted = events.filter("is_primary", pl.col("session").is_in(sessions)).with_columns(
        pl.col("session").cast(pl.Enum(sessions))
    )
    known = pl.when(is_id("correlation_id")).then("correlation_id").alias("correlation_id")
    parts = [
        wanted.with_columns(known).filter(which).select(*columns, at="start_ns").sort("event_id")
        for which, columns in _PARTS.values()
    ]
    calls, streams, system, hardware = pl.collect_all(parts, engine="streaming")
    operators = wanted.filter(_LANE == "dispatch", _KIND == "op").select(*_COMMON, "external_id")
    return Rows(calls, streams, system, hardware, operators)
