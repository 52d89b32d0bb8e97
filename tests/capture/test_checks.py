"""Each thing that check knows, in a directory made for it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from capture import checks, host, manifest
from capture.errors import CaptureError
from capture.text import report_lines

Make = Callable[..., manifest.Manifest]
DRIVER = {"ph": "X", "cat": "privateuse1_driver", "name": "aten::mul", "ts": 1, "dur": 2}
HASH = "14382885777943380728"


@pytest.fixture
def good(tmp_path: Path, make_manifest: Make) -> Path:
    """A whole session of the documented layout."""
    directory = tmp_path / "out" / "i-0123456789abcdef0_pid_1" / "1796052700000000000"
    directory.mkdir(parents=True)
    (directory / "trace.json").write_text(json.dumps({"traceEvents": [DRIVER], "traceName": "t"}))
    for name in ("ntrace.pb", "trace_info.pb", f"neff_{HASH}_vnc_0.neff", "profile_nc_0_session_0.ntff"):
        (directory / name).write_bytes(b"x")
    manifest.write(make_manifest(), directory)
    return directory


def found(directory: Path) -> dict[str, checks.Finding]:
    report = checks.check(directory)
    assert all(finding.fix for finding in report.findings if finding.severity != "note")
    assert report_lines(report)
    return {finding.code: finding for finding in report.findings}


def test_a_good_capture_has_no_findings(good: Path) -> None:
    assert found(good.parents[1]) == {}


def test_an_absent_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="no such directory"):
        checks.check(tmp_path / "nowhere")


def empty_every_ntff(good: Path) -> None:
    (good / "profile_nc_0_session_0.ntff").write_bytes(b"")


def empty_one_ntff(good: Path) -> None:
    (good / "profile_nc_1_session_0.ntff").write_bytes(b"")


def remove_ntff(good: Path) -> None:
    (good / "profile_nc_0_session_0.ntff").unlink()


def remove_neff(good: Path) -> None:
    (good / f"neff_{HASH}_vnc_0.neff").unlink()


def empty_neff(good: Path) -> None:
    (good / f"neff_{HASH}_vnc_0.neff").write_bytes(b"")


def other_hash(good: Path) -> None:
    (good / "99_instid_0_vnc_0.ntff").write_bytes(b"x")


def remove_ntrace(good: Path) -> None:
    (good / "ntrace.pb").unlink()


def remove_trace(good: Path) -> None:
    (good / "trace.json").unlink()


def empty_trace(good: Path) -> None:
    (good / "trace.json").write_bytes(b"")


def cut_trace(good: Path) -> None:
    text = (good / "trace.json").read_text()
    (good / "trace.json").write_text(text.replace("}]", "},"))


def cut_before_any_event(good: Path) -> None:
    (good / "trace.json").write_text('{"traceEvents": [')


def no_events(good: Path) -> None:
    (good / "trace.json").write_text('{"traceEvents": []}')


def no_device_events(good: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mul"}
    (good / "trace.json").write_text(json.dumps({"traceEvents": [event]}))


def damage_manifest(good: Path) -> None:
    (good / manifest.FILE_NAME).write_text("{")


@pytest.mark.parametrize(
    ("damage", "code", "severity"),
    [
        pytest.param(empty_every_ntff, "ntff-empty", "error"),
        pytest.param(empty_one_ntff, "ntff-empty", "note"),
        pytest.param(remove_ntff, "ntff-missing", "error"),
        pytest.param(remove_neff, "neff-missing", "error"),
        pytest.param(empty_neff, "neff-empty", "error"),
        pytest.param(other_hash, "neff-missing", "error"),
        pytest.param(remove_ntrace, "runtime-missing", "error"),
        pytest.param(remove_trace, "trace-missing", "error"),
        pytest.param(empty_trace, "trace-empty", "error"),
        pytest.param(cut_trace, "trace-cut", "warning"),
        pytest.param(cut_before_any_event, "trace-cut", "error"),
        pytest.param(no_events, "trace-empty", "error"),
        pytest.param(no_device_events, "no-device-events", "warning"),
        pytest.param(damage_manifest, "manifest-unreadable", "warning"),
    ],
)
def test_damage_is_named(good: Path, damage: Callable[[Path], None], code: str, severity: str) -> None:
    damage(good)
    findings = found(good.parents[1])
    assert findings[code].severity == severity
    assert checks.check(good.parents[1]).is_good == (severity != "error")


def test_no_device_events_at_all_is_an_error(good: Path) -> None:
    no_device_events(good)
    remove_ntrace(good)
    assert found(good)["no-device-events"].severity == "error"


@pytest.mark.parametrize(
    ("status", "reason", "code", "word"),
    [
        ("failed", "the disk is full", "export-failed", "free some space"),
        ("incomplete", "SIGTERM: 0 of 1 active steps", "incomplete", "reach the end"),
        ("incomplete", "stopped after 2 steps: 0 of 1 active steps", "incomplete", "at least 4 steps"),
    ],
)
def test_status_of_the_manifest(
    good: Path, make_manifest: Make, status: str, reason: str, code: str, word: str
) -> None:
    manifest.write(make_manifest(status=status, reason=reason), good)
    finding = found(good)[code]
    assert reason in finding.problem and word in finding.fix


def test_a_running_capture_is_told_from_a_killed_one(good: Path, make_manifest: Make) -> None:
    here = {"hostname_hash": host.hostname_hash()}
    manifest.write(make_manifest(status="running", process={"pid": os.getppid()}, host=here), good)
    assert found(good)["still-running"].severity == "note"
    manifest.write(make_manifest(status="running", process={"pid": 2**22 + 1}, host=here), good)
    assert found(good)["killed"].severity == "warning"
    remove_trace(good)
    assert found(good)["killed"].severity == "error"


def test_runtime_only_capture_without_manifest_is_normal(tmp_path: Path) -> None:
    directory = tmp_path / "out" / "i-0123456789abcdef0_pid_210229"
    directory.mkdir(parents=True)
    for name in (f"neff_{HASH}.neff", f"{HASH}_instid_0_vnc_0.ntff", "ntrace.pb", "trace_info.pb"):
        (directory / name).write_bytes(b"x")
    report = checks.check(tmp_path / "out")
    assert report.is_good
    assert {finding.severity for finding in report.findings} == {"note"}


def test_missing_ranks_are_named_per_job_and_filtered_ones_are_not(good: Path, make_manifest: Make) -> None:
    process = {"pid": 1, "rank": 0, "world_size": 8, "run_id": "job", "rank_filter": "0-2"}
    manifest.write(make_manifest(process=process), good)
    assert found(good)["rank-missing"].problem == "1 of 3 ranks are here; missing: 1, 2"
    manifest.write(make_manifest(process={**process, "rank_filter": "0"}), good)
    assert found(good) == {}


def test_empty_directory(tmp_path: Path) -> None:
    assert found(tmp_path)["empty-directory"].severity == "error"


def test_full_disk(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capture.layout.free_bytes", lambda directory: 1024)
    assert found(good)["disk-full"].severity == "error"


@pytest.mark.parametrize("name", ["rms_naive", "rms_fused", "rms_compiled", "train_2proc"])
def test_made_up_neuron_captures_are_fit(name: str) -> None:
    directory = Path(__file__).resolve().parents[2] / "../shared/neuron" / name / "capture"
    if not directory.is_dir():
        pytest.skip("no shared data here")
    report = checks.check(directory)
    assert report.is_good
    assert {finding.code for finding in report.findings} <= {"manifest-missing", "ntff-empty", "trace-missing"}
