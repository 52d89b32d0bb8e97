from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.command import assert_fits, tracekit
from tests.shared_data import CORPUS, SAMPLES

NAIVE, FUSED = (SAMPLES / "neuron" / name / "capture" for name in ("rms_naive", "rms_fused"))


def test_diff_says_what_happened(cache: Path) -> None:
    result = tracekit("diff", NAIVE, FUSED, "--cache", cache)
    assert result.returncode == 0, result.stderr
    for words in ("2,355.0 → 403.3 µs (−82.9 %)", "executions: 6 → 1", "aten::_fused_rms_norm"):
        assert words in result.stdout
    assert_fits(result.stdout)


def test_diff_formats(cache: Path, tmp_path: Path) -> None:
    document = json.loads(tracekit("diff", NAIVE, FUSED, "--cache", cache, "--format", "json").stdout)
    assert sum(r["device_change_ns"] for r in document["ops"]) == 403_300 - 2_355_000
    markdown = tracekit("diff", NAIVE, FUSED, "--cache", cache, "--format", "markdown").stdout
    assert markdown.startswith("### tracekit") and "| executions | 6 | 1 |" in markdown
    tracekit("diff", NAIVE, FUSED, "--cache", cache, "--format", "csv", "--table", "ops", "-o", tmp_path / "ops.csv")
    assert "aten::rsqrt" in (tmp_path / "ops.csv").read_text()


def test_gate_with_a_baseline_file(cache: Path, tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.json"
    made = tracekit("baseline", FUSED, "--cache", cache, "-o", baseline)
    assert made.returncode == 0 and "baseline of" in made.stdout
    limits = ("--max-device-time", "+5%", "--max-executions", "+0", "--cache", cache)
    failing = tracekit("gate", baseline, NAIVE, *limits, "--github", "--junit", tmp_path / "gate.xml")
    assert failing.returncode == 1
    assert "FAIL device_time" in failing.stdout and "::error title=tracekit gate::" in failing.stdout
    suite = ElementTree.parse(tmp_path / "gate.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "2")
    passing = tracekit("gate", baseline, FUSED, *limits)
    assert passing.returncode == 0 and "FAIL" not in passing.stdout


def test_gate_from_a_configuration_file(cache: Path, tmp_path: Path) -> None:
    config = tmp_path / "perf.toml"
    config.write_text('[gate]\nexecutions = "+0"\ngap = { runtime = "+1us" }\n')
    result = tracekit("gate", FUSED, NAIVE, "--config", config, "--cache", cache)
    assert result.returncode == 1 and "gap.runtime" in result.stdout
    config.write_text("[other]\n")
    result = tracekit("gate", FUSED, NAIVE, "--config", config, "--cache", cache)
    assert result.returncode == 2 and "no [gate] table" in result.stderr


def test_gate_needs_a_limit_that_exists(cache: Path) -> None:
    assert tracekit("gate", FUSED, NAIVE, "--cache", cache).returncode == 2
    for wrong in (("--max", "beauty=+1%"), ("--max-executions", "a few")):
        result = tracekit("gate", FUSED, NAIVE, "--cache", cache, *wrong)
        assert result.returncode == 2 and ("beauty" in result.stderr or "a few" in result.stderr)


def test_the_screen_shows_every_change_with_its_sign(tmp_path: Path) -> None:
    naive, fused = (SAMPLES / "neuron" / name / "capture" for name in ("rms_naive", "rms_fused"))
    lines = tracekit("diff", naive, fused, "--cache", tmp_path).stdout.splitlines()
    device = next(line for line in lines if line.startswith("device_time "))
    assert device.split()[-4:] == ["ms", "−82.9", "%", "unproven"]
    heading = lines[lines.index("Operators that changed") + 1]
    assert heading.split()[-1] == "change"
    came = next(line for line in lines if line.startswith("aten::_fused_rms_norm "))
    assert came.split()[-2:] == ["+403.3", "µs"]
    assert "-" not in "".join(lines[lines.index("Measures") :]).replace("aten::", "").split("Operators")[0]


@pytest.mark.skipif(not CORPUS.exists(), reason="needs the shared corpus")
def test_where_only_the_host_changed_its_times_are_shown(tmp_path: Path) -> None:
    both = (CORPUS / "hta/compare/base.json.gz", CORPUS / "hta/compare/test.json.gz")
    text = tracekit("diff", *both, "--cache", tmp_path).stdout
    heading = text.splitlines()[text.splitlines().index("Operators that changed") + 1]
    assert "host A" in heading and "device A" not in heading
    assert "+0.0 %" not in text
