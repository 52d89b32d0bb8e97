"""Look at a capture before anyone copies it: is everything there, and what to change if not?"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from capture import host, layout, manifest, tracefile
from capture.errors import CaptureError
from capture.options import parse_ranges

LARGE_NTFF_BYTES = 5 * 1024**3
SEVERITIES = ("error", "warning", "note")
# In the reason of a capture that gave way; torch has one profiler per process.
OTHER_PROFILER = "a torch profiler of its own"
_OTHER_PROFILER_FIX = "switch the program's own profiler off, or let its trace be the capture: tracekit reads it too"
_NEFF = re.compile(r"^neff_(\d+)(?:_vnc_\d+)?\.neff$")
_MODEL_NTFF = re.compile(r"^(\d+)(?:_instid_\d+)?_vnc_\d+\.ntff$")


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or worth knowing, and what to change.

    Args:
        severity: "error" (the capture does not answer), "warning" (in part), "note" (normal, but good to know).
        code: short and stable, for scripts.
        path: what it is about.
        problem: what was seen.
        fix: what to do; empty for a note that needs nothing.
    """

    severity: str
    code: str
    path: Path
    problem: str
    fix: str = ""


@dataclass
class SessionContents:
    """The files of one session directory, and its manifest where there is one."""

    directory: Path
    manifest: manifest.Manifest | None = None
    trace: tracefile.TraceScan | None = None
    trace_path: Path | None = None
    neffs: list[Path] = field(default_factory=list)
    ntffs: list[Path] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    @property
    def modes(self) -> frozenset[str]:
        """ProfileMode names that the manifest promises."""
        return frozenset(self.manifest.modes) if self.manifest else frozenset()

    @property
    def device_kind(self) -> str | None:
        """Device kind of the manifest; null where there is none."""
        kind = self.manifest.device.get("kind") if self.manifest else None
        return kind if isinstance(kind, str) else None


@dataclass
class Report:
    """What ``check`` found in a directory."""

    directory: Path
    sessions: list[SessionContents]
    findings: list[Finding]

    @property
    def is_good(self) -> bool:
        """True when there is no error."""
        return all(finding.severity != "error" for finding in self.findings)

    def count(self, severity: str) -> int:
        """Findings of one severity."""
        return sum(finding.severity == severity for finding in self.findings)


def check(directory: Path) -> Report:
    """Check everything below a directory.

    Raises:
        CaptureError: there is no such directory.
    """
    if not directory.is_dir():
        raise CaptureError(f"{directory}: no such directory", hint="give the directory that the capture wrote to")
    return check_sessions(directory, find_sessions(directory))


def find_sessions(directory: Path) -> list[Path]:
    """Directories at any depth that hold a trace, a manifest, or files of the Neuron runtime."""
    found = set()
    for parent, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if name not in ("explorer", "neff_cache"))
        if any(_is_session_file(name) for name in names):
            found.add(Path(parent))
    return sorted(found)


def _is_session_file(name: str) -> bool:
    return name in (manifest.FILE_NAME, *layout.TRACE_NAMES, "ntrace.pb", "trace_info.pb") or name.endswith(".ntff")


def check_sessions(directory: Path, session_directories: Sequence[Path]) -> Report:
    """Check given session directories as one capture."""
    sessions = [read_contents(path) for path in session_directories]
    findings = [finding for session in sessions for finding in _check_session(session)]
    if not sessions:
        findings.append(
            Finding(
                "error",
                "empty-directory",
                directory,
                "holds no capture",
                "profiling was not enabled, or the work did not run on the device: wrap it in capture.session(), "
                "or start it with tracekit-capture run",
            )
        )
    findings = _soften_lost_cycles(findings, sessions)
    findings += _check_ranks(directory, sessions)
    findings += _check_disk(directory)
    order = {severity: position for position, severity in enumerate(SEVERITIES)}
    findings.sort(key=lambda finding: (order[finding.severity], str(finding.path), finding.code))
    return Report(directory, sessions, findings)


def read_contents(directory: Path) -> SessionContents:
    """List a session directory and look into its trace."""
    contents = SessionContents(directory)
    for path in sorted(directory.iterdir()):
        if not path.is_file():
            continue
        contents.names.add(path.name)
        if path.suffix == ".neff":
            contents.neffs.append(path)
        elif path.suffix == ".ntff":
            contents.ntffs.append(path)
    contents.trace_path = next((directory / n for n in layout.TRACE_NAMES if n in contents.names), None)
    if contents.trace_path is not None:
        contents.trace = tracefile.scan(contents.trace_path)
    if manifest.FILE_NAME in contents.names:
        try:
            contents.manifest = manifest.read(directory)
        except CaptureError:
            contents.manifest = None
    return contents


def _check_session(session: SessionContents) -> Iterable[Finding]:
    yield from _check_manifest(session)
    yield from _check_trace(session)
    yield from _check_neuron_files(session)


