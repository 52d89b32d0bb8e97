"""``tracekit-capture doctor``: is this machine ready?"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from capture.doctor import examine
from capture.text import paragraph


@click.command()
@click.option("-o", "--output-dir", default="profiles", show_default=True, type=click.Path(path_type=Path))
def doctor(output_dir: Path) -> None:
    """Say whether this machine is ready to capture into the output directory.

    Exit code 0: ready, perhaps with warnings; 1: not ready.
    """
    items = examine(output_dir)
    for item in items:
        click.echo("\n".join(paragraph(item.severity, f"{item.name}: {item.state}")))
        if item.fix:
            click.echo("\n".join(paragraph("   fix:" if item.severity != "note" else "  hint:", item.fix)))
    is_ready = all(item.severity != "error" for item in items)
    click.echo("ready" if is_ready else "not ready: correct the errors above")
    sys.exit(0 if is_ready else 1)
