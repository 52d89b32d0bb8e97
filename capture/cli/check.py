"""``tracekit-capture check``: is a capture good?"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from capture import checks
from capture.text import report_lines


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="For scripts: one JSON object.")
def check(directory: Path, as_json: bool) -> None:
    """Check the captures below DIRECTORY.

    Exit code 0: good, perhaps with warnings; 1: errors; 2: no such directory.
    """
    report = checks.check(directory)
    if as_json:
        findings = [{**asdict(finding), "path": str(finding.path)} for finding in report.findings]
        sessions = [str(session.directory) for session in report.sessions]
        click.echo(json.dumps({"is_good": report.is_good, "sessions": sessions, "findings": findings}, indent=1))
    else:
        click.echo("\n".join(report_lines(report)))
    sys.exit(0 if report.is_good else 1)
