"""``tracekit-capture``: run, check, export, pack, doctor."""

from __future__ import annotations

import sys

import click

from capture.cli.check import check
from capture.cli.doctor import doctor
from capture.cli.export import export
from capture.cli.pack import pack
from capture.cli.run import run
from capture.errors import CaptureError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Capture profiles on the device, verified before anyone copies them.

    \b
    tracekit-capture doctor                      is this machine ready?
    tracekit-capture run train.py                capture a script
    tracekit-capture check profiles              is the capture good?
    tracekit-capture export profiles             runtime traces to Parquet
    tracekit-capture pack profiles -o p.tar.zst  one file to copy
    """


for _command in (run, check, export, pack, doctor):
    cli.add_command(_command)


def main() -> None:
    """Run the command line; an error the user can act on is two lines and exit code 2."""
    try:
        cli(prog_name="tracekit-capture", standalone_mode=True)
    except CaptureError as error:
        click.echo(f"error: {error.problem}", err=True)
        if error.hint:
            click.echo(f"  fix: {error.hint}", err=True)
        sys.exit(2)
