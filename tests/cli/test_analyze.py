from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import assert_fits, assert_one_line, tracekit
from tests.shared_data import CORPUS, NEURON, SAMPLES

INPUTS = [
    *sorted(p / "capture" for p in (SAMPLES / "neuron").iterdir() if p.is_dir()),
    *sorted(p for p in (SAMPLES / "cpu").iterdir() if p.is_dir()),
]
SHARED = [NEURON / "train_2proc" / "capture", CORPUS / "hta/mtia_inference.json.gz", CORPUS / "hta/two_ranks"]


@pytest.mark.parametrize("path", [*INPUTS, *(p for p in SHARED if p.exists())], ids=lambda p: "-".join(p.parts[-2:]))
def test_every_input_gets_an_answer_in_80_columns(path: Path, cache: Path, tmp_path: Path) -> None:
    result = tracekit("analyze", path, "--cache", cache)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    head = result.stdout.splitlines()[0]
    assert head.startswith(("Device-bound", "Host-bound", "Idle device", "No device work")), head
    assert_fits("\n".join(result.stdout.splitlines()[:-1]))
    assert "\x1b" not in result.stdout
    assert not list(tmp_path.iterdir())


def test_naive_rmsnorm_reads_as_it_should(cache: Path) -> None:
    text = tracekit("analyze", SAMPLES / "neuron" / "rms_naive" / "capture", "--cache", cache).stdout
    assert "torch.nn.functional.rms_norm" in " ".join(text.split())
    assert "49.4 %" in text
    assert "Capture: fine" in text


def test_json_holds_every_metric_exactly(cache: Path, tmp_path: Path) -> None:
    out = tmp_path / "answer.json"
    result = tracekit("analyze", SAMPLES / "neuron" / "rms_naive" / "capture", "--cache", cache, "-o", out)
    assert (result.returncode, result.stdout) == (0, "")
    document = json.loads(out.read_text())
    assert document["metrics"]["devices"][0]["busy_ns"] == 2_355_000
    assert sum(row["device_ns"] for row in document["metrics"]["work"]) == 2_355_000
    assert document["answer"] and document["doctor"] == []


def test_the_user_is_told_where_tables_are_kept(tmp_path: Path) -> None:
    result = tracekit("analyze", SAMPLES / "neuron" / "rms_fused" / "capture", cache=tmp_path)
    assert result.returncode == 0
    kept = tmp_path / "tracekit" / "profiles"
    assert str(kept) in result.stderr.replace("\n", "")
    assert [p.name.startswith("profile=") for p in kept.iterdir()] == [True]


