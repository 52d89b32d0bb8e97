"""What goes wrong on real machines: each one done for real, and nothing already exported is lost."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from capture import checks
from tests.capture.conftest import EXAMPLES, Workplace, mounted_disk

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

# Two cycles of two steps; it announces itself once the first cycle is exported, then never ends.
ENDLESS = """
    import sys, time, torch, capture
    with capture.session("profiles", wait=0, warmup=1, active=1, repeat=2) as s:
        for number in range(10**9):
            torch.ones(8).sum()
            if number < 3:
                s.step()
            if number == 3:
                print("exported", s.directories, flush=True)
            time.sleep(0.01)
"""


def whole_traces(directory: Path) -> list[Path]:
    traces = []
    for path in directory.rglob("trace.json"):
        assert json.loads(path.read_bytes())["traceEvents"]
        traces.append(path)
    return traces


def test_sigterm_exports_what_was_recorded_and_says_so(workplace: Workplace) -> None:
    process = workplace.start(workplace.script(ENDLESS))
    process.wait_for("exported")
    process.send_signal(signal.SIGTERM)
    errors = process.wait().stderr
    assert process.returncode == 128 + signal.SIGTERM
    statuses = sorted((m.session["cycle"], m.status, m.reason) for m in workplace.manifests())
    assert statuses[0][:2] == (0, "complete")
    assert statuses[1][:2] == (1, "incomplete")
    assert "SIGTERM" in str(statuses[1][2])
    assert whole_traces(workplace.path)
    assert "SIGTERM" in errors and "Traceback" not in errors


def test_sigkill_keeps_the_exported_cycle_and_check_names_the_lost_one(workplace: Workplace) -> None:
    process = workplace.start(workplace.script(ENDLESS))
    process.wait_for("exported")
    process.kill()
    process.wait()
    assert sorted((m.session["cycle"], m.status) for m in workplace.manifests()) == [(0, "complete"), (1, "running")]
    assert len(whole_traces(workplace.path)) == 1
    done = workplace.command("check", "profiles")
    assert done.returncode == 0, "the exported cycle can be analysed"
    assert "killed" in done.stdout and "fix:" in done.stdout


def test_run_reports_a_killed_child_and_keeps_its_traces(workplace: Workplace) -> None:
    script = workplace.script(
        ENDLESS.replace("time.sleep(0.01)", "number == 3 and __import__('os').kill(__import__('os').getpid(), 9)")
    )
    done = workplace.command("run", script)
    assert done.returncode == 128 + signal.SIGKILL
    assert "SIGKILL" in done.stderr and "out of memory" in done.stderr
    assert len(whole_traces(workplace.path / "profiles")) == 1


def test_sigterm_to_run_reaches_the_script(workplace: Workplace) -> None:
    process = workplace.start("-m", "capture", "run", workplace.script(ENDLESS))
    process.wait_for("exported")
    process.send_signal(signal.SIGTERM)
    errors = process.wait().stderr
    assert process.returncode == 128 + signal.SIGTERM
    assert "SIGTERM" in errors
    assert len(workplace.manifests()) == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted_disk(tmp_path / "disk", "1m") as disk:
        yield disk


def test_full_disk_is_told_and_does_not_end_the_program(workplace: Workplace, small_disk: Path) -> None:
    code = f"""
        import torch, capture
        with capture.session({str(small_disk)!r}, wait=0, warmup=1, active=1, repeat=2) as s:
            for count in (1, 1, 1, 5000):
                for _ in range(count):
                    torch.ones(8).sum()
                s.step()
        print("the program went on")
    """
    done = workplace.python(workplace.script(code))
    assert done.returncode == 0, done.stderr
    assert "the program went on" in done.stdout
    assert "disk is full" in done.stderr
    report = checks.check(small_disk)
    found = {finding.code for finding in report.findings if finding.severity == "error"}
    assert "export-failed" in found
    assert all(finding.fix for finding in report.findings if finding.severity == "error")
    statuses = sorted((s.manifest.session["cycle"], s.manifest.status) for s in report.sessions if s.manifest)
    assert statuses == [(0, "complete"), (1, "failed")]
    first = next(s for s in report.sessions if s.manifest and s.manifest.session["cycle"] == 0)
    assert first.trace is not None and first.trace.is_complete


def test_file_size_limit_is_told_and_does_not_end_the_program(workplace: Workplace) -> None:
    code = """
        import resource, signal, torch, capture
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with capture.session("profiles", wait=0, warmup=1, active=1) as s:
            for count in (1, 2000):
                for _ in range(count):
                    torch.ones(8).sum()
                resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
                s.step()
        print("the program went on")
    """
    done = workplace.python(workplace.script(code))
    assert done.returncode == 0, done.stderr
    assert "the program went on" in done.stdout
    (record,) = workplace.manifests()
    assert record.status == "failed"
    assert "trace.json" in str(record.reason)
    assert "capture failed" in done.stderr


def test_no_space_at_start_is_an_error_before_the_work(workplace: Workplace, small_disk: Path) -> None:
    with contextlib.suppress(OSError):
        (small_disk / "filler").write_bytes(bytes(2 * 1024 * 1024))
    done = workplace.command("run", "-o", small_disk / "profiles", workplace.script("print('work')"))
    assert done.returncode == 2
    assert "disk is full" in done.stderr and "fix:" in done.stderr
    assert "work" not in done.stdout


def test_read_only_directory_is_an_error_before_the_work(workplace: Workplace, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    done = workplace.command("run", "-o", small_disk / "profiles", workplace.script("print('work')"))
    assert done.returncode == 2
    assert "read-only" in done.stderr and "-o" in done.stderr
    assert "work" not in done.stdout and "Traceback" not in done.stderr


def test_output_below_a_file_is_an_error(workplace: Workplace) -> None:
    (workplace.path / "file").write_text("")
    done = workplace.command("run", "-o", "file/profiles", workplace.script("print('work')"))
    assert done.returncode == 2
    assert "file" in done.stderr and "Traceback" not in done.stderr


def test_two_captures_into_one_directory_do_not_collide(workplace: Workplace) -> None:
    code = """
        import torch, capture
        for label in ("first", "second"):
            capture.profile(lambda: torch.ones(8).sum(), output_dir="profiles", wait=0, warmup=0, labels={"run": label})
    """
    script = workplace.script(code)
    running = [workplace.start(script), workplace.start(script)]
    for process in running:
        process.wait()
        assert process.returncode == 0
    assert len(whole_traces(workplace.path)) == 4
    assert sorted(m.labels["run"] for m in workplace.manifests()) == ["first", "first", "second", "second"]
    assert checks.check(workplace.path / "profiles").is_good


CRASHING_RANK = """
    import os, torch, torch.distributed as dist, capture
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with capture.session("profiles", wait=0, warmup=1, active=1, repeat=2) as s:
        for number in range(4):
            tensor = torch.ones(64)
            if rank == 2 and number == 3:
                os._exit(7)
            dist.all_reduce(tensor)
            s.step()
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_a_crashing_rank_of_four_loses_nothing_that_was_exported(workplace: Workplace) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4")
    done = workplace.python(*launcher, workplace.script(CRASHING_RANK))
    assert done.returncode != 0
    complete = {m.process["rank"] for m in workplace.manifests() if m.status == "complete"}
    assert complete == {0, 1, 2, 3}
    assert len(whole_traces(workplace.path)) >= 4
    broken = {m.process["rank"] for m in workplace.manifests() if m.status != "complete"}
    assert broken == {0, 1, 2, 3}
    checked = workplace.command("check", "profiles")
    assert "killed" in checked.stdout and "Traceback" not in checked.stdout


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_each_chosen_rank_has_its_own_directory_and_one_not_copied_is_named(workplace: Workplace) -> None:
    job = {"WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    example = EXAMPLES / "multi_rank.py"
    ranks = [workplace.start(example, "--ranks", "0,2-3", RANK=str(rank), **job) for rank in range(4)]
    for rank in ranks:
        assert rank.wait().returncode == 0, rank.stderr
    records = workplace.manifests()
    assert sorted(m.process["rank"] for m in records) == [0, 2, 3]
    assert {m.process["world_size"] for m in records} == {4}
    assert len({m.process["run_id"] for m in records}) == 1
    assert not checks.check(workplace.path / "multi_rank").findings
    pid = next(m.process["pid"] for m in records if m.process["rank"] == 2)
    shutil.rmtree(next((workplace.path / "multi_rank").glob(f"*_pid_{pid}")))
    (finding,) = checks.check(workplace.path / "multi_rank").findings
    assert finding.code == "rank-missing"
    assert finding.problem.endswith("missing: 2")
