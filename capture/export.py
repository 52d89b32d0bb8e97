"""Let the vendor's tool turn runtime traces into Parquet, so that the laptop needs no Neuron software.

Documented: ``neuron-explorer view -d DIR --ingest-only --display-name NAME``, with ``--ignore-device-profile`` or
``--ignore-system-profile`` to do one half, and ``--data-path P``, after which the tables lie in
``P/profiles/global/NAME@latest/``. The system trace comes first: it is small and answers most questions.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from capture import checks, host
from capture.errors import CaptureError

TOOL_NAME = "neuron-explorer"
FOLDER = "explorer"
POLL_S = 0.1


@dataclass(frozen=True)
class Limits:
    """Where the vendor's tool is stopped.

    Args:
        time_s: seconds per half.
        memory_bytes: resident memory of the tool and its children, bytes.
    """

    time_s: float = 1800.0
    memory_bytes: int = 8 * 10**9


@dataclass(frozen=True)
class HalfResult:
    """How one half of the export went.

    Args:
        half: "system" or "device".
        problem: why it did not work; empty when it did.
        fix: what to do then.
        table_count: Parquet files that this half wrote.
    """

    half: str
    problem: str
    fix: str
    table_count: int


def export(directory: Path, limits: Limits, halves: Sequence[str] = ("system", "device")) -> list[HalfResult]:
    """Export the captures below a directory into its ``explorer`` folder.

    A half that fails does not take the other with it; each is written beside and moved when it is whole.

    Returns:
        One result per half; empty when the vendor's tool is not on this machine.

    Raises:
        CaptureError: nothing below the directory is a runtime trace.
    """
    contents = [checks.read_contents(path) for path in checks.find_sessions(directory)]
    if not any("ntrace.pb" in session.names or session.ntffs for session in contents):
        raise CaptureError(
            f"{directory}: no runtime or device trace to export",
            hint="captures from CPU and GPU need no export: tracekit analyze reads them as they are",
        )
    tool = host.find_vendor_tool(TOOL_NAME)
    if tool is None:
        return []
    return [_export_half(tool, directory.resolve(), half, limits) for half in halves]


def _export_half(tool: Path, directory: Path, half: str, limits: Limits) -> HalfResult:
    other = "device" if half == "system" else "system"
    draft = directory / FOLDER / f".{half}.part"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    command = [
        str(tool),
        "view",
        "-d",
        str(directory),
        "--ingest-only",
        f"--ignore-{other}-profile",
        "--data-path",
        str(draft),
        "--display-name",
        f"{directory.name}-{half}",
    ]
    try:
        problem, fix = _run_limited(command, draft / "log", limits)
        tables = sorted(draft.rglob("*.parquet"))
        if not problem and not tables:
            problem, fix = "it ended well but wrote no Parquet", f"see {directory / FOLDER / f'{half}.log'}"
        if not problem:
            _publish(draft, directory / FOLDER / half)
        return HalfResult(half, problem, fix, 0 if problem else len(tables))
    finally:
        with contextlib.suppress(OSError):
            (draft / "log").replace(directory / FOLDER / f"{half}.log")
        shutil.rmtree(draft, ignore_errors=True)


def _publish(draft: Path, final: Path) -> None:
    """Move a whole result to its name, in place of an older one."""
    log = draft / "log"
    if log.exists():
        log.replace(final.parent / f"{final.name}.log")
    shutil.rmtree(final, ignore_errors=True)
    draft.rename(final)


def _run_limited(command: Sequence[str], log: Path, limits: Limits) -> tuple[str, str]:
    """Run the tool, within limits.

    Returns:
        A problem and its fix; both empty when it went well.
    """
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            return f"{command[0]} does not start: {error}", "reinstall aws-neuronx-tools"
        deadline = time.monotonic() + limits.time_s
        try:
            return _watch(process, deadline, limits, log)
        finally:
            _kill_group(process)


def _watch(process: subprocess.Popen[bytes], deadline: float, limits: Limits, log: Path) -> tuple[str, str]:
    while process.poll() is None:
        if time.monotonic() > deadline:
            fix = "capture fewer steps or cores, or allow more with --time-limit"
            return f"stopped after {limits.time_s:.0f} s", fix
        if group_memory_bytes(process.pid) > limits.memory_bytes:
            fix = "capture fewer steps or cores, or allow more with --memory-limit"
            return f"stopped: it used more than {limits.memory_bytes / 1e9:.1f} GB", fix
        time.sleep(POLL_S)
    if process.returncode:
        return f"ended with exit code {process.returncode}: {_last_line(log)}", f"see {log.parent.parent}/*.log"
    return "", ""


def group_memory_bytes(group: int) -> int:
    """Resident memory of a process group, bytes, from /proc; 0 where there is none."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[2]) == group:
                total += int(fields[21]) * page
    return total


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "no output")
