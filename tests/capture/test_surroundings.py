"""What a program may do while it is captured: change its directory, fork, use torch's profiler itself."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from capture import checks
from tests.capture.conftest import Workplace, mounted_disk

pytestmark = pytest.mark.torch
pytest.importorskip("torch")


def operators(workplace: Workplace) -> set[str]:
    (trace,) = workplace.path.rglob("trace.json")
    return {event["name"] for event in json.loads(trace.read_bytes())["traceEvents"] if event.get("cat") == "cpu_op"}


@pytest.mark.parametrize(
    "trouble", ['os.mkdir("there"); os.chdir("there")', 'shutil.rmtree("out")'], ids=["changes-directory", "deletes-it"]
)
def test_a_relative_output_directory_stays_where_it_was(workplace: Workplace, trouble: str) -> None:
    code = f"""
        import os, shutil, torch, capture
        with capture.session("out", wait=0, warmup=1, active=1) as s:
            for number in range(2):
                torch.ones(8).neg()
                if number == 1:
                    {trouble}
                s.step()
        print("went on", s.directory.is_absolute())
    """
    done = workplace.python(workplace.script(code))
    assert (done.returncode, done.stdout) == (0, "went on True\n"), done.stderr
    (record,) = workplace.manifests("out")
    assert record.status == "complete"
    assert "aten::neg" in operators(workplace)


def test_a_directory_that_cannot_be_made_again_does_not_end_the_program(workplace: Workplace) -> None:
    code = """
        import shutil, torch, capture
        from pathlib import Path
        with capture.session("out", wait=0, warmup=1, active=1) as s:
            for _ in range(2):
                torch.ones(8).neg()
                shutil.rmtree("out", ignore_errors=True)
                Path("out").touch()
                s.step()
        print("went on")
    """
    done = workplace.python(workplace.script(code))
    assert (done.returncode, done.stdout) == (0, "went on\n"), done.stderr
    assert "capture failed: export:" in done.stderr and "Traceback" not in done.stderr


def test_any_failure_of_the_exporter_leaves_the_program_alone(workplace: Workplace) -> None:
    code = """
        import torch, capture
        def broken(self, path):
            raise KeyError("vendor")
        torch.profiler.profile.export_chrome_trace = broken
        capture.profile(lambda: torch.ones(8).neg(), output_dir="out", wait=0, warmup=1)
        print("went on")
    """
    done = workplace.python(workplace.script(code))
    assert (done.returncode, done.stdout) == (0, "went on\n"), done.stderr
    (record,) = workplace.manifests("out")
    assert record.status == "failed" and "vendor" in str(record.reason)


@pytest.fixture
def disk_of_40_kb(tmp_path: Path) -> Iterator[Path]:
    """Room for one manifest and a short trace."""
    with mounted_disk(tmp_path / "disk", "40k") as disk:
        yield disk


def test_a_cycle_that_cannot_start_does_not_end_the_program(workplace: Workplace, disk_of_40_kb: Path) -> None:
    code = f"""
        import pathlib, torch, capture
        with capture.session({str(disk_of_40_kb)!r}, wait=1, warmup=1, active=1, repeat=3) as s:
            for number in range(9):
                torch.ones(8).neg()
                if number == 2:
                    pathlib.Path({str(disk_of_40_kb)!r}, "other").write_bytes(bytes(16_384))
                s.step()
        print("went on", s.step_count, len(s.directories))
    """
    done = workplace.python(workplace.script(code))
    assert (done.returncode, done.stdout) == (0, "went on 9 1\n"), done.stderr
    assert "the disk is full" in done.stderr and "starting a cycle" in done.stderr
    assert [s.directory.name for s in checks.check(disk_of_40_kb).sessions] == [
        path.name for path in disk_of_40_kb.glob("*_pid_*/*")
    ], "a cycle without a manifest leaves no directory"


def test_forked_children_end_as_they_would_without_a_capture(workplace: Workplace) -> None:
    code = """
        import atexit, multiprocessing, os, time, torch
        torch.ones(8).neg()
        pid = os.fork()
        if pid == 0:
            atexit.register(lambda: print("cleaned up"))
            torch.ones(8).exp()
            raise SystemExit(7)
        _, status = os.waitpid(pid, 0)
        sleeper = multiprocessing.get_context("fork").Process(target=time.sleep, args=(5,))
        sleeper.start()
        sleeper.terminate()
        sleeper.join()
        torch.ones(8).sin()
        print(os.waitstatus_to_exitcode(status), sleeper.exitcode)
    """
    done = workplace.command("run", "-o", "out", workplace.script(code))
    assert (done.returncode, done.stdout) == (0, "cleaned up\n7 -15\n"), done.stderr
    (record,) = workplace.manifests("out")
    assert record.status == "complete"
    assert {"aten::neg", "aten::sin"} <= operators(workplace) and "aten::exp" not in operators(workplace)


OWN_PROFILER = """
    import torch
    torch.ones(8).neg()
    {start}
        torch.ones(8).exp()
    print(sorted(row.key for row in p.key_averages() if row.key in ("aten::exp", "aten::sin")))
    torch.ones(8).sin()
