"""Words and layout of what the user reads, in 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from capture import checks

WIDTH = 79
MARKS = {"error": "ERROR  ", "warning": "warning", "note": "note   ", "ok": "ok     "}


def human_bytes(count: int) -> str:
    """A size with a unit, such as "1.4 GB"; decimal units."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def one_line(error: BaseException) -> str:
    """An exception's message as one line of bounded length."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:297]}..."


def shown_path(path: Path) -> str:
    """A path as short as it can be typed from here."""
    try:
        relative = path.resolve().relative_to(Path.cwd())
    except (ValueError, OSError):
        return str(path)
    return str(relative)


def paragraph(mark: str, text: str, indent: str = "  ") -> list[str]:
    """A marked paragraph with a hanging indent; paths are never broken."""
    prefix = f"{indent}{MARKS.get(mark, mark)}  "
    return textwrap.wrap(
        text,
        width=WIDTH,
        initial_indent=prefix,
        subsequent_indent=" " * len(prefix),
        break_long_words=False,
        break_on_hyphens=False,
    )


def finding_lines(finding: checks.Finding) -> list[str]:
    """A finding and its fix."""
    lines = paragraph(finding.severity, f"{shown_path(finding.path)}: {finding.problem}")
    if finding.fix:
        lines += paragraph("   fix:", finding.fix)
    return lines


def session_line(session: checks.SessionContents) -> str:
    """What one session directory holds, in one line."""
    parts = []
    if session.manifest is not None and session.manifest.process.get("rank") is not None:
        parts.append(f"rank {session.manifest.process['rank']}")
    if session.device_kind:
        parts.append(session.device_kind)
    if session.trace is not None:
        size, count = human_bytes(session.trace.size_bytes), session.trace.event_count
        parts.append(f"trace.json {size}, {count:,} events ({session.trace.device_event_count:,} on the device)")
    if session.ntffs:
        parts.append(f"{len(session.neffs)} neff, {len(session.ntffs)} ntff")
    if "ntrace.pb" in session.names:
        parts.append("runtime trace")
    return "; ".join(parts) or "empty"


def report_lines(report: checks.Report, findings: Sequence[checks.Finding] | None = None) -> list[str]:
    """Where the capture is, what check found, and what to type next."""
    shown = report.findings if findings is None else findings
    lines = [f"capture: {shown_path(report.directory)}"]
    for session in report.sessions:
        lines.append(f"  {shown_path(session.directory)}/")
        lines += textwrap.wrap(session_line(session), width=WIDTH, initial_indent="    ", subsequent_indent="    ")
    for finding in shown:
        lines += finding_lines(finding)
    if not shown:
        lines.append("  check: everything is there")
    is_good = all(finding.severity != "error" for finding in shown)
    return lines + next_lines(report, is_good=is_good)


def next_lines(report: checks.Report, *, is_good: bool) -> list[str]:
    """The next command to type."""
    directory = shown_path(report.directory)
    if not is_good:
        return [f"next: correct the errors above, then: tracekit-capture check {directory}"]
    lines = [f"next: tracekit analyze {directory}"]
    archive = f"{report.directory.resolve().name}.tar.zst"
    return [*lines, f"  or: tracekit-capture pack {directory} -o {archive}   (to copy it)"]
