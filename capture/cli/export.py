"""``tracekit-capture export``: runtime traces to Parquet, by the vendor's tool."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from capture import export as exporting
from capture.errors import CaptureError
from capture.text import paragraph, shown_path


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--only", type=click.Choice(["system", "device"]), help="One half; the system trace comes first.")
@click.option("--time-limit", default=1800.0, show_default=True, help="Seconds per half.")
@click.option("--memory-limit", default=8.0, show_default=True, help="GB of memory.")
def export(directory: Path, only: str | None, time_limit: float, memory_limit: float) -> None:
    """Export the runtime traces below DIRECTORY to Parquet, into DIRECTORY/explorer.

    Without the vendor's tool nothing is lost: the raw files can be exported later, on any Neuron machine.
    """
    if not directory.is_dir():
        raise CaptureError(f"{directory}: no such directory", hint="give the directory that the capture wrote to")
    limits = exporting.Limits(time_limit, int(memory_limit * 10**9))
    halves = (only,) if only else ("system", "device")
    results = exporting.export(directory, limits, halves)
    if not results:
        text = (
            f"{exporting.TOOL_NAME} is not on this machine: nothing exported. tracekit reads trace.json and ntrace.pb "
            "as they are; for Parquet install aws-neuronx-tools (it lies in /opt/aws/neuron/bin) and run this again"
        )
        click.echo("\n".join(paragraph("note", text, indent="")))
        return
    for result in results:
        text = f"{result.half}: {result.problem or f'{result.table_count} tables'}"
        click.echo("\n".join(paragraph("error" if result.problem else "ok", text)))
        if result.problem:
            click.echo("\n".join(paragraph("   fix:", result.fix)))
    shown = shown_path(directory)
    click.echo(f"next: tracekit-capture pack {shown} -o {directory.resolve().name}.tar.zst")
    sys.exit(0 if not any(result.problem for result in results) else 1)
