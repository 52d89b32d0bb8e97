"""Small tables for tests of metrics: written by hand, or the made-up samples with their truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from tracekit.metrics.base import SCOPE, Inputs
from tracekit.tables import CHAINS, EVENTS, TABLES

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces" / "neuron"
Row = dict[str, object]

_KINDS = {
    "nc_exec_running": "execution",
    "cc_running": "collective",
    "nc_model_switch": "model",
    "model_load": "model",
    "kbl_exec_wait": "sync",
    "nrt_tensor_write": "copy_in",
    "dmem_buf_copyin": "copy_in",
    "nrt_tensor_read": "copy_out",
    "dmem_buf_copyout": "copy_out",
}


def event(kind: str, start: int, end: int, *, lane: str = "hardware", **columns: object) -> Row:
    """One event of session ``s``; on the hardware lane of core 0 unless said otherwise."""
    core = 0 if lane == "hardware" else None
    row: Row = {"session": "s", "lane": lane, "kind": kind, "source": "kineto", "is_primary": True, "name": kind}
    return {**row, "core_index": core, "start_ns": start, "end_ns": end, **columns}


def chain(hardware_ids: list[int], **columns: object) -> Row:
    """One chain of session ``s`` on core 0, complete unless said otherwise."""
    row: Row = {"session": "s", "core_index": 0, "name": "op", "kind": "execution", "hardware_ids": hardware_ids}
    return {**row, "device_ns": 0, "complete": True, **columns}


def window(start: int, end: int, step: int | None = None, session: str = "s") -> Row:
    return {"session": session, "step": step, "start_ns": start, "end_ns": end}


def inputs(
    events: list[Row],
    chains: list[Row] | None = None,
    scope: list[Row] | None = None,
    sessions: list[Row] | None = None,
) -> Inputs:
    """Tables with ids filled in (event ids count from 1); without a scope, one window around all events."""
    numbered = [{"event_id": n, **row} for n, row in enumerate(events, start=1)]
    frame = EVENTS.rows(numbered)
    if scope is None:
        spans = frame.group_by("session").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        scope = [{**row, "step": None} for row in spans.to_dicts()]
    names = sorted({str(row["session"]) for row in [*events, *scope]})
    sessions = sessions or [{"session": name, "path": name} for name in names]
    frames = {name: table.empty() for name, table in TABLES.items()} | {
        "events": frame,
        "chains": CHAINS.rows([{"chain_id": n, **row} for n, row in enumerate(chains or [], start=1)]),
        "sessions": TABLES["sessions"].rows(sessions),
    }
    return Inputs(scope=SCOPE.rows(scope).lazy(), **{name: f.lazy() for name, f in frames.items()})


def truth(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "truth.json").read_text())["processes"]
    return found


def session_of(process_id: int) -> str:
    return f"pid_{process_id}"


def sample(folder: Path) -> Inputs:
    """A made-up capture's tables: events from its Parquet export, chains from its truth, steps as scope."""
    rows = pl.read_parquet(folder / "explorer" / "SystemProfileEvents.parquet").to_dicts()
    events = [e for row in rows if (e := _sample_event(row))]
    chains = [c for process in truth(folder) for c in _sample_chains(process, rows)]
    scope = [
        window(e["start_ns"], e["end_ns"], int(e["name"].rpartition("#")[2]), e["session"])
        for e in events
        if e["name"].startswith("ProfilerStep#")
    ]
    ranks = [{"session": session_of(p["process_id"]), "path": "", "rank": p.get("rank")} for p in truth(folder)]
    return inputs(events, chains, scope, ranks)


def _sample_event(row: dict[str, Any]) -> dict[str, Any]:
    name = row["name"].removesuffix(" [trace.json]")
    attrs = json.loads(row["extra_attributes_json"])
    lane = {"neuron_rt": "runtime", "neuron_hw": "hardware", "framework": "dispatch"}[row["trace_event_source"]]
    kind = _KINDS.get(name, "call")
    if lane == "dispatch":
        annotations = ("ProfilerStep#", "_compile")
        is_call = "nrt_sequence_id" in attrs
        kind = "annotation" if name.startswith(annotations) else "call" if is_call else "op"
        kind = "sync" if "synchronize" in name else kind
        lane = "stream" if row["framework_stream_id"] is not None else lane
    found = event(kind, row["start_ts"], row["end_ts"], lane=lane, name=name, event_id=row["id"])
    return {
        **found,
        "session": session_of(row["process_id"]),
        "process_id": row["process_id"],
        "thread_id": row["thread_id"],
        "core_index": row["nc_idx"],
        "physical_core": row["pcore_idx"],
        "execution_id": attrs.get("exec_id"),
        "model_id": attrs.get("model_id"),
        "moved_bytes": attrs.get("size"),
        "attrs_json": row["extra_attributes_json"],
    }


def _sample_chains(process: dict[str, Any], rows: list[dict[str, Any]]) -> list[Row]:
    ran: dict[int, list[int]] = {}
    for row in rows:
        if row["name"] == "nc_exec_running" and row["process_id"] == process["process_id"]:
            execution = json.loads(row["extra_attributes_json"])["exec_id"]
            ran.setdefault(execution, []).append(row["id"])
    dispatched = {
        (row["process_id"], json.loads(row["extra_attributes_json"])["External id"]): row["id"]
        for row in rows
        if "Input type" in row["extra_attributes_json"]
    }
    found = []
    for c in process["chains"]:
        hardware = c["hardware"] or [None, None]
        found.append(
            chain(
                ran.get(c["exec_id"], []),
                session=session_of(process["process_id"]),
                name=c["op"],
                dispatch_id=dispatched[process["process_id"], c["external_id"]],
                execution_id=c["exec_id"],
                dispatch_start_ns=c["dispatch"][0],
                dispatch_end_ns=c["dispatch"][1],
                submit_ns=c["submit"][0],
                submit_end_ns=c["submit"][1],
                hardware_start_ns=hardware[0],
                hardware_end_ns=hardware[1],
                device_ns=c["device_ns"] or 0,
                complete=c["hardware"] is not None,
                missing=None if c["hardware"] else "hardware",
            )
        )
    return found
