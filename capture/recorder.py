"""Capture a workload: ``with capture.session(dir) as s: ... s.step()``."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from capture import checks, devices, forks, host, layout, manifest, neuron, other_profilers, records, signals
from capture.errors import CaptureError, warn
from capture.options import (
    COMPILE_TIME_VARIABLES,
    LEDGER_VARIABLE,
    Options,
    environment_overrides,
    parse_ranges,
)
from capture.text import human_bytes, one_line, report_lines

# torch has one profiler per process; so has this module.
_current: list[Session] = []
# Profilers that only their own process or thread could end: kept, since torch may end them when they are collected.
_left_alone: list[object] = []


class Session:
    """One capture of this process. Made by ``session``, ``profile`` or ``profiled``.

    Args:
        output_dir: where captures go; each process gets its own directory below.
        options: see ``Options``.
    """

    def __init__(self, output_dir: Path, options: Options) -> None:
        self.output_dir = output_dir
        self.options = options
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Forget an earlier capture: a session can be used again after its end."""
        self.directories: list[Path] = []
        self.report: checks.Report | None = None
        self.step_count = 0
        self.is_superseded = False
        self._prof: Any = None
        self._device: devices.Device | None = None
        self._setup: neuron.NeuronSetup | None = None
        self._open: tuple[Path, manifest.Manifest] | None = None
        self._cycle = 0
        self._interruption: str | None = None
        self._is_stopping = False
        self._thread = threading.get_ident()
        self._signals = signals.EndingSignals(self._interrupt, lambda: self._is_stopping)
        self._others = other_profilers.OtherProfilers(self._is_own_profiler, self._end_for_another)

    @property
    def is_active(self) -> bool:
        """True between start and stop, on a rank that is profiled."""
        return self._prof is not None

    @property
    def directory(self) -> Path | None:
        """The last directory that got a trace, or is about to; null on a rank that is not profiled."""
        if self.directories:
            return self.directories[-1]
        return self._open[0] if self._open else None

    def start(self) -> Session:
        """Start the profiler.

        Raises:
            CaptureError: another capture is on, the directory cannot be written, or the device or the API
                that was asked for is not there.
        """
        chosen = parse_ranges(self.options.ranks)
        if chosen is not None and (host.integer_variable("RANK") or 0) not in chosen:
            return self
        if _current:
            _current[-1].give_way()
        self._begin_anew()
        self.output_dir = self.output_dir.absolute()  # the program may change its working directory
        free = layout.prepare(self.output_dir)
        self._set_compile_variables()
        self._device = devices.detect(self.options.device)
        other_profilers.refuse_if_on(self._device.kind)
        if self._device.kind == "neuron":
            self._setup = neuron.build(self.output_dir, self.options)
        self._begin_cycle()
        self._warn_at_start(free)
        config = self._setup.config if self._setup is not None else None
        self._prof = devices.make_profiler(self._device, self.options, config, self._on_trace_ready)
        _watch_forks()
        self._prof.start()
        _current.append(self)
        self._others.watch()
        self._signals.catch()
        atexit.register(self.stop)
        return self

    def step(self) -> None:
        """End a step: wait for the device, then tell the profiler. Does nothing on a rank not profiled."""
        if self._prof is None or self._device is None:
            return
        self._device.synchronize()
        self.step_count += 1
        if self.options.whole:
            return
        with self._recorded_failure("profiler step"):
            self._prof.step()
        position = self.step_count - self._cycle * self.options.cycle_step_count
        has_more = self._cycle < self.options.repeat
        if self._open is None and has_more and position == self.options.wait:
            with self._recorded_failure("starting a cycle"):
                self._begin_cycle()

    def stop(self) -> None:
        """Wait for the device, export what was recorded, close the manifest and check the result."""
        if self._prof is None or self._device is None or self._is_stopping:
            return
        self._is_stopping = True
        prof = self._prof
        try:
            with self._recorded_failure("waiting for the device"):
                self._device.synchronize()
            with self._recorded_failure("export"):
                prof.stop()
        finally:
            self._let_go()
            with self._recorded_failure("closing the capture"):
                self._close_unexported()
        if not self.is_superseded:
            self._check_and_tell()
        if self._signals.exit_code is not None:
            raise SystemExit(self._signals.exit_code)

    def _let_go(self) -> None:
        """Take back everything that this process shows of the capture."""
        self._prof = None
        _current.remove(self)
        atexit.unregister(self.stop)
        self._others.release()
        self._signals.release()

    def give_way(self) -> None:
        """Make room for a session that the script opens itself, if this one is the whole program's.

        Raises:
            CaptureError: this one is not; two at once are impossible.
        """
        if not self.options.whole or not environment_overrides():
            raise CaptureError(
                "a capture is already on in this process",
                hint="torch has one profiler: end the first session before the second one starts",
            )
        self.is_superseded = True
        self.stop()

    def leave_to_parent(self) -> None:
        """In a forked child: the capture is the parent's; its copy here must not be stopped (that would hang)."""
        _left_alone.append(self._prof)
        self._let_go()
        self._open = None

    def _is_own_profiler(self, profiler: object) -> bool:
        return self._prof is None or profiler is self._prof.profiler

    def _end_for_another(self) -> None:
        """The program starts a profiler of its own: end this one while it can still be exported."""
        if self._is_stopping:
            return
        self._interruption = f"the program started {checks.OTHER_PROFILER}"
        if threading.get_ident() == self._thread:
            self.stop()
            return
        _left_alone.append(self._prof)  # torch can end a profiler only in the thread that started it
        self._let_go()
        with self._recorded_failure("profiler"):
            raise CaptureError(f"{self._interruption}, in another thread")
        with self._recorded_failure("closing the capture"):
            self._close_unexported()
        self._check_and_tell()

    def __enter__(self) -> Session:
        return self.start()

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exception is not None and self._interruption is None:
            self._interruption = _interruption_of(exception)
        self.stop()

    # --- the profiler -----------------------------------------------------------------------------

    def _on_trace_ready(self, prof: Any) -> None:
        """Export one cycle. A failure is recorded and told, but never ends the user's program."""
        if self.is_superseded:
            return
        if self._open is None:
            with self._recorded_failure("starting a cycle"):
                self._begin_cycle()
        if self._open is None:
            self._cycle += 1
            return
        directory, record = self._open
        started_ns = time.time_ns()
        before = layout.own_session_directories(self.output_dir)
        with self._recorded_failure("export"):
            if not other_profilers.has_recording(prof):
                raise CaptureError("another profiler of this process ended the recording")
            directory.mkdir(parents=True, exist_ok=True)  # the program may have deleted it
            if self._setup is not None:
                self._setup.export(prof)
                written = records.written_since(self.output_dir, before, started_ns)
            else:
                prof.export_chrome_trace(str(directory / "trace.json"))
                written = [directory]
            if not written:
                raise OSError(f"export_trace wrote no trace.json below {self.output_dir}")
            for path in written:
                records.assert_whole(path)
        targets = records.written_since(self.output_dir, before, started_ns) if self._setup else [directory]
        self._close_cycle(record, targets or [directory])

    # --- the manifest -----------------------------------------------------------------------------

    def _begin_cycle(self) -> None:
        """Open a directory and a manifest that says "running", so that a killed run can be told from a good one.

        On Neuron the vendor's runtime makes the session directory at the end; until then the manifest waits
        in the process's directory.
        """
        if self._setup is None:
            directory = layout.new_session_directory(self.output_dir)
        else:
            directory = self.output_dir / layout.process_directory_name()
            directory.mkdir(parents=True, exist_ok=True)
        assert self._device is not None
        record = records.make_manifest(directory, self.options, self._device.section, self._setup, self._cycle)
        try:
            manifest.write(record, directory)
        except OSError:
            records.remove_session(directory)
            raise
        records.append_to_ledger(directory)
        self._open = (directory, record)

    def _close_cycle(self, record: manifest.Manifest, directories: list[Path]) -> None:
        """Write the final manifest beside the trace, wherever the trace is."""
        pending = self._open[0] if self._open else None
        recorded = self._recorded_step_count()
        record.schedule["step_count"] = self.step_count
        record.schedule["recorded_step_count"] = None if self.options.whole else recorded
        is_short = not self.options.whole and recorded < self.options.active
        if record.status != "failed":
            record.status = "incomplete" if is_short or self._interruption else "complete"
        if record.status == "incomplete":
            record.reason = self._incomplete_reason(recorded)
        record.stop_clock()
        for directory in directories:
            record.session["name"] = layout.session_name(directory)
            record.files = layout.list_files(directory)
            with self._told_failure(f"{directory}: writing {manifest.FILE_NAME}"):
                manifest.write(record, directory)
            if directory not in self.directories:
                self.directories.append(directory)
            records.append_to_ledger(directory)
        if pending is not None and pending not in directories:
            with contextlib.suppress(OSError):
                (pending / manifest.FILE_NAME).unlink()
                pending.rmdir()
        self._open = None
        self._cycle += 1

    def _recorded_step_count(self) -> int:
        options = self.options
        done = self.step_count - self._cycle * options.cycle_step_count
        return min(max(done - options.wait - options.warmup, 0), options.active)

    def _incomplete_reason(self, recorded: int) -> str:
        if self.options.whole:
            return self._interruption or "stopped early"
        schedule = f"{recorded} of {self.options.active} active steps"
        why = self._interruption or f"stopped after {self.step_count} steps"
        return f"{why}: {schedule} recorded"

    def _close_unexported(self) -> None:
        """A cycle that never got a trace says so."""
        if self._open is None:
            return
        directory, record = self._open
        if self.is_superseded:
            records.remove_session(directory)
            self._open = None
            return
        self._close_cycle(record, [directory])

    # --- trouble ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _recorded_failure(self, what: str) -> Iterator[None]:
        """Turn a failure into the manifest's status: the user's program goes on."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  # whatever the vendor's exporter raises
            reason = f"{what}: {one_line(error)}"
            free = layout.free_bytes_or_none(self.output_dir)
            if free is not None and free < 1024 * 1024:
                reason = f"the disk is full ({free // 1024} KiB left): {reason}"
            if self._open is not None:
                self._open[1].status, self._open[1].reason = "failed", reason
            warn(f"capture failed: {reason}")

    @contextlib.contextmanager
    def _told_failure(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            warn(f"{what}: {one_line(error)}")

    def _set_compile_variables(self) -> None:
        if not self.options.compile_debug:
            return
        os.environ.update(dict.fromkeys(COMPILE_TIME_VARIABLES, "1"))
        too_late = "; torch_neuronx is imported already, so set them before the program" if _is_neuron_loaded() else ""
        warn(
            f"{', '.join(COMPILE_TIME_VARIABLES)} are set: they act when a graph is compiled. Graphs that are "
            f"compiled already, or come from the NEFF cache, keep their short names{too_late}"
        )

    def _warn_at_start(self, free: int) -> None:
        assert self._device is not None
        messages = [self._device.warning] if self._device.warning else []
        if self._setup is not None and self._setup.dropped:
            names = ", ".join(self._setup.dropped)
            messages.append(f"this torch_neuronx does not know {names}: capturing without")
        if free < layout.LEAST_FREE_BYTES:
            messages.append(f"{self.output_dir}: only {human_bytes(free)} free; the trace may not fit")
        for message in messages:
            warn(message)

    def _interrupt(self, reason: str) -> None:
        self._interruption = reason

    def _check_and_tell(self) -> None:
        if not self.options.check:
            return
        with self._told_failure(f"{self.output_dir}: checking the capture"):
            self.report = checks.check_sessions(self.output_dir, sorted(self.directories))
            records.note_findings(self.report)
            if LEDGER_VARIABLE not in os.environ:
                sys.stderr.write(
                    "\n".join(report_lines(self.report, checks.without_other_ranks(self.report.findings))) + "\n"
                )


@functools.cache
def _watch_forks() -> None:
    """From the first capture on, until the process ends."""
    held: list[set[int]] = []
    os.register_at_fork(
        before=lambda: held.append(signals.hold()),
        after_in_parent=lambda: signals.resume(held.pop()),
        after_in_child=lambda: _become_child(held.pop()),
    )


def _become_child(held: set[int]) -> None:
    for session in list(_current):
        session.leave_to_parent()
    signals.resume(held)
    forks.skip_destructors_at_exit()


def _is_neuron_loaded() -> bool:
    return "torch_neuronx" in sys.modules


def _interruption_of(exception: BaseException) -> str | None:
    """Why the block ended early; null for an exit that means success. The message may hold secrets: left out."""
    if isinstance(exception, SystemExit):
        code = exception.code
        shown = code if isinstance(code, int) else "a message"
        return None if code in (None, 0) else f"the program exited with {shown}"
    if isinstance(exception, KeyboardInterrupt):
        return "Ctrl-C"
    return f"the program raised {type(exception).__name__}"
