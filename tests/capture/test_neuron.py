"""The vendor's API in two stand-in versions, in one that is too old, and in shapes that cannot be inspected."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from capture import checks, neuron
from capture.errors import CaptureError
from capture.options import Options
from tests.capture.conftest import Workplace

TWO_STEPS = """
    import torch, torch_neuronx, capture
    x = torch.ones(4, 512)
    with capture.session("out", wait=1, warmup=1, active=2, labels={"v": torch_neuronx.__version__}, OPTIONS) as s:
        for _ in range(4):
            for name in ("aten::mul", "aten::mean"):
                torch_neuronx.launch(name)
                x * x
            s.step()
    print(s.directory)
"""


def steps(options: str) -> str:
    return TWO_STEPS.replace("OPTIONS", options)


@pytest.mark.torch
@pytest.mark.parametrize("version", ["old", "new"])
def test_documented_layout_with_the_manifest_beside_the_trace(workplace: Workplace, version: str) -> None:
    done = workplace.python(workplace.script(steps("max_events_per_nc=1000")), standin=version)
    assert done.returncode == 0, done.stderr
    (path,) = (workplace.path / "out").rglob("capture.json")
    names = {file.name for file in path.parent.iterdir()}
    assert {"trace.json", "ntrace.pb", "trace_info.pb", "profile_nc_0_session_0.ntff", "capture.json"} <= names
    assert path.parent.parent.name.startswith("i-0fedcba9876543210_pid_")
    assert len(list((workplace.path / "out").iterdir())) == 1
    (record,) = workplace.manifests()
    assert (record.status, record.device["kind"], record.modes) == ("complete", "neuron", ["DEVICE", "RUNTIME"])
    assert record.options["max_events_per_nc"] == 1000
    report = checks.check(workplace.path / "out")
    assert not report.findings
    assert report.sessions[0].trace is not None
    assert report.sessions[0].trace.event_counts["privateuse1_driver"] == 4, "2 active steps of 2 executions"


@pytest.mark.torch
def test_newer_options_are_dropped_with_a_warning_on_the_older_version(workplace: Workplace) -> None:
    options = 'neff_cache_dir="copy", correlate_device_time=True, capture_enabled_for_nc="0"'
    done = workplace.python(workplace.script(steps(options)), standin="old")
    assert done.returncode == 0, done.stderr
    for name in ("neff_cache_dir", "correlate_device_time", "capture_enabled_for_nc"):
        assert name in done.stderr
    (record,) = workplace.manifests()
    dropped = [note["message"] for note in record.notes if note["code"] == "option-dropped"]
    assert len(dropped) == 3
    assert "neff_cache_dir" not in record.options
    assert {f.code for f in checks.check(workplace.path / "out").findings} == {"option-dropped"}


@pytest.mark.torch
def test_newer_options_are_used_on_the_newer_version(workplace: Workplace) -> None:
    done = workplace.python(workplace.script(steps('neff_cache_dir="copy", correlate_device_time=True')), standin="new")
    assert done.returncode == 0, done.stderr
    (record,) = workplace.manifests()
    assert not record.notes
    assert (record.options["neff_cache_dir"], record.options["correlate_device_time"]) == ("copy", True)


@pytest.mark.torch
def test_all_modes(workplace: Workplace) -> None:
    options = 'modes=["device", "runtime", "cpu_util", "host_memory"]'
    assert workplace.python(workplace.script(steps(options)), standin="new").returncode == 0
    report = checks.check(workplace.path / "out")
    assert not report.findings
    assert {"cpu_util.pb", "host_mem.pb"} <= report.sessions[0].names


@pytest.mark.torch
def test_compile_time_variables_are_set_and_said_to_act_at_compile_time(workplace: Workplace) -> None:
    code = (
        steps("compile_debug=True")
        + """
    import os
    assert [os.environ[n] for n in ("XLA_IR_DEBUG", "XLA_HLO_DEBUG", "NEURON_FRAMEWORK_DEBUG")] == ["1", "1", "1"]
