"""``tracekit report``: one HTML file with the answer, the evidence and a timeline."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click

from tracekit.baseline import is_baseline
from tracekit.cli.given import Given, path_argument
from tracekit.cli.output import OutputFile, chosen_scope, printable, scope_options
from tracekit.cli.units import size as size_text
from tracekit.errors import TracekitError
from tracekit.lazy_tables import Scope
from tracekit.profile import Profile
from tracekit.report.build import Subject, report, subject
from tracekit.report.page import page

_EPILOG = """\b
Examples:
  tracekit report capture/ -o report.html
  tracekit report runs/ --profile nightly-4f2a --step 3
  tracekit report before/ --compare after/ -o change.html
"""


@click.command(epilog=_EPILOG)
@path_argument
@scope_options
@click.option("--compare", type=click.Path(path_type=Path), help="A second profile, shown side by side as B.")
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    default=Path("report.html"),
    show_default=True,
    help="File to write.",
)
def command(
    given: Given,
    step: int | None,
    everything: bool,
    compare: Path | None,
    output: Path,
) -> None:
    """Write a report on PATH: one HTML file that opens offline and can be mailed.

    It holds the answer, charts, operators, findings, notes and a timeline of the four lanes. With --step
    the timeline shows that step only, every event of it.
    """
    for path in (given.path, *([compare] if compare else [])):
        if is_baseline(path):
            raise TracekitError(
                f"{path}: a baseline holds measures, no events to report on",
                hint="name the capture, or compare with `tracekit diff`",
            )
    scope = chosen_scope(step, everything)
    a = _subject(given.open(), scope)
    b = _subject(replace(given, path=compare, profile_id=None).open(), scope) if compare else None
    document = page(report(a, b)).encode("utf-8")
    _publish(document, output)
    click.echo(f"{printable(str(output))}: {size_text(len(document))}")


def _subject(profile: Profile, scope: Scope) -> Subject:
    about = {"name": profile.id, "path": str(profile.path), "measured": _measured(scope)}
    return subject(profile.id, profile.inputs(scope), clip=isinstance(scope, int), about=about)


def _measured(scope: Scope) -> str:
    if isinstance(scope, int):
        return f"step {scope}"
    return "the whole capture" if scope == "all" else "steps after warm-up, or everything if there are none"


def _publish(document: bytes, output: Path) -> None:
    """Write beside the target, then rename: a report is never half there."""
    part = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        part.write_bytes(document)
        part.replace(output)
    except OSError:
        part.unlink(missing_ok=True)
        raise
