"""Sessions on plain CPU torch."""

from __future__ import annotations

import json

import pytest

from tests.capture.conftest import Workplace

pytestmark = pytest.mark.torch
pytest.importorskip("torch")


def test_one_call_records_the_active_steps_only(workplace: Workplace) -> None:
    code = """
        import torch, capture
        calls = []
        def step(x):
            calls.append(1)
            return x.neg()
        s = capture.profile(step, torch.ones(8), output_dir="out", wait=1, warmup=1, active=2, labels={"batch": 4})
        assert len(calls) == 4 and s.report.is_good
        print(s.directory)
    """
    done = workplace.python(workplace.script(code))
    assert done.returncode == 0, done.stderr
    (record,) = workplace.manifests()
    assert (record.status, record.reason, record.labels) == ("complete", None, {"batch": "4"})
    assert record.device["kind"] == "cpu"
    assert (record.schedule["step_count"], record.schedule["recorded_step_count"]) == (4, 2)
    assert record.files[0]["path"] == "trace.json"
    for clock in ("wall", "monotonic"):
        assert int(str(record.clock[f"stop_{clock}_ns"])) > int(str(record.clock[f"start_{clock}_ns"]))
    (trace,) = workplace.path.rglob("trace.json")
    events = json.loads(trace.read_bytes())["traceEvents"]
    steps = {event["name"] for event in events if event.get("name", "").startswith("ProfilerStep")}
    assert steps == {"ProfilerStep#2", "ProfilerStep#3"}
    assert sum(event.get("name") == "aten::neg" for event in events) == 2
    assert "check: everything is there" in done.stderr and "next: tracekit analyze out" in done.stderr
    assert max(map(len, done.stderr.splitlines()[-4:])) < 120


def test_each_cycle_of_a_repeated_schedule_gets_its_own_directory(workplace: Workplace) -> None:
    code = """
        import torch, capture
        with capture.session("out", wait=1, warmup=0, active=1, repeat=3) as s:
            for _ in range(9):
                torch.ones(8).sum()
                s.step()
        assert len(s.directories) == 3
    """
    assert workplace.python(workplace.script(code)).returncode == 0
    assert [(m.session["cycle"], m.status) for m in workplace.manifests()] == [(n, "complete") for n in range(3)]


@pytest.mark.parametrize(
    ("steps", "status", "words", "has_trace"),
    [
        pytest.param(1, "incomplete", "0 of 3 active steps", False, id="in-the-warm-up"),
        pytest.param(4, "incomplete", "2 of 3 active steps", True, id="in-the-active-steps"),
        pytest.param(5, "complete", "None", True, id="enough"),
    ],
)
def test_a_schedule_that_was_not_reached_is_named(
    workplace: Workplace, steps: int, status: str, words: str, has_trace: bool
) -> None:
    code = f"""
        import torch, capture
        with capture.session("out", wait=1, warmup=1, active=3) as s:
            for _ in range({steps}):
                torch.ones(8).sum()
                s.step()
    """
    done = workplace.python(workplace.script(code))
    (record,) = workplace.manifests()
    assert record.status == status
    assert words in str(record.reason)
    assert bool(list(workplace.path.rglob("trace.json"))) is has_trace
    if status != "complete":
        assert "run at least 5 steps" in done.stderr


def test_an_exception_keeps_the_trace_and_hides_the_message(workplace: Workplace) -> None:
    code = """
        import torch, capture
        with capture.session("out", wait=0, warmup=1, active=2) as s:
            for number in range(3):
                torch.ones(8).sum()
                if number == 2:
                    raise ValueError("password is 1234")
                s.step()
    """
    done = workplace.python(workplace.script(code))
    assert done.returncode == 1
    (record,) = workplace.manifests()
    assert record.status == "incomplete"
    assert "the program raised ValueError: 1 of 2 active steps" in str(record.reason)
    assert "1234" not in json.dumps([record.reason, record.notes])
    assert list(workplace.path.rglob("trace.json"))


def test_a_second_session_at_once_is_refused_and_the_first_goes_on(workplace: Workplace) -> None:
    code = """
        import torch, capture
        with capture.session("out", wait=0, warmup=0) as s:
            try:
                capture.session("other").start()
            except capture.CaptureError as error:
                print(error)
            torch.ones(8).sum()
            s.step()
    """
    done = workplace.python(workplace.script(code))
    assert "already on" in done.stdout
    (record,) = workplace.manifests()
    assert record.status == "complete"


def test_decorated_function_is_captured_once_then_runs_as_before(workplace: Workplace) -> None:
    code = """
        import torch, capture
        @capture.profiled("out", wait=1, warmup=1, active=1)
        def step(x, *, factor=1):
            "Doc."
            return float(x.sum()) * factor
        assert [step(torch.ones(4), factor=2) for _ in range(6)] == [8.0] * 6
        assert step.__doc__ == "Doc."
    """
    done = workplace.python(workplace.script(code))
    assert done.returncode == 0, done.stderr
    (record,) = workplace.manifests()
    assert record.status == "complete"


def test_decorated_function_that_is_called_too_seldom_is_closed_at_exit(workplace: Workplace) -> None:
    code = """
        import torch, capture
        step = capture.profiled("out", wait=0, warmup=1, active=5)(lambda: torch.ones(4).sum())
        step(), step(), step()
    """
    done = workplace.python(workplace.script(code))
    assert done.returncode == 0, done.stderr
    (record,) = workplace.manifests()
    assert record.status == "incomplete" and "2 of 5" in str(record.reason)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param("wiat=1", "unknown option 'wiat'", id="typo"),
        pytest.param("active=0", "at least 1", id="no-active-step"),
        pytest.param('modes=["DEVIC"]', "unknown mode DEVIC", id="mode"),
        pytest.param('ranks="a-b"', "not a list of numbers", id="ranks"),
        pytest.param('device="neuron"', "no neuron device", id="absent-device"),
        pytest.param('device="tpu"', "unknown device", id="unknown-device"),
    ],
)
def test_a_wrong_option_is_an_error_before_the_work(workplace: Workplace, options: str, words: str) -> None:
    code = f"""
        import capture
        try:
            with capture.session("out", {options}):
                print("work")
        except capture.CaptureError as error:
            print(error)
    """
    done = workplace.python(workplace.script(code))
    assert words in done.stdout and "work" not in done.stdout


def test_memory_stacks_and_whole_window(workplace: Workplace) -> None:
    code = """
        import torch, capture
        with capture.session("out", whole=True, with_stack=True, profile_memory=True) as s:
            torch.ones(8).sum()
            s.step()
    """
    assert workplace.python(workplace.script(code)).returncode == 0
    (record,) = workplace.manifests()
    assert (record.schedule["unit"], record.status, record.schedule["wait"]) == ("whole", "complete", None)
    (trace,) = workplace.path.rglob("trace.json")
    text = trace.read_text()
    assert '"python_function"' in text and "[memory]" in text and "aten::sum" in text


def test_importing_the_package_does_not_import_torch_or_tracekit(workplace: Workplace) -> None:
    import subprocess
    import sys

    code = "import sys, capture, capture.cli; print([m for m in ('torch', 'tracekit') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=workplace.environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
