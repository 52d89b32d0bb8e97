from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import polars as pl
import pytest

import tracekit
from tests.metrics.build import Row, chain, event, inputs
from tests.shared_data import NEURON, SAMPLES, needs_shared
from tracekit import doctor
from tracekit.metrics.base import Inputs
from tracekit.tables import ARTIFACTS, NOTES, SESSIONS


def op(start: int = 0, end: int = 10, **columns: object) -> Row:
    return event("op", start, end, lane="dispatch", **columns)


def sound(*more: Row, chains: list[Row] | None = None) -> Inputs:
    rows = [op(), event("call", 2, 3, lane="dispatch"), event("execution", 5, 15), *more]
    return inputs(rows, chains or [chain([3], launch_id=2, hardware_start_ns=5, hardware_end_ns=15)])


def changed(given: Inputs, **frames: pl.DataFrame) -> Inputs:
    return dataclasses.replace(given, **{name: frame.lazy() for name, frame in frames.items()})


def sessions(*rows: Row) -> pl.DataFrame:
    return SESSIONS.rows([{"path": "", **row} for row in rows])


def note(code: str, severity: str = "warning", **columns: object) -> pl.DataFrame:
    return NOTES.rows([{"severity": severity, "code": code, "message": "told", "session": "s", **columns}])


def ntff(core: int, **columns: object) -> Row:
    return {"session": "s", "path": f"{core}.ntff", "role": "ntff", "core_index": core, "size_bytes": 1, **columns}


DAMAGED: dict[str, tuple[Inputs, str]] = {
    "no_events": (inputs([]), "unusable"),
    "cpu_only": (inputs([op()]), "info"),
    "no_device_events": (inputs([op(), event("call", 2, 3, lane="runtime")]), "care"),
    "no_system_trace": (
        inputs([op(), event("call", 2, 3, lane="dispatch"), event("call", 3, 9, lane="stream")]),
        "care",
    ),
    "no_framework_trace": (inputs([event("execution", 5, 15)]), "care"),
    "no_synchronise_before_stop": (sound(chains=[chain([], launch_id=2, dispatch_start_ns=0)]), "care"),
    "dropped_events": (changed(sound(), notes=note("unpaired_events", event_count=7)), "care"),
    "no_warmup": (
        sound(
            event("annotation", 0, 20, lane="dispatch", name="ProfilerStep#1"),
            event("model", 1, 2, lane="runtime", name="model_load"),
        ),
        "care",
    ),
    "neff_ntff": (changed(sound(), artifacts=ARTIFACTS.rows([ntff(0, problem="0 bytes")])), "info"),
    "only_protobuf": (changed(sound(), notes=note("ntrace_not_understood")), "care"),
    "idle_cores": (changed(sound(), artifacts=ARTIFACTS.rows([ntff(0), ntff(1)])), "info"),
    "outside_window": (sound(event("window", 0, 20, lane="dispatch"), op(30, 40)), "care"),
    "step_outside_window": (
        sound(
            event("window", 0, 200, lane="dispatch"),
            event("annotation", 0, 5_000, lane="dispatch", name="ProfilerStep#1"),
        ),
        "care",
    ),
    "zero_durations": (sound(event("execution", 17, 17)), "info"),
    "clocks_disagree": (changed(sound(), sessions=sessions({"session": "s", "clock_residual_ns": 20_000})), "care"),
    "mixed_ranks": (
        changed(sound(), sessions=sessions({"session": "s", "rank": 0}, {"session": "t", "rank": 0})),
        "care",
    ),
    "missing_ranks": (
        changed(
            sound(), sessions=sessions(*({"session": s, "rank": r, "world_size": 4} for s, r in (("s", 0), ("t", 1))))
        ),
        "info",
    ),
    "profiler_overhead": (
        changed(
            sound(event("overhead", 0, 9, lane="dispatch")),
            sessions=sessions({"session": "s", "first_ns": 0, "last_ns": 15}),
        ),
        "care",
    ),
    "hardware_before_submit": (changed(sound(), notes=note("hardware_before_submit")), "care"),
    "sources_disagree": (changed(sound(), notes=note("sources_disagree")), "care"),
    "cut_file": (changed(sound(), notes=note("cut_file")), "care"),
}