"""
    )
    done = workplace.python(workplace.script(code), standin="new")
    assert done.returncode == 0, done.stderr
    assert "act when a graph is compiled" in done.stderr and "imported already" in done.stderr
    (record,) = workplace.manifests()
    assert record.env["XLA_IR_DEBUG"] == "1" and record.options["compile_debug"] is True


@pytest.mark.torch
def test_inspect_variable_conflicts_with_the_profiler(workplace: Workplace) -> None:
    script = workplace.script(steps(""))
    done = workplace.command(
        "run", script, standin="new", NEURON_RT_INSPECT_ENABLE="1", NEURON_RT_INSPECT_OUTPUT_DIR="x"
    )
    assert done.returncode == 2
    assert "conflicts with torch.profiler" in done.stderr and "unset NEURON_RT_INSPECT_ENABLE" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.torch
def test_env_only_capture_gets_a_manifest(workplace: Workplace) -> None:
    code = """
        import torch_neuronx
        for _ in range(5):
            torch_neuronx.launch("aten::mul", 1_000_000)
        torch_neuronx.synchronize()
    """
    done = workplace.command("run", "--env-only", "--label", "batch=4", workplace.script(code), standin="new")
    assert done.returncode == 0, done.stderr
    assert "NEURON_RT_INSPECT_DEVICE_PROFILE_NUM_WARMUP=3" in done.stderr
    (record,) = workplace.manifests()
    assert record.options == {"env_only": True} and record.labels == {"batch": "4"}
    assert record.env["NEURON_RT_INSPECT_ENABLE"] == "1"
    report = checks.check(workplace.path / "profiles")
    assert [finding.severity for finding in report.findings] == ["note"]
    assert len(report.sessions[0].ntffs) == 1


@pytest.mark.torch
def test_env_only_without_the_neuron_runtime_says_what_to_do(workplace: Workplace) -> None:
    done = workplace.command("run", "--env-only", workplace.script("print('work')"))
    assert done.returncode == 1
    assert "leave out --env-only" in " ".join(done.stderr.split())


class Recorder:
    """A NeuronProfiler that takes any config."""

    def __init__(self, config: object) -> None:
        self.config = config

    def export_trace(self, prof: object) -> None:
        raise NotImplementedError


class Modes:
    DEVICE, RUNTIME = "d", "r"


def install(monkeypatch: pytest.MonkeyPatch, **names: Any) -> None:
    package, api = types.ModuleType("torch_neuronx"), types.ModuleType("torch_neuronx.profiling")
    for name, value in names.items():
        setattr(api, name, value)
    monkeypatch.setitem(sys.modules, "torch_neuronx", package)
    monkeypatch.setitem(sys.modules, "torch_neuronx.profiling", api)


def test_preview_api_without_neuron_config_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, NeuronProfiler=Recorder)
    with pytest.raises(CaptureError, match="no NeuronConfig, ProfileMode") as caught:
        neuron.build(Path("out"), Options())
    assert "--env-only" in caught.value.hint


def test_config_without_a_required_argument_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, NeuronProfiler=Recorder, ProfileMode=Modes, NeuronConfig=lambda modes: modes)
    with pytest.raises(CaptureError, match="takes no profile_output_dir"):
        neuron.build(Path("out"), Options())


@pytest.mark.parametrize("error", [TypeError, ValueError])
def test_constructor_that_hides_its_arguments_is_asked_one_by_one(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def config(**given: object) -> dict[str, object]:
        for name in given:
            if name in ("neff_cache_dir", "precache_node_info"):
                raise error(f"unexpected argument '{name}'")
        return given

    install(monkeypatch, NeuronProfiler=Recorder, ProfileMode=Modes, NeuronConfig=config)
    options = Options(neff_cache_dir="x", precache_node_info=True, max_events_per_nc=7)
    setup = neuron.build(Path("out"), options)
    assert set(setup.dropped) == {"neff_cache_dir", "precache_node_info"}
    assert setup.config == {"modes": ["d", "r"], "profile_output_dir": "out", "max_events_per_nc": 7}


def test_unknown_modes_are_dropped_unless_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    install(
        monkeypatch, NeuronProfiler=Recorder, ProfileMode=Modes, NeuronConfig=lambda modes, profile_output_dir: modes
    )
    setup = neuron.build(Path("out"), Options(modes=("RUNTIME", "CPU_UTIL")))
    assert (setup.config, setup.modes, setup.dropped) == (["r"], ("RUNTIME",), ("modes=CPU_UTIL",))
    with pytest.raises(CaptureError, match="none of the modes CPU_UTIL"):
        neuron.build(Path("out"), Options(modes=("CPU_UTIL",)))
