"""``tracekit export``: a profile in the format of another tool."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli.given import Given, path_argument
from tracekit.cli.output import console, printable
from tracekit.cli.units import size

if TYPE_CHECKING:
    from tracekit.export.base import Progress

FORMATS = {
    "perfetto": "Perfetto trace: tracks, gaps, counters, arrows (ui.perfetto.dev)",
    "chrome": "Chrome trace JSON; reading it back gives the same events",
    "csv": "directory of one CSV file per table",
    "parquet": "directory of one Parquet file per table",
    "sqlite": "one SQLite file with every table",
    "duckdb": "one DuckDB file with every table (needs the package duckdb)",
}
"""Names of ``tracekit.export.EXPORTS`` with a word for the help, which does not load them."""

_EPILOG = (
    "\b\nFormats:\n"
    + "".join(f"  {name:<9} {doc}\n" for name, doc in FORMATS.items())
    + """\n\b
Examples:
  tracekit export capture/ --to perfetto -o run.pftrace
  tracekit export runs/ --profile nightly-4f2a --to chrome -o run.json
  tracekit export capture/ --to csv -o tables/
"""
)


@click.command(epilog=_EPILOG)
@path_argument
@click.option("--to", "form", type=click.Choice(list(FORMATS)), required=True, help="Format to write.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File or directory to write (default: named after the profile, here).",
)
def command(given: Given, form: str, output: Path | None) -> None:
    """Write the profile at PATH for another tool.

    PATH is raw input, a stored profile, or an archive. The whole capture is written. A file of the same name, or an
    earlier export to the same directory, is replaced once the new one is whole.
    """
    from tracekit.export import EXPORTS, export

    if output is not None and str(output) == "-":
        raise click.UsageError("-o: '-' is no file: name one")
    profile = given.open()
    inputs = profile.inputs("all")
    chosen = EXPORTS[form]
    if output is None:
        output = Path(profile.id + ("-" + form if chosen.is_directory(inputs) else chosen.suffix))
    with _writing() as progress:
        written = export(inputs, form, output, progress)
    out = console()
    out.print(f"{printable(str(output))}: {size(written.size_bytes)}", soft_wrap=True)
    for remark in written.remarks:
        out.print(f"  {printable(remark)}", style="dim")


@contextmanager
def _writing() -> Iterator[Progress | None]:
    """A progress bar over rows on standard error; nothing when that is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("writing {task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def update(label: str, done: int, total: int) -> None:
            bar.update(task, description=printable(label), completed=done, total=total)

        yield update
