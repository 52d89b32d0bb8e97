"""A plain reader of sound Chrome traces, event by event with json and Decimal, to compare the fast one with."""

from __future__ import annotations

import gzip
import json
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

from tracekit.sources._chrome_categories import place
from tracekit.sources._chrome_events import text_id

Row = dict[str, Any]
_PHASES = {"X": "complete", "i": "instant", "I": "instant"}
_FLOWS = {"s": "start", "t": "step", "f": "end"}


def load(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Header and events of a trace."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    trace = json.loads(text, parse_float=Decimal)
    return ({}, trace) if isinstance(trace, list) else (trace, trace["traceEvents"])


def rows(header: dict[str, Any], events: list[dict[str, Any]]) -> list[Row]:
    """Rows of ``tables.EVENTS`` (without ids) for complete and instant events; ``attrs`` is the decoded args."""
    base = int(header.get("baseTimeNanoseconds", 0))
    return [_row(event, base) for event in events if event["ph"] in _PHASES]


def flows(header: dict[str, Any], events: list[dict[str, Any]]) -> list[Row]:
    """Rows of ``tables.FLOWS``."""
    base = int(header.get("baseTimeNanoseconds", 0))
    return [
        {
            "flow_id": str(e["id"]),
            "category": e.get("cat"),
            "name": e.get("name"),
            "phase": _FLOWS[e["ph"]],
            "process_id": _number(e.get("pid")),
            "thread_id": _number(e.get("tid")),
            "at_ns": base + nanoseconds(e["ts"]),
            "binds_enclosing": None if e.get("bp") is None else e["bp"] == "e",
        }
        for e in events
        if e["ph"] in _FLOWS
    ]


def nanoseconds(value: object) -> int:
    """Decimal microseconds as integer nanoseconds."""
    return int((Decimal(str(value)) * 1000).to_integral_value(ROUND_HALF_EVEN))


def _row(event: dict[str, Any], base: int) -> Row:
    args = dict(event.get("args") or {})
    known = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "s", "bp")
    args.update({key: value for key, value in event.items() if key not in known and key not in args})
    lane, kind = place(event.get("cat"), event["name"])
    start = base + nanoseconds(event["ts"])
    span = max(0, nanoseconds(event["dur"])) if event["ph"] == "X" else 0
    pid, tid = _number(event.get("pid")), _number(event.get("tid"))
    device, stream = _integer(args.get("device")), _integer(args.get("stream"))
    on_device = lane == "hardware"
    core = device if device is not None and lane in ("hardware", "stream") else pid if on_device else None
    moved = _integer(args["bytes"] if "bytes" in args else args.get("size"))
    return {
        "lane": lane,
        "kind": kind,
        "phase": _PHASES[event["ph"]],
        "name": event["name"],
        "category": event.get("cat"),
        "process_id": pid,
        "thread_id": tid,
        "stream_id": (tid if stream is None else stream) if on_device else tid if lane == "stream" else None,
        "core_index": core if core is not None and -(2**31) <= core < 2**31 else None,
        "start_ns": start,
        "end_ns": start + span,
        "external_id": _integer(args.get("External id", args.get("external id"))),
        "correlation_id": _integer(args.get("correlation")),
        "sequence_id": _integer(args.get("nrt_sequence_id", args.get("nrta_seq_id"))),
        "execution_id": _integer(args.get("exec_id")),
        "model_id": args.get("neff_cache_key", args.get("model_id")),
        "moved_bytes": moved if on_device and kind in ("copy", "copy_in", "copy_out", "memory") else None,
        "attrs": args if args or event.get("args") is not None else None,
    }


def _integer(value: object) -> int | None:
    """An id that is a number, or text of one."""
    if value is None or isinstance(value, bool):
        return None
    try:
        return int(str(value))
    except ValueError:
        return None


def _number(value: object) -> int | None:
    if value is None:
        return None
    number = _integer(value)
    return text_id(str(value)) if number is None else number
