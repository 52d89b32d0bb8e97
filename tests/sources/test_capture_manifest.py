"""``capture.json`` of any version and quality gives the facts it holds, and never an exception."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture.manifest import Manifest
from capture.manifest import write as write_manifest
from tracekit import tables
from tracekit.sources.capture_manifest import MAX_BYTES, CaptureManifest, manifest_of, read_manifest


def test_what_the_capture_tool_writes_is_read(tmp_path: Path) -> None:
    manifest = Manifest(
        tool={"name": "tracekit-capture", "version": "1"},
        host={"instance_id": "i-0a", "instance_type": "trn2.48xlarge", "hostname_hash": "abcdef012345"},
        versions={"torch": "2.9.1", "neuron_runtime": None},
        device={"kind": "neuron"},
        process={"pid": 4242, "rank": 3, "local_rank": 3, "world_size": 8},
        schedule={"unit": "step", "active": 2},
        session={"name": "i-0a_pid_4242/1796052700", "cycle": 0},
        labels={"commit": "4f2ab0c"},
        status="complete",
    )
    manifest.note("warning", "no_sync", "the last executions may be missing", "synchronize before stop")
    found = read_manifest(write_manifest(manifest, tmp_path))
    assert isinstance(found, CaptureManifest)
    assert (found.name, found.instance_id, found.process_id) == ("i-0a_pid_4242/1796052700", "i-0a", 4242)
    assert (found.rank, found.world_size, found.instance_type) == (3, 8, "trn2.48xlarge")
    assert found.host_name == "abcdef012345"
    assert json.loads(found.versions_json or "")["torch"] == "2.9.1"
    assert json.loads(found.labels_json or "") == {"commit": "4f2ab0c"}
    assert json.loads(found.capture_json or "")["schedule"] == {"unit": "step", "active": 2}
    assert [(n.severity, n.code, n.hint) for n in found.notes] == [("warning", "no_sync", "synchronize before stop")]


@pytest.mark.parametrize(
    ("status", "severity"),
    [("running", "warning"), ("incomplete", "warning"), ("failed", "error"), ("odd", "warning")],
)
def test_capture_that_did_not_end_well_is_noted(status: str, severity: str) -> None:
    (note,) = manifest_of({"schema_version": 1, "status": status, "reason": "disk full"}).notes
    assert note.severity == severity
    assert "disk full" in note.message or status == "running"


def test_newer_version_is_read_and_noted() -> None:
    found = manifest_of({"schema_version": 7, "process": {"pid": 5, "new": []}, "surprise": {}})
    assert found.process_id == 5
    assert [n.code for n in found.notes] == ["manifest_version"]
    assert found.notes[0].hint


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(b"", "not valid JSON", id="empty"),
        pytest.param(b'{"a": ', "not valid JSON", id="cut"),
        pytest.param(b"\xff\xfe\x00", "not valid JSON", id="binary"),
        pytest.param(b"[1]", "not a JSON object", id="array"),
        pytest.param(b"[" * 100_000, "not valid JSON", id="deep"),
        pytest.param(b" " * (MAX_BYTES + 1), "too large", id="large"),
    ],
)
def test_unreadable_manifest_is_one_line(tmp_path: Path, text: bytes, problem: str) -> None:
    path = tmp_path / "capture.json"
    path.write_bytes(text)
    found = read_manifest(path)
    assert isinstance(found, str)
    assert problem in found
    assert read_manifest(tmp_path / "none") == "cannot be read: No such file or directory"


def test_padding_and_numbers_that_are_none_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "capture.json"
    path.write_bytes(b'{"schema_version": 1, "options": {"x": NaN}}' + b" " * 500 + b"\n")
    found = read_manifest(path)
    assert isinstance(found, CaptureManifest)
    assert json.loads(found.capture_json or "")["options"] == {"x": None}


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_KEYS = st.sampled_from(
    ["schema_version", "status", "reason", "session", "host", "process", "versions", "labels", "notes"]
)
_INNER = st.dictionaries(
    st.sampled_from(["name", "pid", "rank", "world_size", "instance_id", "message", "severity"]), _VALUES
)


@given(st.dictionaries(_KEYS, st.one_of(_VALUES, _INNER, st.lists(_INNER, max_size=3))))
def test_any_object_is_read_without_trouble(fields: dict[str, object]) -> None:
    found = manifest_of(fields)
    assert found.process_id is None or 0 <= found.process_id < 2**63
    assert found.rank is None or 0 <= found.rank < 2**31
    assert all(n.severity in tables.SEVERITIES and n.message and n.code for n in found.notes)
