"""Read ``capture.json``, which the capture tool writes beside each trace; see docs/capture.md.

Tolerant by design: any schema version, any missing or odd field. What is not there is null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MAX_BYTES = 16 * 1024 * 1024
"""A manifest is a few kilobytes; a larger file is something else."""

KNOWN_VERSION = 1


@dataclass(frozen=True)
class ManifestNote:
    """Something the capture had to say; fields as in ``tables.NOTES``."""

    severity: str
    code: str
    message: str
    hint: str | None = None


@dataclass(frozen=True)
class CaptureManifest:
    """The facts of ``capture.json`` that describe a session; fields as in ``tables.SESSIONS``."""

    name: str | None = None
    """Session as the capture named it: ``<instance>_pid_<pid>/<timestamp>``."""
    instance_id: str | None = None
    process_id: int | None = None
    rank: int | None = None
    world_size: int | None = None
    host_name: str | None = None
    instance_type: str | None = None
    versions_json: str | None = None
    labels_json: str | None = None
    capture_json: str | None = None
    notes: tuple[ManifestNote, ...] = ()


def read_manifest(path: Path) -> CaptureManifest | str:
    """The manifest, or one line that says why it cannot be read."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            return "too large for a capture manifest"
        fields = json.loads(text, parse_constant=lambda _: None)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    except (ValueError, RecursionError):
        return "not valid JSON"
    return manifest_of(fields) if isinstance(fields, dict) else "not a JSON object"


def manifest_of(fields: Mapping[str, object]) -> CaptureManifest:
    """Facts from the parsed JSON; a value of the wrong type counts as absent."""
    host, process, session = (_section(fields, name) for name in ("host", "process", "session"))
    return CaptureManifest(
        name=_text(session, "name"),
        instance_id=_text(host, "instance_id"),
        process_id=_whole(process, "pid", 2**63),
        rank=_whole(process, "rank", 2**31),
        world_size=_whole(process, "world_size", 2**31),
        host_name=_text(host, "hostname") or _text(host, "hostname_hash"),
        instance_type=_text(host, "instance_type"),
        versions_json=_compact(_section(fields, "versions")),
        labels_json=_compact({key: str(value) for key, value in _section(fields, "labels").items()}),
        capture_json=_compact(fields),
        notes=(*_version_note(fields), *_status_note(fields), *_notes(fields)),
    )


def _section(fields: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def _text(section: Mapping[str, object], name: str) -> str | None:
    value = section.get(name)
    return value if isinstance(value, str) and value else None


def _whole(section: Mapping[str, object], name: str, below: int) -> int | None:
    value = section.get(name)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below:
        return value
    return None


def _compact(section: Mapping[str, object]) -> str | None:
    """Compact JSON with sorted keys and ASCII only (safe for any byte the file held), or None if empty."""
    return json.dumps(section, sort_keys=True, separators=(",", ":")) if section else None


def _version_note(fields: Mapping[str, object]) -> tuple[ManifestNote, ...]:
    version = fields.get("schema_version")
    if version == KNOWN_VERSION:
        return ()
    shown = version if isinstance(version, int) else "unknown"
    return (
        ManifestNote(
            "info",
            "manifest_version",
            f"capture manifest has schema version {shown}, this tracekit knows {KNOWN_VERSION}; known fields are used",
            "update tracekit if facts are missing" if isinstance(version, int) and version > KNOWN_VERSION else None,
        ),
    )


def _status_note(fields: Mapping[str, object]) -> tuple[ManifestNote, ...]:
    status = _text(fields, "status")
    reason = _text(fields, "reason")
    if status in (None, "complete"):
        return ()
    if status == "running":
        message = "the capture never finished: the program was killed, or is still running"
        return (ManifestNote("warning", "capture_running", message, "capture fewer steps, or wait for the program"),)
    tail = f": {reason}" if reason else ""
    severity = "error" if status == "failed" else "warning"
    code = f"capture_{status}" if status in ("failed", "incomplete") else "capture_status"
    return (ManifestNote(severity, code, f"the capture ended as {status!r}{tail}"),)


def _notes(fields: Mapping[str, object]) -> tuple[ManifestNote, ...]:
    entries = fields.get("notes")
    if not isinstance(entries, list):
        return ()
    found = []
    for entry in entries[:1000]:
        if isinstance(entry, dict) and (message := _text(entry, "message")):
            severity = _text(entry, "severity")
            severity = severity if severity in ("error", "warning") else "info"
            code = _text(entry, "code") or "capture_note"
            found.append(ManifestNote(severity, code, message, _text(entry, "hint")))
    return tuple(found)
