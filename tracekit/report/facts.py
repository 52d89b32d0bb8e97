"""Facts about the capture and remarks about its data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone

import polars as pl

from tracekit.metrics.base import Inputs
from tracekit.report.model import FactGroup, NoteLine
from tracekit.report.results import Results
from tracekit.report.words import duration
from tracekit.tables import SESSIONS, SEVERITIES

NOTE_LIMIT = 200
_SESSION_LIMIT = 16
_OWN_LINE = ("session", "first_ns", "last_ns", "versions_json", "labels_json", "capture_json")


def notes(results: Results, extra: list[NoteLine]) -> list[NoteLine]:
    """Remarks about the data, the gravest first, with those of the report itself."""
    rows = results.inputs.notes.collect()
    order = {severity: rank for rank, severity in enumerate(reversed(SEVERITIES))}
    ranked = rows.sort(pl.col("severity").replace_strict(order, default=9, return_dtype=pl.Int64), maintain_order=True)
    lines = [
        NoteLine(r["severity"], r["code"], r["message"], r["hint"] or "", _where(r), r["event_count"])
        for r in ranked.head(NOTE_LIMIT).to_dicts()
    ]
    failed = [
        NoteLine("warning", "metric_failed", f"The metric {name} could not be computed: {problem}", "", "", None)
        for name, problem in results.failed.items()
    ]
    if rows.height > NOTE_LIMIT:
        extra = [
            NoteLine(
                "info", "more_notes", f"{rows.height - NOTE_LIMIT:,} more notes are in the table notes.", "", "", None
            ),
            *extra,
        ]
    return lines + failed + extra


def _where(note: Mapping[str, object]) -> str:
    path, session = note["path"], note["session"]
    if path is None or session is None or str(session) in str(path):
        return str(path if path is not None else session or "")
    return f"{path} · {session}"


def facts(inputs: Inputs, about: Mapping[str, str]) -> list[FactGroup]:
    """What is known about each process: a group per session, after one about the profile."""
    rows = inputs.sessions.sort("rank", "session", nulls_last=True).collect()
    counts = (
        inputs.events.group_by("session", "lane", "source", "is_primary")
        .len()
        .sort("session", "lane", "source")
        .collect()
    )
    groups = [FactGroup("Profile", [(k, v) for k, v in about.items() if v])] if about else []
    for row in rows.head(_SESSION_LIMIT).to_dicts():
        own = counts.filter(pl.col("session") == row["session"])
        groups.append(FactGroup(f"Process {row['session']}", [*_session_facts(row), *_sources(own)]))
    if rows.height > _SESSION_LIMIT:
        groups.append(FactGroup("More", [("processes", f"{rows.height - _SESSION_LIMIT:,} more are not listed")]))
    return groups


def _session_facts(row: Mapping[str, object]) -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    for column in SESSIONS.columns:
        value = row.get(column.name)
        if value is None or column.name in _OWN_LINE:
            continue
        name = column.name.removesuffix("_ns").replace("_", " ")
        out.append((name, duration(value) if column.unit == "ns" and isinstance(value, int) else str(value)))
    first, last = row.get("first_ns"), row.get("last_ns")
    if isinstance(first, int) and isinstance(last, int):
        out += [("first event", moment(first)), ("length", duration(last - first))]
    for name in ("versions_json", "labels_json"):
        out += _members(row.get(name), name.removesuffix("s_json"))
    return out


def _members(text: object, prefix: str) -> list[tuple[str, str]]:
    """Members of a JSON object as facts; text that is no object is shown as it is."""
    if not isinstance(text, str):
        return []
    try:
        members = json.loads(text)
    except ValueError:
        return [(prefix, text)]
    if not isinstance(members, dict):
        return [(prefix, text)]
    return [
        (f"{prefix} {key}", value if isinstance(value, str) else json.dumps(value)) for key, value in members.items()
    ]


def _sources(counts: pl.DataFrame) -> list[tuple[str, str]]:
    out = []
    for row in counts.to_dicts():
        used = "" if row["is_primary"] else ", not used: a better source describes it"
        out.append((f"lane {row['lane']}", f"{row['len']:,} events from {row['source']}{used}"))
    return out


def moment(ns: int) -> str:
    """A moment in UTC, to the microsecond."""
    try:
        at = datetime.fromtimestamp(ns // 10**9, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return f"{ns} ns since 1970"
    return f"{at:%Y-%m-%d %H:%M:%S}.{ns % 10**9 // 1000:06d} UTC"
