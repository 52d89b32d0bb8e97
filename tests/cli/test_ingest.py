from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import assert_one_line, tracekit
from tests.shared_data import SAMPLES

FUSED = SAMPLES / "neuron" / "rms_fused" / "capture"


def test_ingest_again_is_a_no_op_and_info_shows_it(tmp_path: Path) -> None:
    first = tracekit("ingest", FUSED, "-o", tmp_path / "a", "--id", "fused", "--label", "commit=4f2a")
    assert first.returncode == 0 and "profile=fused" in first.stdout and first.stderr == ""
    again = tracekit("ingest", FUSED, "-o", tmp_path / "a", "--id", "fused", "--label", "commit=4f2a")
    assert "already stored" in again.stdout
    info = tracekit("info", tmp_path / "a")
    assert info.returncode == 0
    for word in ("fused", "hardware", "execution", "ntrace.pb", "1 session"[:1]):
        assert word in info.stdout


def test_what_a_capture_lost_is_said(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    text = '{"traceEvents": [{"ph":"X","name":"a","ts":1,"dur":1,"pid":1,"tid":1},{"ph":"X","name":"b","ts":'
    path.write_text(text)
    for _ in range(2):
        result = tracekit("ingest", path, "-o", tmp_path / "a")
        assert result.returncode == 0
        assert result.stderr.startswith(
            f"warning: t.json: 1 event lost: the file ends too soon (byte {text.rindex('{')}: "
        )


@pytest.mark.parametrize("id_", ["a b", "a/../b"])
def test_a_name_is_taken_as_it_is_or_refused(tmp_path: Path, id_: str) -> None:
    result = tracekit("ingest", FUSED, "-o", tmp_path / "a", "--id", id_)
    assert_one_line(result)
    assert "letters, digits, dots, dashes and underscores" in result.stderr


def test_info_as_json_has_exact_counts(tmp_path: Path) -> None:
    import json

    result = tracekit("info", FUSED, "--cache", tmp_path, "--format", "json")
    rows = json.loads(result.stdout)
    executions = [r["event_count"] for r in rows if (r["lane"], r["kind"]) == ("hardware", "execution")]
    assert executions == [2]


@pytest.mark.parametrize("label", ["commit", "=x"])
def test_bad_labels_are_wrong_usage(tmp_path: Path, label: str) -> None:
    result = tracekit("ingest", FUSED, "-o", tmp_path / "a", "--label", label)
    assert result.returncode == 2 and "KEY=VALUE" in result.stderr


def test_archive_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert_one_line(tracekit("ingest", FUSED, "-o", tmp_path / "file" / "archive"))


def test_newer_archive_is_explained(tmp_path: Path) -> None:
    tracekit("ingest", FUSED, "-o", tmp_path, "--id", "x")
    manifest = tmp_path / "profile=x" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"schema_version": 1', '"schema_version": 99'))
    result = tracekit("info", tmp_path)
    assert_one_line(result)
    assert "upgrade tracekit" in result.stderr
