"""The samples are there, say what they are, carry the published totals, and can be made again."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
CPU, NEURON = SAMPLES / "cpu", SAMPLES / "neuron"
CPU_NAMES = ("rms_naive", "rms_fused", "rms_compiled", "train")
NEURON_NAMES = ("rms_naive", "rms_fused", "rms_compiled", "train_small")
CAUSES = {"collective", "copy", "model_switch", "not_dispatched", "dispatching", "runtime"}


@pytest.fixture(scope="module")
def made_again(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two fresh outputs of the generator."""
    folders = (tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second"))
    for folder in folders:
        subprocess.run([sys.executable, str(SAMPLES / "make_neuron.py"), str(folder)], check=True, timeout=120)
    return folders


def files(root: Path) -> list[Path]:
    return sorted(p.relative_to(root) for p in root.rglob("*") if p.is_file())


def cpu_trace(name: str) -> dict[str, Any]:
    (path,) = (CPU / name).glob("*.pt.trace.json.gz")
    trace: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return trace


def truth(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((NEURON / name / "truth.json").read_text())
    return found


def system_rows(name: str) -> pl.DataFrame:
    return pl.read_parquet(NEURON / name / "explorer" / "SystemProfileEvents.parquet")


def union_ns(spans: list[tuple[int, int]]) -> int:
    """Length of a union, by walking the sorted spans."""
    total, reached = 0, 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def fields_of(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Protobuf wire format: (field number, varint or bytes)."""

    def varint(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = data[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return value, at

    at = 0
    while at < len(data):
        key, at = varint(at)
        value, at = varint(at)
        if key & 7 == 0:
            yield key >> 3, value
        else:
            assert key & 7 == 2
            yield key >> 3, data[at : at + value]
            at += value


@pytest.mark.parametrize("name", CPU_NAMES)
def test_cpu_sample_is_small_and_names_no_machine(name: str) -> None:
    (path,) = (CPU / name).glob("*.pt.trace.json.gz")
    assert path.stat().st_size < 400_000
    text = gzip.decompress(path.read_bytes()).decode()
    assert '"host_name": "cpu-sample"' in text
    assert "site-packages" not in text and '"/' not in text


@pytest.mark.parametrize("name", CPU_NAMES)
def test_cpu_sample_has_three_steps_with_operators(name: str) -> None:
    events = [e for e in cpu_trace(name)["traceEvents"] if e["ph"] == "X"]
    steps = [e for e in events if e["name"].startswith("ProfilerStep#")]
    assert [e["name"] for e in steps] == ["ProfilerStep#3", "ProfilerStep#4", "ProfilerStep#5"]
    for step in steps:
        inside = [e for e in events if e.get("cat") == "cpu_op" and step["ts"] <= e["ts"] < step["ts"] + step["dur"]]
        assert inside


def test_cpu_variants_are_what_they_are_called() -> None:
    names = {n: [e["name"] for e in cpu_trace(n)["traceEvents"] if e.get("cat") == "cpu_op"] for n in CPU_NAMES}
    for op, calls in {"aten::mul": 9, "aten::mean": 3, "aten::add": 3, "aten::rsqrt": 3}.items():
        assert names["rms_naive"].count(op) == calls
    assert names["rms_fused"].count("aten::rms_norm") == 3
    assert any(n.startswith("Torch-Compiled Region") for n in names["rms_compiled"])
    assert any("Backward" in n for n in names["train"])
    assert {e.get("cat") for e in cpu_trace("rms_naive")["traceEvents"]} >= {"python_function"}


def test_samples_are_small_together() -> None:
    assert sum(p.stat().st_size for p in (*CPU.rglob("*"), *NEURON.rglob("*")) if p.is_file()) < 1_500_000


def test_generator_gives_the_same_bytes_twice(made_again: tuple[Path, Path]) -> None:
    first, second = made_again
    assert files(first) == files(second)
    assert all((first / p).read_bytes() == (second / p).read_bytes() for p in files(first))


def test_committed_samples_are_the_generators_output(made_again: tuple[Path, Path]) -> None:
    fresh = made_again[0]
    assert files(fresh) == files(NEURON)
    for path in files(fresh):
        if path.suffix == ".parquet":  # its bytes depend on pyarrow's version
            assert pl.read_parquet(fresh / path).equals(pl.read_parquet(NEURON / path))
        else:
            assert (fresh / path).read_bytes() == (NEURON / path).read_bytes(), path


@pytest.mark.parametrize(
    ("name", "count", "total_ns"),
    [("rms_naive", 6, 2_355_000), ("rms_fused", 1, 403_300), ("rms_compiled", 1, 375_500)],
)
def test_published_totals(name: str, count: int, total_ns: int) -> None:
    (process,) = truth(name)["processes"]
    assert (process["execution_count"], process["device_ns"]) == (count, total_ns)
    rows = system_rows(name).filter(pl.col("name") == "nc_exec_running")
    assert rows.height == 2 * count
    assert union_ns(rows.select("start_ts", "end_ts").rows()) == total_ns
    assert rows.filter(pl.col("pcore_idx") == 0)["duration_ns"].sum() < total_ns  # neither core alone is the whole


@pytest.mark.parametrize("name", NEURON_NAMES)
def test_neuron_sample_says_it_is_made_up(name: str) -> None:
    folders = [p.parent for p in (NEURON / name / "capture").rglob("trace.json")]
    assert folders
    for folder in folders:
        trace = json.loads((folder / "trace.json").read_text())
        assert trace["host_name"] == "made-up-sample" and "Made up" in trace["note"]
        assert "Made up" in json.loads((folder / "capture.json").read_text())["note"]
        assert list(folder.glob("neff_*_vnc_0.neff")) and list(folder.glob("profile_nc_0_session_0.ntff"))
    assert truth(name)["note"].startswith("made up")


@pytest.mark.parametrize("name", NEURON_NAMES)
def test_truth_adds_up(name: str) -> None:
    for process in truth(name)["processes"]:
        for gap in process["gaps"]:
            assert sum(gap["parts"].values()) == gap["end_ns"] - gap["start_ns"] > 0
        for step in process["steps"]:
            split = step["split"]
            exclusive = sum(split[k] for k in ("device_only", "host_only", "both", "neither"))
            assert exclusive == split["window"] == step["end_ns"] - step["start_ns"]
        for chain in process["chains"]:
            assert chain["dispatch"][0] < chain["submit"][0]
            assert chain["hardware"] is None or chain["submit"][1] < chain["hardware"][0]


def test_training_sample_shows_every_cause_in_each_process() -> None:
    for process in truth("train_small")["processes"]:
        seen = {cause for gap in process["gaps"] for cause, ns in gap["parts"].items() if ns}
        assert seen == CAUSES
    processes = truth("train_small")["processes"]
    cut = [[c["op"] for c in p["chains"] if c["hardware"] is None] for p in processes]
    assert cut == [[], ["aten::addcmul_", "aten::addcdiv_"]]


@pytest.mark.parametrize("name", NEURON_NAMES)
def test_both_routes_describe_the_same_hardware(name: str) -> None:
    """ntrace.pb, brought to the host clock by its sync point, has the hardware starts of the Parquet export."""
    rows = system_rows(name).filter(pl.col("trace_event_source") == "neuron_hw")
    expected = sorted(rows.select("process_id", "start_ts").rows())
    found = []
    for path in (NEURON / name / "capture").rglob("ntrace.pb"):
        pid = int(path.parent.parent.name.rpartition("_")[2])
        events = [list(fields_of(v)) for _, v in fields_of(path.read_bytes()) if isinstance(v, bytes)]
        shift = None
        for event in events:
            entries = [dict(fields_of(v)) for k, v in event if k == 12 and isinstance(v, bytes)]
            data = {bytes(e[1]).decode(): bytes(e[2]).decode() for e in entries}
            if "cpu_timestamp_ns" in data:
                shift = int(data["nc_timestamp_ns"]) - int(data["cpu_timestamp_ns"])
        assert shift == 3_141_592_653
        for event in events:
            plain = dict(event)
            if plain[5] in (7, 8, 26) and plain[13] == 1:
                found.append((pid, int(plain[1]) - shift))
    assert sorted(found) == expected


@pytest.mark.parametrize("name", NEURON_NAMES)
def test_trace_json_times_are_exact(name: str) -> None:
    for path in (NEURON / name / "capture").rglob("trace.json"):
        trace = json.loads(path.read_text(), parse_float=str)
        starts = [
            trace["baseTimeNanoseconds"] + int(e["ts"].replace(".", ""))
            for e in trace["traceEvents"]
            if e.get("cat") == "cpu_op" and "External id" in e["args"]
        ]
        process_id = trace["traceEvents"][0]["pid"]
        (process,) = (p for p in truth(name)["processes"] if p["process_id"] == process_id)
        assert {c["dispatch"][0] for c in process["chains"]} <= set(starts)
