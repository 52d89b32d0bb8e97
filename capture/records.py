"""What a session writes besides the trace: the manifest at its start, and a look at what the export left."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from capture import checks, devices, host, layout, manifest, neuron, tracefile
from capture.options import LEDGER_VARIABLE, Options
from capture.redaction import redacted_command
from capture.text import human_bytes


def make_manifest(
    directory: Path,
    options: Options,
    device_section: manifest.Section,
    setup: neuron.NeuronSetup | None,
    cycle: int,
) -> manifest.Manifest:
    """Gather what is known when a cycle of a capture starts."""
    made = manifest.Manifest(
        tool=host.tool_section(),
        host=host.host_section(),
        versions=_versions(),
        device=device_section,
        process=host.rank_section(options.ranks),
        schedule=_schedule_section(options),
        session={"name": layout.session_name(directory), "cycle": cycle},
        modes=list(setup.modes) if setup else [],
        options=_option_section(options, setup),
        env=host.allowed_environment(),
        git=host.git_section(Path.cwd()),
        command=redacted_command([sys.executable, *sys.argv]),
        labels=options.labels,
    )
    made.start_clock()
    for name in setup.dropped if setup else ():
        message = f"this torch_neuronx does not know {name}: captured without it"
        made.note("warning", "option-dropped", message, "update torch_neuronx to use it")
    return made


def _versions() -> manifest.Section:
    torch = devices.import_torch()
    neuron_versions = host.neuron_versions()
    loaded = getattr(sys.modules.get("torch_neuronx"), "__version__", None)
    if neuron_versions["torch_neuronx"] is None and loaded is not None:
        neuron_versions["torch_neuronx"] = str(loaded)
    versions: manifest.Section = {"python": sys.version.split()[0], "torch": str(torch.__version__)}
    return {**versions, **neuron_versions, "cuda": torch.version.cuda}


def _schedule_section(options: Options) -> manifest.Section:
    names = ("wait", "warmup", "active", "repeat")
    values: manifest.Section = {name: None if options.whole else getattr(options, name) for name in names}
    unit = "whole" if options.whole else "step"
    return {"unit": unit, **values, "step_count": None, "recorded_step_count": None}


def _option_section(options: Options, setup: neuron.NeuronSetup | None) -> manifest.Section:
    common = ("record_shapes", "with_stack", "profile_memory", "with_flops", "compile_debug")
    names = (*common, *neuron.OPTIONAL) if setup else (*common, "custom_profiler_config")
    dropped = setup.dropped if setup else ()
    return {name: getattr(options, name) for name in names if name not in dropped}


def written_since(output_dir: Path, before: set[Path], started_ns: int) -> list[Path]:
    """This process's directories whose trace is new, or was written again."""
    now = layout.own_session_directories(output_dir)
    newer = {path for path in now & before if _trace_time_ns(path) >= started_ns}
    return sorted((now - before) | newer)


def _trace_time_ns(directory: Path) -> int:
    times = [p.stat().st_mtime_ns for name in layout.TRACE_NAMES if (p := directory / name).exists()]
    return max(times, default=0)


def assert_whole(directory: Path) -> None:
    """Kineto's exporter does not report a short write; the file tells.

    Raises:
        OSError: the trace is absent or cut.
    """
    for name in layout.TRACE_NAMES:
        path = directory / name
        if path.exists():
            if tracefile.is_whole(path):
                return
            raise OSError(f"{path} is cut after {human_bytes(path.stat().st_size)}")
    raise OSError(f"{directory}: no trace.json was written")


def append_to_ledger(directory: Path) -> None:
    """Tell ``tracekit-capture run`` where this process writes."""
    ledger = os.environ.get(LEDGER_VARIABLE)
    if ledger:
        with contextlib.suppress(OSError), Path(ledger).open("a") as file:
            file.write(f"{directory.resolve()}\n")


def remove_session(directory: Path) -> None:
    """Take back an empty session directory and its parents, as far as they are empty."""
    with contextlib.suppress(OSError):
        (directory / manifest.FILE_NAME).unlink(missing_ok=True)
        directory.rmdir()
        directory.parent.rmdir()


def note_findings(report: checks.Report) -> None:
    """Keep what check found in the manifests: the capture may be copied without this terminal.

    Raises:
        OSError: a manifest cannot be written.
    """
    for contents in report.sessions:
        if contents.manifest is None:
            continue
        before = len(contents.manifest.notes)
        for finding in report.findings:
            if contents.directory in (finding.path, finding.path.parent):
                contents.manifest.note(finding.severity, finding.code, finding.problem, finding.fix)
        if len(contents.manifest.notes) > before:
            manifest.write(contents.manifest, contents.directory)