@pytest.mark.parametrize("arguments", [("--step", "99"), ("--profile", "nothing")])
def test_what_is_not_there_is_one_line(cache: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    path = SAMPLES / "neuron" / "rms_fused" / "capture"
    if arguments[0] == "--profile":
        tracekit("ingest", path, "-o", tmp_path / "archive")
        path = tmp_path / "archive"
    assert_one_line(tracekit("analyze", path, "--cache", cache, *arguments))


@pytest.mark.parametrize(
    "content", [b"", b"text", b"\x1f\x8b broken", b'{"a": 1}'], ids=["empty", "text", "gzip", "object"]
)
def test_bad_input_is_one_line_and_exit_1(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad\x1b[31m.json").write_bytes(content)
    result = tracekit("analyze", tmp_path / "bad\x1b[31m.json", "--cache", tmp_path / "cache")
    assert_one_line(result)
    assert "\x1b" not in result.stderr
    assert not (tmp_path / "cache").exists() or not list((tmp_path / "cache").iterdir())


def test_missing_directory_and_empty_directory_are_one_line(tmp_path: Path) -> None:
    assert_one_line(tracekit("analyze", tmp_path / "nothing"))
    assert_one_line(tracekit("analyze", tmp_path))


def test_wrong_usage_is_exit_2(tmp_path: Path) -> None:
    assert tracekit("analyze").returncode == 2
    assert tracekit("analyze", tmp_path, "--step", "1", "--all").returncode in (1, 2)
    assert tracekit("nonsense").returncode == 2


def test_files_without_a_trace_are_nothing_to_measure(cache: Path, tmp_path: Path) -> None:
    """A directory of NEFFs only: no sentence about steps of no process; what to do is said."""
    (tmp_path / "neff_10000000000000005219_vnc_0.neff").write_bytes(b"graph")
    result = tracekit("analyze", tmp_path, "--cache", cache)
    text = " ".join(result.stdout.split())
    assert text.startswith("Nothing to measure")
    assert "0 processes" not in text
    assert "only 1 NEFF file and 0 NTFF files" in text
    assert "capture with torch.profiler" in text and "neuron-explorer view" in text
    assert result.returncode == 1
    assert tracekit("analyze", tmp_path, "--cache", cache, "--format", "json").returncode == 1


def test_gaps_are_not_called_idle_since_collectives_and_copies_may_fill_them(cache: Path) -> None:
    text = " ".join(tracekit("analyze", SAMPLES / "neuron" / "rms_naive" / "capture", "--cache", cache).stdout.split())
    assert "5 gaps between executions last 140.0 µs in all; 53.6 % of that is “runtime”" in text


def test_gaps_are_headed_by_what_they_are_grouped_by(cache: Path) -> None:
    path = SAMPLES / "neuron" / "rms_naive" / "capture"
    lines = tracekit("analyze", path, "--cache", cache).stdout.splitlines()
    heading = lines[lines.index("Gaps between executions, by cause") + 1]
    assert heading.split()[:3] == ["core", "index", "cause"]
    for by in ("op", "host", "size"):
        shown = tracekit("show", "gaps", path, "--cache", cache, "--by", by).stdout.splitlines()
        assert by in shown[0].split() and "group" not in shown[0]


def test_a_trace_of_the_host_alone_shows_no_device_time(cache: Path) -> None:
    text = tracekit("analyze", SAMPLES / "cpu" / "rms_naive", "--cache", cache).stdout
    assert "self cpu" in text
    assert "self device" not in text


def test_a_device_without_steps_is_measured_from_its_first_to_its_last_work_and_says_so(
    cache: Path, tmp_path: Path
) -> None:
    trace = '{"traceEvents":[{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":10,"dur":5,"args":{"device":0}}]}'
    (tmp_path / "trace.json").write_text(trace)
    assert "Devices, each from its first to its last work" in tracekit("analyze", tmp_path, "--cache", cache).stdout
    marked = tracekit("analyze", SAMPLES / "neuron" / "rms_naive" / "capture", "--cache", cache).stdout
    assert "\nDevices\n" in marked


def test_a_trace_of_other_tools_says_where_to_look(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text('{"traceEvents":[{"ph":"X","name":"f","pid":1,"tid":7,"ts":10,"dur":5}]}')
    assert "no operators and no device work: tracekit info" in tracekit("analyze", tmp_path, "--cache", cache).stdout


def test_a_stored_profile_without_its_manifest_is_named(cache: Path, tmp_path: Path) -> None:
    source = SAMPLES / "neuron" / "rms_naive" / "capture"
    tracekit("ingest", source, "-o", tmp_path / "archive", "--id", "one")
    place = tmp_path / "archive" / "profile=one"
    (place / "manifest.json").unlink()
    result = tracekit("analyze", place, "--cache", cache)
    assert_one_line(result)
    assert "without its manifest.json" in result.stderr


KERNEL = "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, int>(int, int)"


def gpu_trace(path: Path, *kernels: tuple[float, float, str], until: float) -> Path:
    rows = [
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": {"device": 0}}
        for ts, dur, name in kernels
    ]
    rows.append({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": until})
    path.write_text(json.dumps({"traceEvents": rows}))
    return path


def test_idle_time_around_the_work_of_a_device_is_told(cache: Path, tmp_path: Path) -> None:
    trace = gpu_trace(tmp_path / "t.json", (200, 100, KERNEL), (400, 100, "k"), until=1_000)
    text = " ".join(tracekit("analyze", trace, "--cache", cache).stdout.split())
    assert "One gap between executions lasts 100.0 µs" in text
    assert "Another 700.0 µs pass before the device's first work and after its last." in text
    assert "vectorized_elementwise_kernel<…> 50.0 %" in text


def test_negligible_gaps_are_not_taken_apart(cache: Path, tmp_path: Path) -> None:
    trace = gpu_trace(tmp_path / "t.json", (0, 499.5, "k"), (500, 500, "k"), until=1_000)
    text = tracekit("analyze", trace, "--cache", cache).stdout
    assert "hardly waits between executions: 500 ns in all" in text
    assert "Another" not in text.split("\n\n")[0]


@pytest.mark.skipif(not CORPUS.exists(), reason="needs the shared corpus")
def test_a_step_without_operators_says_where_to_look(cache: Path) -> None:
    text = " ".join(tracekit("analyze", CORPUS / "hta/cpu_only.json.gz", "--cache", cache).stdout.split())
    assert "goes to ." not in text
    assert "no operators and no device work" in text
