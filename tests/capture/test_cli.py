"""The command as a newcomer types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from capture import doctor
from capture.cli import cli
from tests.capture.conftest import EXAMPLES, Workplace


def test_help_names_every_command() -> None:
    text = CliRunner().invoke(cli, ["--help"]).output
    for name in ("run", "check", "export", "pack", "doctor"):
        assert name in text
        assert CliRunner().invoke(cli, [name, "--help"]).exit_code == 0
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.torch
@pytest.mark.slow
def test_rmsnorm_study_as_a_newcomer_types_it(workplace: Workplace) -> None:
    pytest.importorskip("torch")
    done = workplace.command("run", EXAMPLES / "rmsnorm.py")
    assert done.returncode == 0, done.stderr
    records = {record.labels["variant"]: record for record in workplace.manifests("rmsnorm")}
    assert {"naive", "rms_norm"} <= set(records)
    conditions = [(r.schedule["wait"], r.schedule["warmup"], r.schedule["active"]) for r in records.values()]
    assert set(conditions) == {(2, 1, 1)}
    assert "tracekit diff rmsnorm/naive rmsnorm/rms_norm" in done.stdout
    assert "check: everything is there" in done.stderr
    assert "next: tracekit analyze rmsnorm" in done.stderr
    analysed = workplace.tracekit("analyze", "rmsnorm/naive", "--cache", "cache")
    assert "No device work in this capture" in analysed and "aten::mean" in analysed


@pytest.mark.torch
def test_a_script_that_knows_nothing_is_captured_as_a_whole(workplace: Workplace) -> None:
    pytest.importorskip("torch")
    code = f"""
        import sys, torch
        assert sys.argv[1:] == ["--flag", "value", "-x"], sys.argv
        assert __name__ == "__main__" and sys.modules["__main__"].__dict__ is globals()
        assert __file__ == {str(workplace.path / "elsewhere/plain.py")!r} and sys.argv[0] == "elsewhere/plain.py"
        import helper
        print("sum", float(torch.ones(8).sum()))
        sys.exit(0)
    """
    (workplace.path / "elsewhere").mkdir()
    workplace.script("", name="elsewhere/helper.py")
    workplace.script(code, name="elsewhere/plain.py")
    done = workplace.command("run", "-o", "out", "--label", "a=b=c", "elsewhere/plain.py", "--flag", "value", "-x")
    assert done.returncode == 0, done.stderr
    assert "sum 8.0" in done.stdout
    (record,) = workplace.manifests("out")
    assert (record.schedule["unit"], record.status, record.labels) == ("whole", "complete", {"a": "b=c"})
    assert record.command[1].endswith("plain.py") and "value" in record.command


@pytest.mark.torch
def test_a_rank_does_not_miss_the_others_while_the_job_runs(workplace: Workplace) -> None:
    pytest.importorskip("torch")
    job = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    done = workplace.command("run", "-o", "out", workplace.script("import torch; torch.ones(8).sum()"), **job)
    assert done.returncode == 0 and "check: everything is there" in done.stderr, done.stderr
    assert "missing: 1" in " ".join(workplace.command("check", "out").stdout.split())


@pytest.mark.torch
def test_optimizer_steps_make_steps_of_an_unchanged_script(workplace: Workplace) -> None:
    pytest.importorskip("torch")
    done = workplace.command("run", "--optimizer-steps", "--active", "2", EXAMPLES / "unchanged.py")
    assert done.returncode == 0, done.stderr
    (record,) = workplace.manifests("profiles")
    assert (record.schedule["step_count"], record.schedule["recorded_step_count"]) == (5, 2)
    (trace,) = workplace.path.rglob("trace.json")
    text = trace.read_text()
    assert "ProfilerStep#3" in text and "ProfilerStep#4" in text and "ProfilerStep#5" not in text


@pytest.mark.torch
def test_a_session_behind_an_import_takes_the_place_of_the_whole(workplace: Workplace) -> None:
    pytest.importorskip("torch")
    code = """
        import torch, capture
        def go():
            capture.profile(lambda: torch.ones(8).sum(), output_dir="inner", wait=0, warmup=0)
    """
    workplace.script(code, name="library.py")
    done = workplace.command("run", "-o", "out", workplace.script("import library; library.go()"))
    assert done.returncode == 0, done.stderr
    (record,) = workplace.manifests("out")
    assert (record.schedule["unit"], record.status) == ("step", "complete")
    assert len(list(workplace.path.rglob("trace.json"))) == 1


@pytest.mark.torch
def test_training_loop_example_and_its_overhead(workplace: Workplace) -> None:
    pytest.importorskip("torch")
    done = workplace.python(EXAMPLES / "train_loop.py")
    assert done.returncode == 0, done.stderr
    (record,) = workplace.manifests("train")
    assert record.schedule["recorded_step_count"] == 3
    measured = workplace.python(EXAMPLES / "train_loop.py", "--overhead")
    assert measured.returncode == 0, measured.stderr
    assert measured.stdout.count("ms/step") == 5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nowhere.py"], "no such script"),
        (["run", "-m", "torch.distributed.run", "x.py"], "capture those, not the launcher"),
        (["run", "--active", "0", "script.py"], "at least 1"),
        (["run", "--modes", "DEVIC", "script.py"], "unknown mode"),
        (["run", "--label", "x", "script.py"], "NAME=VALUE"),
        (["run", "--env-only", "nosuchcommand"], "cannot be started"),
        (["run", "--env-only", "--optimizer-steps", "--active", "2", "script.py"], "--active, --optimizer-steps"),
        (["check", "nowhere"], "no such directory"),
        (["export", "nowhere"], "no such directory"),
        (["pack", "nowhere", "-o", "x.tar.zst"], "no such directory"),
    ],
)
def test_wrong_input_is_two_lines_and_exit_code_two(workplace: Workplace, arguments: list[str], words: str) -> None:
    pytest.importorskip("torch")
    workplace.script("")
    done = workplace.command(*arguments)
    assert done.returncode == 2
    assert words in done.stderr and "Traceback" not in done.stderr


def test_check_speaks_json(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["check", str(tmp_path), "--json"])
    assert done.exit_code == 1
    answer = json.loads(done.output)
    assert answer["is_good"] is False and answer["findings"][0]["code"] == "empty-directory"


def test_doctor_names_conflicts_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("NEURON_RT_INSPECT_ENABLE", "1")
    done = CliRunner().invoke(cli, ["doctor", "-o", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "conflicts with torch.profiler" in done.output and "unset NEURON_RT_INSPECT_ENABLE" in done.output
    assert max(map(len, done.output.splitlines())) <= 120
    assert not (tmp_path / "out").exists()
    monkeypatch.delenv("NEURON_RT_INSPECT_ENABLE")
    assert CliRunner().invoke(cli, ["doctor", "-o", str(tmp_path / "out")]).exit_code == 0


@pytest.mark.torch
@pytest.mark.parametrize(("version", "words"), [("old", "does not know"), ("new", "all options known")])
def test_doctor_knows_the_installed_api(workplace: Workplace, version: str, words: str) -> None:
    pytest.importorskip("torch")
    done = workplace.command("doctor", standin=version)
    assert done.returncode == 0, done.stderr
    assert words in done.stdout and "HBM" in done.stdout and "device: neuron" in done.stdout


def test_doctor_without_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    items = {item.name: item for item in doctor.examine(tmp_path)}
    assert items["torch"].severity == "error" and "pip install" in items["torch"].fix