@pytest.mark.parametrize("check", DAMAGED)
def test_damage_is_found(check: str) -> None:
    given, severity = DAMAGED[check]
    found = doctor.diagnose(given)
    rows = found.filter(pl.col("check") == check)
    assert rows["severity"].to_list() == [severity]
    assert rows["message"][0] and rows["next_step"].null_count() in (0, 1)
    assert doctor.verdict(found) >= {"info": 0, "care": 1, "unusable": 2}[severity]


def test_a_sound_capture_triggers_nothing() -> None:
    found = doctor.diagnose(sound())
    assert found.is_empty() and doctor.verdict(found) == 0
    assert found.schema == doctor.DIAGNOSES.schema


def test_a_step_that_ends_with_the_profiler_is_recorded() -> None:
    spans = [event("window", 5, 1_000, lane="dispatch")]
    spans.append(event("annotation", 0, 1_004, lane="dispatch", name="ProfilerStep#1"))
    assert "step_outside_window" not in doctor.diagnose(sound(*spans))["check"].to_list()


def test_gravest_first() -> None:
    given = changed(inputs([]), artifacts=ARTIFACTS.rows([ntff(0, problem="0 bytes")]))
    assert doctor.diagnose(given)["severity"].to_list() == ["unusable", "info"]


def diagnosed(path: Path, cache: Path) -> pl.DataFrame:
    profile = tracekit.open(path, cache=cache)
    assert isinstance(profile, tracekit.Profile)
    return doctor.diagnose(profile.inputs("all"))


@needs_shared
def test_shared_captures(tmp_path: Path) -> None:
    for name in ("rms_naive", "rms_fused", "rms_compiled"):
        assert doctor.verdict(diagnosed(NEURON / name / "capture", tmp_path)) == 0, name
    cut = diagnosed(NEURON / "train_2proc" / "capture", tmp_path)
    assert set(cut["check"]) == {"no_synchronise_before_stop"}
    assert cut["event_count"].to_list() == [3, 3]


@pytest.mark.parametrize(
    ("remove", "check"),
    [("trace.json", "no_framework_trace"), ("ntrace.pb", "no_system_trace")],
)
def test_a_missing_file_of_a_capture(tmp_path: Path, remove: str, check: str) -> None:
    shutil.copytree(SAMPLES / "neuron" / "rms_naive" / "capture", tmp_path / "capture")
    (path,) = (tmp_path / "capture").rglob(remove)
    path.unlink()
    found = diagnosed(tmp_path / "capture", tmp_path / "cache")
    assert check in set(found["check"]) and doctor.verdict(found) == 1


@pytest.mark.parametrize(
    ("device", "words"),
    [("mtia", "torch.mtia."), ("rocm", "torch.cuda."), ("neuron", "torch.neuron."), (None, "torch.<")],
)
def test_the_next_step_names_the_device_at_hand(device: str | None, words: str) -> None:
    given = changed(
        sound(chains=[chain([], launch_id=2, dispatch_start_ns=0)]),
        sessions=sessions({"session": "s", "device": device}),
    )
    (step,) = doctor.diagnose(given).filter(check="no_synchronise_before_stop")["next_step"]
    assert words in step


def test_one_is_singular_and_more_are_plural() -> None:
    lost = chain([], launch_id=2, dispatch_start_ns=0)
    for count, words in ((1, "1 launched operation without"), (2, "2 launched operations without")):
        found = doctor.diagnose(sound(chains=[lost] * count)).filter(check="no_synchronise_before_stop")
        assert found["message"][0].startswith(words)
