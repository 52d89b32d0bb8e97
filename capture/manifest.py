"""``capture.json``: what a capture was, beside the trace that it describes.

One file per session directory, that is beside each ``trace.json``. It is the contract between
``capture`` and ``tracekit``: plain JSON, flat sections, every value a string, an integer, a
boolean, null, or a list of those. An absent fact is null, never a made-up value. Readers ignore
sections and keys they do not know; ``schema_version`` rises only when a meaning changes.

========================== ======================================================================
``schema_version``         1
``tool``                   ``name`` ("tracekit-capture"), ``version``
``status``                 "running": written at start, so a killed run still says this;
                           "complete": every active step of the schedule was exported;
                           "incomplete": exported, or stopped, before the schedule ended;
                           "failed": the export itself failed
``reason``                 one line that explains a status other than "complete", else null
``session``                ``name`` ("<instance-id>_pid_<pid>/<timestamp>"), ``cycle`` (0 based)
``host``                   ``hostname_hash`` (first 12 hex digits of SHA-256), ``instance_id``,
                           ``instance_type``, ``platform``, ``cpu_count``, ``memory_bytes``
``versions``               ``python``, ``torch``, ``torch_neuronx``, ``neuronx_cc``,
                           ``neuron_runtime``, ``neuron_driver``, ``neuron_tools``, ``cuda``
``device``                 ``kind`` ("neuron", "privateuse1", "cuda", "cpu"), ``backend`` (torch's
                           name for it), ``name``, ``device_count``, ``core_count``,
                           ``logical_core_size`` (physical cores per logical core, LNC)
``process``                ``pid``, ``rank``, ``local_rank``, ``world_size``, ``run_id`` (same for
                           all ranks of one launch), ``rank_filter`` (null: all ranks profiled)
``schedule``               ``unit`` ("step", or "whole": the whole program as one window),
                           ``wait``, ``warmup``, ``active``, ``repeat`` (steps),
                           ``step_count`` (steps seen), ``recorded_step_count`` (in this trace)
``modes``                  ProfileMode names in use; empty off Neuron
``options``                the other options in use, by name
``env``                    environment variables of an allow list that were set; never secrets
``git``                    ``commit``, ``is_dirty`` of the working directory; both null outside git
``command``                argv; values of arguments that look secret are replaced by "***"
``labels``                 the user's own labels: strings by name
``clock``                  ``start_wall_ns``, ``start_monotonic_ns``, ``stop_wall_ns``,
                           ``stop_monotonic_ns``: each pair is read at the same moment (Unix ns
                           and CLOCK_MONOTONIC ns), to align host clocks
``files``                  ``path`` (relative to the directory), ``size_bytes``
``notes``                  ``severity`` ("error", "warning", "note"), ``code``, ``message``,
                           ``hint``: dropped options and what ``check`` found
========================== ======================================================================
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from capture.errors import CaptureError

SCHEMA_VERSION = 1
FILE_NAME = "capture.json"
# The first write is padded to this, so that the last one fits where the first one was, even on a full disk.
RESERVED_BYTES = 16 * 1024

Scalar = str | int | float | bool | None
Section = dict[str, Scalar]


@dataclass
class Manifest:
    """The content of one ``capture.json``; the module describes every field."""

    tool: Section
    host: Section
    versions: Section
    device: Section
    process: Section
    schedule: Section
    session: Section
    modes: list[str] = field(default_factory=list)
    options: Section = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    git: Section = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    clock: Section = field(default_factory=dict)
    files: list[dict[str, str | int]] = field(default_factory=list)
    notes: list[dict[str, str]] = field(default_factory=list)
    status: str = "running"
    reason: str | None = None
    schema_version: int = SCHEMA_VERSION

    def note(self, severity: str, code: str, message: str, hint: str = "") -> None:
        """Add a note, once."""
        entry = {"severity": severity, "code": code, "message": message, "hint": hint}
        if entry not in self.notes:
            self.notes.append(entry)

    def start_clock(self) -> None:
        """Read both clocks at the start of the capture."""
        self.clock = {**clock_pair("start"), "stop_wall_ns": None, "stop_monotonic_ns": None}

    def stop_clock(self) -> None:
        """Read both clocks at the end of the capture."""
        self.clock.update(clock_pair("stop"))


def clock_pair(which: str) -> Section:
    """Read the wall and the monotonic clock as one moment, in ns.

    The pair is taken a few times and the tightest one is kept: another thread may run in between.
    """
    best: tuple[int, int, int] | None = None
    for _ in range(5):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if best is None or after - before < best[0]:
            best = (after - before, wall, (before + after) // 2)
    assert best is not None
    return {f"{which}_wall_ns": best[1], f"{which}_monotonic_ns": best[2]}


def write(manifest: Manifest, directory: Path) -> Path:
    """Write ``capture.json`` so that a reader sees the old or the new one, never a part.

    On a full disk the file is rewritten in place, within the bytes reserved by the first write.

    Raises:
        OSError: the file can be written in neither way.
    """
    path = directory / FILE_NAME
    fields = {"schema_version": manifest.schema_version, **asdict(manifest)}
    text = json.dumps(fields, indent=1, ensure_ascii=True)
    data = text.encode().ljust(RESERVED_BYTES - 1) + b"\n"
    draft = directory / f".{FILE_NAME}.{os.getpid()}.part"
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        if not path.exists():
            raise  # there is no older one to write over
        _overwrite(path, data)
    return path


def _overwrite(path: Path, data: bytes) -> None:
    """Rewrite a file without asking for new blocks; too long a text loses its lists of notes and files."""
    size = path.stat().st_size
    if len(data) > size:
        fields = json.loads(data)
        fields["files"], fields["notes"] = [], fields["notes"][:1]
        data = json.dumps(fields).encode()
        if len(data) > size:
            raise OSError(f"{path}: no space left to rewrite it")
    with path.open("r+b") as file:
        file.write(data.ljust(size))


def read(directory: Path) -> Manifest:
    """Read the ``capture.json`` of a session directory.

    Unknown keys are ignored, missing sections are empty: an older or newer tool may have written it.

    Raises:
        CaptureError: there is none, or it is not a JSON object.
    """
    path = directory / FILE_NAME
    try:
        fields = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise CaptureError(f"{directory}: no {FILE_NAME}", hint="it was not captured with this tool") from error
    except (OSError, ValueError) as error:
        raise CaptureError(f"{path}: cannot be read: {error}", hint="capture again, or delete the file") from error
    if not isinstance(fields, dict):
        raise CaptureError(f"{path}: not a JSON object", hint="capture again, or delete the file")
    return _from_fields(fields)


def _from_fields(fields: dict[str, object]) -> Manifest:
    """Fit JSON of any version and quality into a manifest; what has the wrong type counts as absent."""
    empty = Manifest(tool={}, host={}, versions={}, device={}, process={}, schedule={}, session={})
    for name, value in asdict(empty).items():
        given = fields.get(name)
        expected = str if value is None else type(value)
        if isinstance(given, expected):
            setattr(empty, name, given)
    empty.notes = [note for note in empty.notes if isinstance(note, dict)]
    empty.files = [file for file in empty.files if isinstance(file, dict)]
    return empty
