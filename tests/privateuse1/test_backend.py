"""The simulated accelerator behaves as its README says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.privateuse1 import Backend, BackendUnavailableError, Copy, Launch, activities, build, load_backend

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

LONG_NS = 300_000_000
Event = dict[str, Any]
Record = Callable[..., list[Event]]


@pytest.fixture
def backend() -> Iterator[Backend]:
    backend = load_backend()
    backend.clear_plan()
    yield backend
    backend.clear_plan()
    backend.synchronize()


@pytest.fixture
def record(tmp_path: Path, backend: Backend) -> Record:
    """Profile a program and return the events of its trace."""

    def record(program: Callable[[], object], config: str = "", **options: Any) -> list[Event]:
        experimental = torch._C._profiler._ExperimentalConfig(
            custom_profiler_config=config, profile_all_threads=options.pop("all_threads", False)
        )
        options.setdefault("activities", activities())
        with torch.profiler.profile(experimental_config=experimental, **options) as prof:
            program()
        path = tmp_path / "trace.json"
        prof.export_chrome_trace(str(path))
        return list(json.loads(path.read_text())["traceEvents"])

    return record


def of(events: list[Event], category: str) -> list[Event]:
    return [event for event in events if event.get("cat") == category and event["ph"] == "X"]


def ns(event: Event, key: str) -> int:
    return round(event[key] * 1000)


def twice(x: Any) -> None:
    x.mul(2)
    x.mul(3)


X = torch.ones(16, 8)


def test_work_not_waited_for_is_missing(backend: Backend, record: Record) -> None:
    backend.set_plan({"aten::add": 1, "aten::mul": Launch(duration_ns=LONG_NS)})

    def program() -> None:
        X.add(X)
        backend.synchronize()
        X.mul(X)

    events = record(program)
    assert [event["args"]["External id"] for event in of(events, "kernel")] == [
        event["args"]["External id"] for event in of(events, "cpu_op") if event["name"] == "aten::add"
    ]
    assert len(of(events, "privateuse1_driver")) == 1
    assert sum(event["name"] == "aten::mul" for event in of(events, "privateuse1_runtime")) == 1
    assert backend.synchronize_calls == ["program", "profiler"]
    assert backend.busy_streams() == 1


def test_synchronize_waits_for_all_streams(backend: Backend, record: Record) -> None:
    backend.set_plan({"aten::mul": [Launch(0, LONG_NS // 3), Launch(1, LONG_NS // 2)]})

    def program() -> None:
        X.mul(X)
        assert backend.busy_streams() == 2
        torch.neuron.synchronize()
        assert backend.busy_streams() == 0

    assert len(of(record(program), "kernel")) == 2


def test_the_profilers_own_call_waits_only_on_request(backend: Backend, record: Record) -> None:
    backend.set_plan({"aten::mul": Launch(duration_ns=LONG_NS)})
    backend.torch_synchronizes = True
    assert len(of(record(lambda: X.mul(X)), "kernel")) == 1
    assert backend.synchronize_calls == ["profiler"]


def test_streams_are_serial_and_overlap_each_other(backend: Backend, record: Record) -> None:
    backend.set_plan({"aten::mul": [Launch(0, 5_000_000), Launch(1, 5_000_000)]})
    events = record(lambda: (twice(X), backend.synchronize()))
    kernels = sorted(of(events, "kernel"), key=lambda event: (event["tid"], event["ts"]))
    first, second = kernels[:2], kernels[2:]
    for stream, pair in ((0, first), (1, second)):
        assert [event["args"]["stream"] for event in pair] == [stream, stream]
        assert ns(pair[1], "ts") == ns(pair[0], "ts") + ns(pair[0], "dur")
    assert first[0]["ts"] < second[0]["ts"] < first[0]["ts"] + first[0]["dur"]


def test_events_carry_the_documented_fields(backend: Backend, record: Record) -> None:
    backend.set_plan({"aten::mul": 1, "aten::copy_": Copy(stream=2, direction="out")})

    def program() -> None:
        torch.mul(X, X)
        torch.empty(16, 8).copy_(X)
        backend.synchronize()

    events = record(program)
    (kernel,), (copy,) = of(events, "kernel"), of(events, "gpu_memcpy")
    key = backend.cache_key("aten::mul", [X, X])
    op = next(event for event in of(events, "cpu_op") if event["name"] == "aten::mul")
    assert kernel["name"] == key
    assert kernel["args"]["External id"] == op["args"]["External id"]
    assert ns(kernel, "dur") == backend.duration_ns("aten::mul", [X, X])
    assert (copy["args"]["bytes"], copy["args"]["stream"]) == (16 * 8 * 4, 2)
    driver = next(event for event in of(events, "privateuse1_driver") if event["tid"] == 0)
    runtime = next(event for event in of(events, "privateuse1_runtime") if event["name"] == "aten::mul")
    assert driver["args"]["neff_cache_key"] == key
    sequences = {event["args"]["nrt_sequence_id"] for event in (driver, runtime, kernel)}
    assert len(sequences) == 1
    assert sequences.pop() >= 2**48
    ends = {
        (e["ph"], e["id"], e["ts"])
        for e in events
        if e.get("cat") == "ac2g" and e["id"] == runtime["args"]["correlation"]
    }
    assert ends == {
        ("s", runtime["args"]["correlation"], runtime["ts"]),
        ("f", kernel["args"]["correlation"], kernel["ts"]),
    }
    assert any(event["name"] == "neuron::synchronize" for event in of(events, "privateuse1_runtime"))


def test_launches_lie_inside_their_operator(backend: Backend, record: Record) -> None:
    backend.set_plan({"aten::add": [Launch(), Launch(1)], "aten::mul": 1})

    def work() -> None:
        for _ in range(20):
            (X + 1).mul(X)

    def program() -> None:
        thread = threading.Thread(target=work)
        thread.start()
        work()
        thread.join()
        backend.synchronize()

    events = record(program, all_threads=True)
    ops = {event["args"]["External id"]: event for event in of(events, "cpu_op")}
    launches = [event for event in of(events, "privateuse1_runtime") if "args" in event]
    assert len(launches) == 2 * 20 * 3
    for launch in launches:
        op = ops[launch["args"]["External id"]]
        assert op["name"] == launch["name"]
        assert op["tid"] == launch["tid"]
        assert op["ts"] <= launch["ts"]
        assert ns(launch, "ts") + ns(launch, "dur") <= ns(op, "ts") + ns(op, "dur")


def test_without_the_device_activity_there_are_no_device_events(backend: Backend, record: Record) -> None:
    backend.set_plan({}, otherwise=1)
    only_cpu = [torch.profiler.ProfilerActivity.CPU]
    events = record(lambda: (X.mul(X), backend.synchronize()), activities=only_cpu)
    assert not of(events, "kernel")
    assert of(events, "cpu_op")


@pytest.mark.parametrize(
    ("config", "kernels", "drivers"),
    [
        pytest.param("", 4, 4, id="none"),
        pytest.param("not json", 4, 4, id="for someone else"),
        pytest.param('{"correlate_device_time": false}', 0, 4, id="no device time"),
        pytest.param('{"max_events_per_nc": 1}', 2, 2, id="one per core"),
        pytest.param('{"capture_enabled_for_nc": [1]}', 2, 2, id="one core"),
    ],
)
def test_configuration_is_honoured(backend: Backend, record: Record, config: str, kernels: int, drivers: int) -> None:
    backend.set_plan({"aten::mul": [Launch(device=0), Launch(device=1)]})
    events = record(lambda: (twice(X), backend.synchronize()), config)
    assert backend.configs()[-1] == config
    assert (len(of(events, "kernel")), len(of(events, "privateuse1_driver"))) == (kernels, drivers)


def test_no_compiler_is_a_reason_not_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("CXX", "")
    with pytest.raises(BackendUnavailableError, match="no C\\+\\+ compiler"):
        build.load_extension()


def test_one_of_several_processes_compiles(tmp_path: Path) -> None:
    """A stand-in compiler counts its runs; both processes find one library."""
    compiler = tmp_path / "g++"
    compiler.write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then echo fake; exit; fi\necho run >> {tmp_path}/runs\nsleep 0.5\n'
        'while [ "$1" != -o ]; do shift; done\necho library > "$2"\n'
    )
    compiler.chmod(0o755)
    program = (
        "from tests.privateuse1 import build\n"
        "build._load = lambda library: print(library.read_text())\n"
        "build.load_extension()\n"
    )
    environment = os.environ | {"CXX": str(compiler), "TRACEKIT_TEST_CACHE": str(tmp_path / "cache")}
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", program]
    started = [
        subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    assert [process.communicate()[0].split() for process in started] == [["library"]] * 2
    assert (tmp_path / "runs").read_text().split() == ["run"]


def test_a_failing_compiler_shows_what_it_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "broken"
    compiler.write_text("#!/bin/sh\necho no such header >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("TRACEKIT_TEST_CACHE", str(tmp_path))
    with pytest.raises(RuntimeError, match="no such header"):
        build.load_extension()
    assert not list(tmp_path.rglob("*.so"))
