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
    heading = lines[lines.index("Operators that differ") + 1]
    assert heading.split()[-1] == "change"
    came = next(line for line in lines if line.startswith("aten::_fused_rms_norm "))
    assert came.split()[-2:] == ["+403.3", "µs"]
    assert "-" not in "".join(lines[lines.index("Measures") :]).replace("aten::", "").split("Operators")[0]


@pytest.mark.skipif(not CORPUS.exists(), reason="needs the shared corpus")
def test_where_only_the_host_changed_its_times_are_shown(tmp_path: Path) -> None:
    both = (CORPUS / "hta/compare/base.json.gz", CORPUS / "hta/compare/test.json.gz")
    text = tracekit("diff", *both, "--cache", tmp_path).stdout
    heading = text.splitlines()[text.splitlines().index("Operators that differ") + 1]
    assert "host A" in heading and "device A" not in heading
    assert "+0.0 %" not in text


def host_trace(path: Path, length_us: float, steps: int = 8) -> Path:
    """Steps of 30 operators that only the host runs, all of one length."""
    events, clock = [], 0.0
    for step in range(steps):
        begun = clock
        for number in range(30):
            place = {"ph": "X", "pid": 1, "tid": 1, "ts": clock, "dur": length_us + step % 3}
            events.append({**place, "cat": "cpu_op", "name": f"aten::op{number}|x"})
            clock += length_us + 5
        window = {"ph": "X", "pid": 1, "tid": 1, "ts": begun, "dur": clock - begun}
        events.append({**window, "cat": "user_annotation", "name": f"ProfilerStep#{step}"})
    path.write_text(json.dumps({"baseTimeNanoseconds": 1_767_225_600_000_000_000, "traceEvents": events}))
    return path


def test_markdown_of_host_work_shows_the_host_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    a, b = host_trace(tmp_path / "a.json", 100), host_trace(tmp_path / "b.json", 200)
    text = tracekit("diff", a, b, "--cache", tmp_path / "c", "--format", "markdown").stdout
    assert "| operator |  | host time | change |" in text and "executions" not in text
    rows = [line for line in text.splitlines() if line.startswith("| `aten::op")]
    assert len(rows) == 20 and all("| changed |" in row and "+100.0 µs |" in row for row in rows)
    assert "aten::op0\\|x" in text
    assert "10 more rows" in text
    same = tracekit("diff", a, a, "--cache", tmp_path / "c", "--format", "markdown").stdout
    assert "No operator changed by more than noise." in same


def test_counts_are_printed_as_counts(cache: Path) -> None:
    from tracekit.cli.sides import count

    assert [count(v) for v in (0.0, 1.0, 4_100.0, 2.5)] == ["0", "1", "4,100", "2.5"]


def test_a_gate_takes_no_limit_in_the_wrong_unit(cache: Path) -> None:
    for limit in (("--max-executions", "+20us"), ("--max-device-time", "5"), ("--max-device-time", "+-5%")):
        result = tracekit("gate", FUSED, NAIVE, "--cache", cache, *limit)
        assert result.returncode == 2 and limit[1] in result.stderr


def test_the_file_of_a_gate_has_the_names_of_the_options(cache: Path, tmp_path: Path) -> None:
    config = tmp_path / "perf.toml"
    config.write_text('[gate]\nmax-device-time = "+500%"\nmax_gap = { total = "+5%", not-dispatched = "+10%" }\n')
    result = tracekit("gate", FUSED, NAIVE, "--config", config, "--cache", cache)
    for measure in ("ok   device_time ", " gap ", " gap.not_dispatched "):
        assert measure in result.stdout
    config.write_text("[gate]\n")
    result = tracekit("gate", FUSED, NAIVE, "--config", config, "--cache", cache)
    assert result.returncode == 2 and "holds no limit" in result.stderr


def test_whole_captures_and_steps_are_not_compared(cache: Path, tmp_path: Path) -> None:
    trace = host_trace(tmp_path / "a.json", 100)
    tracekit("baseline", trace, "--all", "--cache", cache, "-o", tmp_path / "whole")
    for command in (("diff",), ("gate", "--max-window", "+5%")):
        result = tracekit(*command, tmp_path / "whole", trace, "--cache", cache)
        assert result.returncode == 1 and "cannot be compared" in result.stderr and "--all" in result.stderr
    result = tracekit("gate", tmp_path / "whole", trace, "--all", "--max-window", "+0", "--cache", cache)
    assert result.returncode == 0, result.stderr


def test_a_dash_is_no_file(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (
        ("baseline", FUSED, "-o", "-"),
        ("export", FUSED, "--to", "chrome", "-o", "-"),
        ("gate", FUSED, FUSED, "--max-executions", "+0", "--junit", "-"),
    ):
        result = tracekit(*command, "--cache", cache)
        assert result.returncode == 2 and "no file" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_report_on_a_baseline_is_refused(cache: Path, tmp_path: Path) -> None:
    tracekit("baseline", FUSED, "--cache", cache, "-o", tmp_path / "b")
    for paths in ((FUSED, "--compare", tmp_path / "b"), (tmp_path / "b",)):
        result = tracekit("report", *paths, "--cache", cache, "-o", tmp_path / "r.html")
        assert result.returncode == 1 and "no events to report on" in result.stderr