"""


@pytest.mark.parametrize(
    "start", ["with torch.profiler.profile() as p:", "with torch.autograd.profiler.profile() as p:"], ids=["new", "old"]
)
def test_a_program_with_its_own_profiler_gets_it_and_the_capture_ends_there(workplace: Workplace, start: str) -> None:
    done = workplace.command("run", "-o", "out", workplace.script(OWN_PROFILER.format(start=start)))
    assert (done.returncode, done.stdout) == (0, "['aten::exp']\n"), done.stderr
    (record,) = workplace.manifests("out")
    assert record.status == "incomplete" and checks.OTHER_PROFILER in str(record.reason)
    assert "aten::neg" in operators(workplace) and not operators(workplace) & {"aten::exp", "aten::sin"}
    assert "switch the program's own profiler off" in " ".join(done.stderr.split())


@pytest.mark.parametrize("at_step", range(4), ids=["wait", "warm-up", "first-active", "last-active"])
def test_another_profiler_at_any_step_of_the_schedule(workplace: Workplace, at_step: int) -> None:
    code = f"""
        import torch, capture
        with capture.session("out", wait=1, warmup=1, active=2) as s:
            for number in range(4):
                torch.ones(8).neg()
                if number == {at_step}:
                    with torch.profiler.profile() as p:
                        torch.ones(8).exp()
                    assert any(row.key == "aten::exp" for row in p.key_averages())
                s.step()
    """
    done = workplace.python(workplace.script(code))
    assert done.returncode == 0, done.stderr
    (record,) = workplace.manifests("out")
    assert record.status == "incomplete" and checks.OTHER_PROFILER in str(record.reason)


def test_another_profiler_in_another_thread(workplace: Workplace) -> None:
    code = """
        import threading, torch, capture
        def work():
            with torch.profiler.profile() as p:
                torch.ones(8).exp()
            print(any(row.key == "aten::exp" for row in p.key_averages()))
        with capture.session("out", whole=True):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    """
    done = workplace.python(workplace.script(code))
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    (record,) = workplace.manifests("out")
    assert record.status == "failed" and "another thread" in str(record.reason)


def test_a_session_inside_a_profiler_is_refused_and_the_profiler_goes_on(workplace: Workplace) -> None:
    code = """
        import torch, capture
        with torch.profiler.profile() as p:
            try:
                capture.session("out").start()
            except capture.CaptureError as error:
                print(error.problem)
            torch.ones(8).exp()
        assert any(row.key == "aten::exp" for row in p.key_averages())
        original = torch.autograd.profiler.profile._prepare_trace
        capture.profile(lambda: torch.ones(8).neg(), output_dir="out", wait=0, warmup=1)
        assert torch.autograd.profiler.profile._prepare_trace is original
    """
    done = workplace.python(workplace.script(code))
    assert done.returncode == 0, done.stderr
    assert "a torch profiler is on already" in done.stdout
    assert [record.status for record in workplace.manifests("out")] == ["complete"]


def test_a_session_can_be_used_again(workplace: Workplace) -> None:
    code = """
        import torch, capture
        s = capture.session("out", wait=0, warmup=1, active=1)
        for _ in range(2):
            with s:
                for _ in range(2):
                    torch.ones(8).neg()
                    s.step()
            assert (s.step_count, len(s.directories), s.is_active) == (2, 1, False)
    """
    done = workplace.python(workplace.script(code))
    assert done.returncode == 0, done.stderr
    assert [record.status for record in workplace.manifests("out")] == ["complete"] * 2


def test_a_closed_terminal_ends_the_program_with_its_capture(workplace: Workplace) -> None:
    code = """
        import os, signal, torch, capture
        with capture.session("out", whole=True):
            torch.ones(8).neg()
            os.kill(os.getpid(), signal.SIGHUP)
            print("never")
    """
    done = workplace.python(workplace.script(code))
    assert (done.returncode, done.stdout) == (128 + signal.SIGHUP, "")
    (record,) = workplace.manifests("out")
    assert (record.status, record.reason) == ("incomplete", "SIGHUP")
    shutil.rmtree(workplace.path / "out")
    ignored = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    source = (workplace.path / "script.py").read_text()
    done = workplace.python(workplace.script(ignored + source))
    assert (done.returncode, done.stdout) == (0, "never\n"), "nohup keeps its meaning"