def _check_manifest(session: SessionContents) -> Iterable[Finding]:
    path = session.directory
    found = session.manifest
    if found is None:
        if manifest.FILE_NAME in session.names:
            yield Finding("warning", "manifest-unreadable", path, f"{manifest.FILE_NAME} is damaged", "capture again")
        else:
            text = f"no {manifest.FILE_NAME}: modes, versions and labels are unknown"
            yield Finding("note", "manifest-missing", path, text, "capture with this tool to have them")
        return
    if found.status == "running":
        yield _running(session, found)
    elif found.status == "failed":
        text = f"the export failed: {found.reason}"
        yield Finding("error", "export-failed", path, text, _failure_fix(found.reason or ""))
    elif found.status == "incomplete":
        yield Finding("warning", "incomplete", path, found.reason or "stopped early", _incomplete_fix(session))
    for note in found.notes:
        if note.get("code") == "option-dropped":
            yield Finding("warning", note["code"], path, note.get("message", ""), note.get("hint", ""))


def _running(session: SessionContents, found: manifest.Manifest) -> Finding:
    pid = found.process.get("pid")
    is_here = found.host.get("hostname_hash") == host.hostname_hash()
    if is_here and isinstance(pid, int) and Path(f"/proc/{pid}").exists() and pid != os.getpid():
        fix = "wait until it ends"
        return Finding("note", "still-running", session.directory, f"process {pid} is still capturing", fix)
    kept = "its trace is kept" if session.trace_path else "no trace was exported before that"
    return Finding(
        "warning" if session.trace_path else "error",
        "killed",
        session.directory,
        f"the process ended without closing the capture (killed, or out of memory); {kept}",
        "capture fewer steps, leave out with_stack and DEVICE mode, or use a machine with more memory",
    )


def _soften_lost_cycles(findings: list[Finding], sessions: Sequence[SessionContents]) -> list[Finding]:
    """A killed cycle is a warning where the same process exported another one: that one can be analysed."""
    exported = {session.directory.parent for session in sessions if session.trace_path is not None}
    return [
        replace(finding, severity="warning")
        if finding.code == "killed" and finding.path.parent in exported
        else finding
        for finding in findings
    ]


def _failure_fix(reason: str) -> str:
    if "full" in reason or "space" in reason:
        return "free some space or write to a larger disk; capture fewer steps, or leave out with_stack"
    if OTHER_PROFILER in reason:
        return _OTHER_PROFILER_FIX
    return "see the message; tracekit-capture doctor may know more"


def _incomplete_fix(session: SessionContents) -> str:
    schedule = session.manifest.schedule if session.manifest else {}
    reason = session.manifest.reason if session.manifest else None
    if reason and OTHER_PROFILER in reason:
        return _OTHER_PROFILER_FIX
    if reason and not reason.startswith("stopped"):
        return "let the program reach the end of the schedule; what is recorded can be analysed"
    if schedule.get("unit") == "whole":
        return "let the program end by itself"
    names = ("wait", "warmup", "active")
    parts = [value for name in names if isinstance(value := schedule.get(name), int)]
    return f"run at least {sum(parts)} steps per cycle, each ended by step(), or shorten the schedule"


def _check_trace(session: SessionContents) -> Iterable[Finding]:
    path = session.trace_path
    scan = session.trace
    if path is None or scan is None:
        if session.manifest is None or session.manifest.status in ("complete", "failed"):
            is_env = bool(session.manifest and session.manifest.options.get("env_only"))
            if is_env or (session.manifest is None and "ntrace.pb" in session.names):
                text = "no trace.json: a runtime-only capture has no operators"
                yield Finding("note", "trace-missing", session.directory, text)
            else:
                text = "no trace.json: nothing was exported"
                fix = "let the schedule reach its active steps: call step() after each one"
                yield Finding("error", "trace-missing", session.directory, text, fix)
        return
    if scan.problem:
        yield Finding("error", "trace-unreadable", path, scan.problem, "capture again, or copy the file again")
    elif scan.size_bytes == 0:
        yield Finding("error", "trace-empty", path, "is 0 bytes", "the disk was full, or the process was killed")
    elif not scan.is_complete:
        yield Finding(
            "warning" if scan.event_count else "error",
            "trace-cut",
            path,
            f"is cut: its end is missing, {scan.event_count:,} events are left",
            "the process was killed or the disk ran full while it was written: capture fewer steps, or free space",
        )
    elif scan.event_count == 0:
        yield Finding("error", "trace-empty", path, "holds no events", "nothing ran in the active steps")
    yield from _check_device_events(session, path, scan)


def _check_device_events(session: SessionContents, path: Path, scan: tracefile.TraceScan) -> Iterable[Finding]:
    if session.device_kind in (None, "cpu") or scan.device_event_count or not scan.event_count:
        return
    has_system_trace = "ntrace.pb" in session.names
    yield Finding(
        "warning" if has_system_trace else "error",
        "no-device-events",
        path,
        f"{scan.event_count:,} events, none of them on the {session.device_kind} device",
        "move the model and its inputs to the device, and run the work inside the active steps",
    )


