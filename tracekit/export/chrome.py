"""Chrome trace JSON: what chrome://tracing, Perfetto and the project's own reader open.

A profile of several processes is a directory with one trace per session, named so that the sessions get the same names
again. Reading an export back gives the same rows as the profile's ``traces`` had:

* ``threads``, ``flows``, ``samples``: every row and column; of samples that no Chrome trace gave, core and unit stand
  in ``cat``.
* primary ``events``, of whatever source: every column but ``event_id`` (the order is kept). What no Chrome trace
  spelled carries its source, lane and kind in ``cat`` and its columns in ``args``, and its ``source`` comes back.
* events that are not primary, because a better source describes them too, are left out.

Times are exact: microseconds with three decimals from ``baseTimeNanoseconds`` on.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import BinaryIO

import polars as pl

from tracekit.archive import slug
from tracekit.export import _chrome_lines as lines
from tracekit.export.base import Export, Progress, batches
from tracekit.metrics.base import Inputs

_LIMIT_NS = 4 * 10**18
_MATCHED = 10**9
"""A base of our own is a whole number of these (seconds)."""


def write(inputs: Inputs, path: Path, progress: Progress) -> list[str]:
    """Write a profile as one trace, or as a directory with one trace per session.

    Args:
        inputs: ``events``, ``sessions``, ``threads``, ``flows``, ``samples``.
        path: the file, or the directory.
        progress: told how many rows of which table and session are written.

    Returns:
        What was left out.
    """
    several = is_directory(inputs)
    sessions = inputs.sessions.sort("session").collect().to_dicts()
    if not sessions:
        path.write_bytes(b'{"traceEvents":[\n]}\n')
    for session in sessions:
        file = path / file_name(session["session"]) if several else path
        file.parent.mkdir(parents=True, exist_ok=True)
        _write_session(inputs, session, file, progress)
    hidden = int(inputs.events.select((~pl.col("is_primary")).sum()).collect().item() or 0)
    return [f"{hidden:,} events that a better source also describes are left out"] if hidden else []


def is_directory(inputs: Inputs) -> bool:
    """Whether the profile has several sessions: a Chrome trace has room for one."""
    return int(inputs.sessions.select(pl.len()).collect().item()) > 1


def file_name(session: str) -> Path:
    """Where the trace of a session lies, relative to the directory of all."""
    parts = [slug(part) for part in session.split("/")]
    return Path(*parts, "trace.json") if "_pid_" in session else Path(*parts).with_name(f"{parts[-1]}.json")


def _write_session(inputs: Inputs, session: dict[str, object], path: Path, progress: Progress) -> None:
    name = str(session["session"])
    here = pl.col("session") == name
    threads, flows, samples = (f.filter(here) for f in (inputs.threads, inputs.flows, inputs.samples))
    events = inputs.events.filter(here, "is_primary")
    base_ns = _base(session, events)
    labels = lines.labelled(threads).collect().lazy()
    is_allocation = (pl.col("phase") == "instant") & (pl.col("name") == "[memory]") & (pl.col("source") == "kineto")
    has_allocator = bool(events.select(is_allocation.any()).collect().item())
    with path.open("wb") as file:
        begun = file.write(_header(session, base_ns))
        _put(file, lines.threads(threads).collect())
        for part in batches(events, f"{name} events", progress):
            _put(file, lines.events(part.lazy(), labels, base_ns).collect())
        for part in batches(flows, f"{name} flows", progress):
            _put(file, lines.flows(part.lazy(), labels, base_ns).collect())
        _put(file, lines.samples(samples, labels, base_ns, has_allocator=has_allocator).collect())
        if file.tell() > begun:
            file.seek(-len(lines.SEPARATOR), os.SEEK_END)
            file.truncate()
        file.write(b"\n]}\n")


def _put(file: BinaryIO, rows: pl.DataFrame) -> None:
    rows.write_csv(file, include_header=False, quote_style="never", line_terminator=lines.SEPARATOR)


def _base(session: dict[str, object], events: pl.LazyFrame) -> int:
    """Time zero: the one the trace had, or a whole second before the first event."""
    known = _members(session).get("baseTimeNanoseconds")
    if isinstance(known, str) and known.isdigit():
        known = int(known)
    first = events.select(pl.col("start_ns").min()).collect().item() or 0
    if isinstance(known, int) and 0 < known < _LIMIT_NS and known <= first:
        return known
    return max(0, first // _MATCHED * _MATCHED)


def _members(session: dict[str, object]) -> dict[str, object]:
    """Members of the trace's own header; empty if there is none."""
    try:
        found = json.loads(str(session["capture_json"] or "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _header(session: dict[str, object], base_ns: int) -> bytes:
    """The header that the trace had, with rank and host if it did not say them, up to the first event."""
    members = {"displayTimeUnit": "ms", **_members(session)}
    members.pop("traceEvents", None)
    if session["rank"] is not None:
        job = {"rank": session["rank"], "world_size": session["world_size"]}
        members.setdefault("distributedInfo", {key: value for key, value in job.items() if value is not None})
    if session["host_name"]:
        members.setdefault("host_name", session["host_name"])
    members["baseTimeNanoseconds"] = base_ns
    text = json.dumps(members, ensure_ascii=False, separators=(",", ":"))
    return text[:-1].encode() + b',"traceEvents":[\n'


EXPORT = Export(
    "chrome", "Chrome trace JSON (chrome://tracing); a directory for several processes.", ".json", write, is_directory
)
