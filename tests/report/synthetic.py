"""A made-up profile of any size, as table frames: vectorised, so that a million events take a second.

Per operator call: ``aten::linear`` ⊃ ``aten::addmm`` ⊃ a ``privateuse1_runtime`` call on a thread, a driver event on a
stream, submit and wait on the logical core, and two rows of one hardware execution (two physical cores): eight events.
Steps of 50 calls lie in ``ProfilerStep#N`` annotations.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from tracekit import tables
from tracekit.metrics.base import SCOPE, Inputs

ORIGIN_NS = 1_796_052_700_000_000_000
CALL_NS = 100_000
STEP_CALLS = 50
HOSTILE = [
    "<script>window.pwned=1</script>",
    "</script><img src=x onerror=window.pwned=2>",
    "\x1b[31mred\x1b[0m",
    "\"quotes\" 'and' `ticks` \\ &amp; ${x}",
    "rtl \u202eevil",
    "名前::op",
]
OPS = ["aten::linear", "aten::mul", "aten::rsqrt", "aten::add", "aten::mean", "aten::pow", *HOSTILE]


def frames(events: int, sessions: int = 1, seed: int = 7) -> dict[str, pl.DataFrame]:
    """``events``, ``chains``, ``sessions``, ``notes``, ``threads`` and ``scope`` frames; the rest is empty."""
    calls = max(STEP_CALLS, events // (8 * sessions))
    parts = [_session(f"i-0made0up_pid_{4242 + n}", n, calls, seed + n) for n in range(sessions)]
    out = {name: pl.concat([part[name] for part in parts]) for name in parts[0]}
    out["notes"] = tables.NOTES.rows(
        [
            {"severity": "warning", "code": "cut_file", "path": "trace.json", "message": "Cut at byte 123: <b>x</b>",
             "hint": "let the profiler finish", "event_count": 3, "session": "i-0made0up_pid_4242"},
            {"severity": "info", "code": "duplicate", "message": "Two sources describe the hardware lane."},
        ]
    )  # fmt: skip
    return out


def inputs(events: int, sessions: int = 1, seed: int = 7) -> Inputs:
    """The frames as metric inputs."""
    made = frames(events, sessions, seed)
    lazy = {n: made.get(n, t.empty()).lazy() for n, t in {**tables.TABLES, "scope": SCOPE}.items()}
    return Inputs(**{name: lazy[name] for name in Inputs.names()})


def _session(session: str, ordinal: int, calls: int, seed: int) -> dict[str, pl.DataFrame]:
    rng = np.random.default_rng(seed)
    start = ORIGIN_NS + np.arange(calls, dtype=np.int64) * CALL_NS + rng.integers(0, 20_000, calls)
    hardware = start + 45_000 + rng.integers(0, 10_000, calls)
    length = np.minimum(
        rng.integers(5_000, 60_000, calls), np.append(start[1:], start[-1] + CALL_NS) + 44_000 - hardware
    )
    names = np.array(OPS, dtype=object)[np.arange(calls) % len(OPS)]
    base = pl.DataFrame({"call": np.arange(calls), "at": start, "hw": hardware, "len": length, "op": names})
    at, hw, until = pl.col("at"), pl.col("hw"), pl.col("hw") + pl.col("len")
    layers = [
        _layer(base, 0, "dispatch", "op", pl.col("op"), at, at + 40_000),
        _layer(base, 1, "dispatch", "op", pl.lit("aten::addmm"), at + 3_000, at + 38_000),
        _layer(base, 2, "dispatch", "call", pl.lit("privateuse1::launch"), at + 5_000, at + 30_000),
        _layer(base, 3, "stream", "call", pl.col("op"), at + 20_000, at + 36_000),
        _layer(base, 4, "runtime", "call", pl.lit("nrta_execute_schedule"), at + 30_000, at + 34_000),
        _layer(base, 5, "runtime", "sync", pl.lit("kbl_exec_wait"), hw - 500, until),
        _layer(base, 6, "hardware", "execution", pl.lit("nc_exec_running"), hw, until),
        _layer(base, 7, "hardware", "execution", pl.lit("nc_exec_running"), hw + 200, until),
    ]
    steps = _steps(start, calls)
    layers.append(
        steps.select(
            position=pl.lit(9) + pl.col("step") * 10 + calls * 10, layer=pl.lit(8), lane=pl.lit("dispatch"),
            kind=pl.lit("annotation"), name="ProfilerStep#" + pl.col("step").cast(pl.String), start_ns="start_ns",
            end_ns="end_ns", call=pl.lit(0, dtype=pl.Int64), op=pl.lit(""),
        ).select(layers[0].columns)
    )  # fmt: skip
    events = _events(pl.concat(layers), session, ordinal)
    scope = steps.select(session=pl.lit(session), step="step", start_ns="start_ns", end_ns="end_ns")
    return {
        "events": tables.EVENTS.conform(events),
        "chains": tables.CHAINS.conform(_chains(base, session, ordinal)),
        "sessions": tables.SESSIONS.rows(
            [{"session": session, "process_id": 4242 + ordinal, "rank": ordinal, "world_size": 2, "device": "neuron",
              "first_ns": int(start[0]), "last_ns": int(hardware[-1] + length[-1]), "path": session,
              "host_name": "host<1>", "versions_json": '{"torch":"2.13"}', "labels_json": '{"batch":"4"}'}]
        ),
        "threads": tables.THREADS.rows(
            [{"session": session, "process_id": 4242 + ordinal, "thread_id": 11, "thread_name": "python main"}]
        ),
        "scope": SCOPE.conform(scope),
    }  # fmt: skip


def _layer(
    base: pl.DataFrame, layer: int, lane: str, kind: str, name: pl.Expr, start: pl.Expr, end: pl.Expr
) -> pl.DataFrame:
    return base.select(
        position=pl.col("call") * 10 + layer, layer=pl.lit(layer), lane=pl.lit(lane), kind=pl.lit(kind), name=name,
        start_ns=start, end_ns=end, call="call", op="op",
    )  # fmt: skip


def _steps(start: np.ndarray, calls: int) -> pl.DataFrame:
    first = np.arange(0, calls, STEP_CALLS)
    last = np.minimum(first + STEP_CALLS, calls) - 1
    ends = np.append(start[first[1:]], start[last[-1]] + CALL_NS)
    return pl.DataFrame({"step": np.arange(len(first), dtype=np.int64), "start_ns": start[first], "end_ns": ends})


def _events(rows: pl.DataFrame, session: str, ordinal: int) -> pl.DataFrame:
    layer, runs_on_core = pl.col("layer"), pl.col("lane").is_in(["runtime", "hardware"])
    shape = '{"Input Dims": [[4, ' + (pl.col("call") % 8 * 64).cast(pl.String) + '], []], "Ev Idx": 1}'
    return rows.sort("position").select(
        event_id=pl.col("position") + (ordinal << 40), session=pl.lit(session), lane="lane", kind="kind", name="name",
        source=pl.when(runs_on_core).then(pl.lit("ntrace")).otherwise(pl.lit("kineto")), is_primary=pl.lit(True),
        process_id=pl.lit(4242 + ordinal), thread_id=pl.lit(11),
        stream_id=pl.when(pl.col("lane") == "stream").then(3), start_ns="start_ns", end_ns="end_ns",
        core_index=pl.when(runs_on_core).then(0), physical_core=pl.when(pl.col("lane") == "hardware").then(layer - 6),
        execution_id=pl.when(runs_on_core).then(pl.col("call")),
        attrs_json=pl.when(layer < 2).then(shape),
    )  # fmt: skip


def _chains(base: pl.DataFrame, session: str, ordinal: int) -> pl.DataFrame:
    event = pl.col("call") * 10 + (ordinal << 40)
    return base.select(
        chain_id=event, session=pl.lit(session), process_id=pl.lit(4242), core_index=pl.lit(0), name="op",
        execution_name=pl.lit("nc_exec_running"), kind=pl.lit("execution"), dispatch_id=event + 1, launch_id=event + 2,
        stream_id=event + 3, submit_id=event + 4, wait_id=event + 5, hardware_ids=pl.concat_list(event + 6, event + 7),
        dispatch_start_ns=pl.col("at") + 3_000, dispatch_end_ns=pl.col("at") + 38_000, submit_ns=pl.col("at") + 30_000,
        submit_end_ns=pl.col("at") + 34_000, wait_start_ns=pl.col("hw") - 500, wait_end_ns=pl.col("hw") + pl.col("len"),
        hardware_start_ns="hw", hardware_end_ns=pl.col("hw") + pl.col("len"), device_ns="len", method=pl.lit("id"),
        complete=pl.lit(True), execution_id="call",
    )  # fmt: skip
