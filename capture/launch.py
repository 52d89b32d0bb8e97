"""Start a program under capture, watch it, and look at what it left, however it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

from capture import checks, host, layout, manifest
from capture.errors import CaptureError
from capture.options import COMPILE_TIME_VARIABLES, DEFAULT_DIRECTORY, LEDGER_VARIABLE, OVERRIDES_VARIABLE
from capture.redaction import redacted_command

PLAN_VARIABLE = "TRACEKIT_CAPTURE_PLAN"
LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "torchrun")


@dataclass(frozen=True)
class Target:
    """What to run.

    Args:
        name: a script, a module, or (without Python) a command.
        arguments: its arguments.
        is_module: run it like ``python -m``.
    """

    name: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False


@dataclass
class Outcome:
    """How a run ended.

    Args:
        exit_code: of the program; 128 + signal number if a signal ended it.
        report: what check found in the directories that it wrote.
        remark: what the user should know besides; empty when nothing.
    """

    exit_code: int
    report: checks.Report
    remark: list[str] = field(default_factory=list)


def run_profiled(target: Target, output_dir: Path | None, overrides: dict[str, Any], unit: str) -> Outcome:
    """Run a Python program with torch.profiler on.

    Args:
        target: the program.
        output_dir: where captures go; where the program's sessions say when null.
        overrides: options that win over those of sessions in the program.
        unit: "auto" (by the program's own sessions, else the whole), "whole", or "optimizer" (each
            optimizer step ends a step).

    Raises:
        CaptureError: the program is not there, or is a launcher of other programs.
    """
    _require_python_target(target)
    if output_dir is not None:
        layout.prepare(output_dir)
        overrides = {**overrides, "output_dir": str(output_dir.resolve())}
    plan = {"name": target.name, "is_module": target.is_module, "unit": unit}
    environment = _python_environment()
    environment[OVERRIDES_VARIABLE] = json.dumps(overrides)
    environment[PLAN_VARIABLE] = json.dumps(plan)
    if overrides.get("compile_debug"):
        environment.update(dict.fromkeys(COMPILE_TIME_VARIABLES, "1"))
    with tempfile.TemporaryDirectory(prefix="tracekit-capture-") as scratch:
        ledger = Path(scratch) / "ledger"
        environment[LEDGER_VARIABLE] = str(ledger)
        command = [sys.executable, "-m", "capture.child", *target.arguments]
        exit_code = _run(command, environment)
        directories = _ledger_sessions(ledger)
    report = checks.check_sessions(output_dir or _common_directory(directories), directories)
    if "RANK" in os.environ:  # this process is one of several ranks
        report = replace(report, findings=checks.without_other_ranks(report.findings))
    return Outcome(exit_code, report, _remarks(exit_code, directories, target))


def _common_directory(sessions: Sequence[Path]) -> Path:
    """The deepest directory that holds the output directories of all sessions."""
    outputs = [
        path.parents[1] if layout.PROCESS_DIRECTORY.match(path.parent.name) else path.parent for path in sessions
    ]
    return Path(os.path.commonpath(outputs)) if outputs else Path(DEFAULT_DIRECTORY)


def _require_python_target(target: Target) -> None:
    if (target.is_module and target.name in LAUNCHERS) or Path(target.name).name == "torchrun":
        raise CaptureError(
            f"{target.name} starts other processes: capture those, not the launcher",
            hint="torchrun --nproc-per-node 4 -m capture run SCRIPT [ARGS]",
        )
    if not target.is_module and not Path(target.name).is_file():
        raise CaptureError(f"{target.name}: no such script", hint="give a .py file, or -m MODULE")


def _python_environment() -> dict[str, str]:
    """This environment, where ``capture`` can be imported although it may not be installed."""
    environment = dict(os.environ)
    if host.package_version("tracekit") is None:
        parts = [str(Path(__file__).resolve().parents[1]), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(part for part in parts if part)
    return environment


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    """Run a child in the foreground; SIGTERM and SIGHUP are passed on, Ctrl-C reaches it by itself.

    Returns:
        Its exit code; 128 + number if a signal ended it, as a shell says it.
    """
    try:
        child = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise CaptureError(
            f"{command[0]} cannot be started: {error.strerror or error}",
            hint="give a .py file, -m MODULE, or a command that is on PATH",
        ) from error

    def pass_on(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    handlers: dict[signal.Signals, Any] = {signal.SIGTERM: pass_on, signal.SIGINT: signal.SIG_IGN}
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # nohup ignores it
        handlers[signal.SIGHUP] = pass_on
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _ledger_sessions(ledger: Path) -> list[Path]:
    """Session directories that the program and its children said they write to."""
    if not ledger.exists():
        return []
    named = [Path(line) for line in ledger.read_text().splitlines() if line]
    return sorted({found for path in named if path.is_dir() for found in checks.find_sessions(path)})


def _remarks(exit_code: int, directories: Sequence[Path], target: Target) -> list[str]:
    remarks = []
    if exit_code > 128:
        name = signal.Signals(exit_code - 128).name if exit_code - 128 in set(signal.Signals) else str(exit_code)
        memory = " (often: out of memory)" if name == "SIGKILL" else ""
        remarks.append(f"{target.name} was ended by {name}{memory}; what was exported before is kept")
    elif exit_code:
        remarks.append(f"{target.name} ended with exit code {exit_code}; what was exported before is kept")
    if not directories and not exit_code:
        remarks.append(
            f"{target.name} opened no capture: it imports `capture`, but no session was started; "
            "with --whole all of the program is captured"
        )
    return remarks


def run_with_variables(
    target: Target, output_dir: Path, variables: dict[str, str], labels: dict[str, str], modes: list[str]
) -> Outcome:
    """Run any program with the runtime's own variables set, for workloads that cannot be changed.

    The runtime writes layout B (no framework events, no timestamp level); a manifest is put beside it.
    """
    layout.prepare(output_dir)
    before = set(checks.find_sessions(output_dir))
    record = _variable_manifest(variables, labels, modes)
    record.start_clock()
    exit_code = _run(_command_of(target), {**_python_environment(), **variables})
    record.stop_clock()
    directories = [path for path in checks.find_sessions(output_dir) if path not in before]
    record.status = "complete" if exit_code == 0 else "incomplete"
    record.reason = None if exit_code == 0 else f"the program ended with exit code {exit_code}"
    for directory in directories:
        match = layout.PROCESS_DIRECTORY.match(directory.name)
        record.process["pid"] = int(match["pid"]) if match else None
        record.session["name"] = layout.session_name(directory)
        record.files = layout.list_files(directory)
        manifest.write(record, directory)
    report = checks.check_sessions(output_dir, directories)
    remarks = _remarks(exit_code, [output_dir], target)
    if not directories:
        remarks.append(
            "the Neuron runtime wrote nothing: the program did not use it. Without Neuron, leave out --env-only"
        )
    return Outcome(exit_code, report, remarks)


def _command_of(target: Target) -> list[str]:
    if target.is_module:
        return [sys.executable, "-m", target.name, *target.arguments]
    if target.name.endswith(".py"):
        if not Path(target.name).is_file():
            raise CaptureError(f"{target.name}: no such script", hint="give a .py file, -m MODULE, or a command")
        return [sys.executable, target.name, *target.arguments]
    return [target.name, *target.arguments]


def _variable_manifest(variables: dict[str, str], labels: dict[str, str], modes: list[str]) -> manifest.Manifest:
    python_version = sys.version.split()[0]
    versions = {"python": python_version, "torch": host.package_version("torch"), **host.neuron_versions()}
    return manifest.Manifest(
        tool=host.tool_section(),
        host=host.host_section(),
        versions={**versions, "cuda": None},
        device={"kind": "neuron", "backend": None, "name": None, "device_count": None},
        process=host.rank_section(None),
        schedule={"unit": "whole", "wait": None, "warmup": None, "active": None, "repeat": None},
        session={"name": None, "cycle": 0},
        modes=modes,
        options={"env_only": True},
        env={**host.allowed_environment(), **variables},
        git=host.git_section(Path.cwd()),
        command=redacted_command(sys.argv),
        labels=labels,
    )