def _check_neuron_files(session: SessionContents) -> Iterable[Finding]:
    path = session.directory
    promised = session.modes if session.manifest and session.manifest.status != "running" else frozenset()
    for mode, names in (
        ("RUNTIME", ("ntrace.pb", "trace_info.pb")),
        ("CPU_UTIL", ("cpu_util.pb",)),
        ("HOST_MEMORY", ("host_mem.pb",)),
    ):
        missing = [name for name in names if name not in session.names or not (path / name).stat().st_size]
        if mode in promised and missing:
            severity = "error" if mode == "RUNTIME" else "warning"
            text = f"mode {mode} was on, but {' and '.join(missing)} is missing or empty"
            fix = "nothing ran on the device in the active steps, or NEURON_RT_INSPECT_ENABLE was set: unset it"
            yield Finding(severity, f"{mode.lower().replace('_', '-')}-missing", path, text, fix)
    if "DEVICE" in promised and not session.ntffs:
        is_env = bool(session.manifest and session.manifest.options.get("env_only"))
        earlier = "executions than --skip says" if is_env else "steps before the active ones (wait + warmup >= 3)"
        fix = f"run {'more' if is_env else 'at least 3'} {earlier}, on the device"
        yield Finding("error", "ntff-missing", path, "mode DEVICE was on, but there is no .ntff", fix)
    yield from _check_ntffs(session)
    yield from _check_neffs(session)


def _check_ntffs(session: SessionContents) -> Iterable[Finding]:
    empty = [path for path in session.ntffs if path.stat().st_size == 0]
    if empty and len(empty) == len(session.ntffs):
        yield Finding(
            "error",
            "ntff-empty",
            session.directory,
            f"all {len(empty)} .ntff files are 0 bytes: no execution was recorded on any core",
            "warm up with 3 steps or more, and call torch.neuron.synchronize() before the end (step() does)",
        )
    elif empty:
        text = f"{len(empty)} of {len(session.ntffs)} .ntff files are 0 bytes: cores that this process never used"
        fix = "normal; NEURON_RT_NUM_CORES set to what you use avoids it"
        yield Finding("note", "ntff-empty", session.directory, text, fix)
    for path in session.ntffs:
        if path.stat().st_size > LARGE_NTFF_BYTES:
            fix = 'capture fewer steps, or fewer cores: capture_enabled_for_nc="0"'
            text = "is larger than 5 GB: the vendor's tools may fail on it"
            yield Finding("warning", "ntff-large", path, text, fix)


def _check_neffs(session: SessionContents) -> Iterable[Finding]:
    used = [path for path in session.ntffs if path.stat().st_size]
    cached = " or ".join(("neff_cache_dir=...", "TORCH_NEURONX_NEFF_CACHE_DIR"))
    fix = f"set {cached} before the capture; for this one, pack with --neff-cache DIR"
    if used and not session.neffs:
        text = f"{len(used)} device traces, but no .neff: they cannot be read without the graphs they ran"
        yield Finding("error", "neff-missing", session.directory, text, fix)
        return
    hashes = {match[1] for path in session.neffs if (match := _NEFF.match(path.name))}
    for path in used:
        match = _MODEL_NTFF.match(path.name)
        if match and match[1] not in hashes:
            yield Finding("error", "neff-missing", path, f"its graph neff_{match[1]} is missing", fix)
    for path in session.neffs:
        if path.stat().st_size == 0:
            text = "is 0 bytes: the disk was full when it was copied"
            yield Finding("error", "neff-empty", path, text, "free space, then pack with --neff-cache DIR")


def _check_ranks(directory: Path, sessions: Sequence[SessionContents]) -> Iterable[Finding]:
    """Compare the ranks that wrote something with those that should have."""
    jobs: dict[str, list[manifest.Manifest]] = defaultdict(list)
    for session in sessions:
        run_id = session.manifest.process.get("run_id") if session.manifest else None
        if session.manifest is not None and isinstance(run_id, str):
            jobs[run_id].append(session.manifest)
    for members in jobs.values():
        world_size = members[0].process.get("world_size")
        if not isinstance(world_size, int):
            continue
        rank_filter = members[0].process.get("rank_filter")
        chosen = parse_ranges(rank_filter) if isinstance(rank_filter, str) else None
        expected = {rank for rank in range(world_size) if chosen is None or rank in chosen}
        missing = sorted(expected - {rank for m in members if isinstance(rank := m.process.get("rank"), int)})
        if missing:
            yield Finding(
                "warning",
                "rank-missing",
                directory,
                f"{len(expected) - len(missing)} of {len(expected)} ranks are here; "
                f"missing: {', '.join(map(str, missing))}",
                "copy the directories of the other machines here, or see why those ranks ended early",
            )


def without_other_ranks(findings: Sequence[Finding]) -> list[Finding]:
    """Without missing ranks: while a job ends, the others may not be done."""
    return [finding for finding in findings if finding.code != "rank-missing"]


def _check_disk(directory: Path) -> Iterable[Finding]:
    free = layout.free_bytes_or_none(directory)
    if free is not None and free < 16 * 1024 * 1024:
        text = f"the disk is full ({free // 1024:,} KiB left): files may be cut"
        yield Finding("error", "disk-full", directory, text, "free some space or write to a larger disk with -o")
