"""The made-up Neuron captures beside the repository, and their truth."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest

from tests.sources.memory_sink import MemorySink, artifact
from tracekit.sources import source

CAPTURES = (Path(__file__).resolve().parents[2] / "../shared/neuron").resolve()
NAMES = ("rms_naive", "rms_compiled", "rms_fused", "train_2proc")
INSTANCE = "i-0123456789abcdef0"
FORMATS = ("explorer", "system_json", "fetch_json", "ntrace")
_PATTERNS = {
    "explorer": "explorer/SystemProfileEvents*.parquet",
    "system_json": "system_profile.json",
    "fetch_json": "fetch_pid_*.json",
    "ntrace": "capture/*/*/ntrace.pb",
    "kineto": "capture/*/*/trace.json",
}
requires_captures = pytest.mark.skipif(not CAPTURES.is_dir(), reason="the shared Neuron captures are not here")


def files(capture: str, form: str) -> list[Path]:
    """The files of one format of a capture."""
    return sorted((CAPTURES / capture).glob(_PATTERNS[form]))


def read_file(path: Path, form: str) -> MemorySink:
    """Read one file as discovery would hand it over: its process from the names on its path."""
    process = re.search(r"pid_(\d+)", str(path))
    process_id = int(process[1]) if process else None
    session = f"{INSTANCE}_pid_{process_id}"
    sink = MemorySink(form, session=session)
    source(form).read(artifact(path, session=session, process_id=process_id, instance_id=INSTANCE), sink)
    return sink


def read_capture(capture: str, form: str) -> pl.DataFrame:
    """All events of a capture in one format."""
    return pl.concat([read_file(path, form).events_frame() for path in files(capture, form)])


def truth(capture: str) -> list[dict[str, object]]:
    """One row per chain of ``truth.json``, with its process."""
    processes = json.loads((CAPTURES / capture / "truth.json").read_text())["processes"]
    return [chain | {"process_id": p["process_id"]} for p in processes for chain in p["chains"]]
