"""``tracekit doctor``: is this capture fit to be analysed?"""

from __future__ import annotations

import sys
from pathlib import Path

import click
import polars as pl
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from tracekit import doctor
from tracekit.cli.given import Given, path_argument
from tracekit.cli.output import format_option, printable, screen, write_rows
from tracekit.cli.units import told

_EPILOG = """\b
Examples:
  tracekit doctor capture/
  tracekit doctor capture.tar.zst --format json
\b
Exit codes: 0 fine, 1 usable with care (or not readable), 2 unusable.
"""
_STYLES = {"unusable": "bold red", "care": "yellow", "info": "dim"}
_ANSWERS = {0: "fine", 1: "usable with care", 2: "unusable"}


@click.command(epilog=_EPILOG)
@path_argument
@format_option
def command(
    given: Given,
    form: str | None,
    output: Path | None,
) -> None:
    """Check whether the capture at PATH is fit to be analysed, and say what to change.

    PATH is raw input, a stored profile, or an archive.
    """
    profile = given.open()
    found = doctor.diagnose(profile.inputs("all"))
    if form in ("json", "csv", "parquet"):
        write_rows(found, form, output)
    else:
        with screen(output) as out:
            show(out, found)
    sys.exit(doctor.verdict(found))


def show(out: Console, found: pl.DataFrame) -> None:
    """Print the verdict and every diagnosis as a short paragraph; equal ones of several sessions once."""
    out.print(f"capture: {_ANSWERS[doctor.verdict(found)]}", style="bold")
    merged = found.group_by("check", "severity", "message", "next_step", maintain_order=True).agg(sessions=pl.len())
    for row in merged.iter_rows(named=True):
        times = f" (in each of {row['sessions']} sessions)" if row["sessions"] > 1 else ""
        head = Text(f"{row['severity']} ", style=_STYLES[row["severity"]])
        step = Text(printable(f" → {row['next_step']}"), style="dim") if row["next_step"] else Text("")
        out.print(Padding(head + Text(printable(told(row["message"]) + times)) + step, (0, 0, 0, 2)))
