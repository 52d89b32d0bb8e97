"""``tracekit baseline``: a profile's measures as a small JSON file."""

from __future__ import annotations

from pathlib import Path

import click

from tracekit import baseline
from tracekit.cli.given import Given, path_argument
from tracekit.cli.output import OutputFile, chosen_scope, console, printable, scope_options
from tracekit.cli.sides import measured

_EPILOG = """\b
Examples:
  tracekit baseline capture/ -o baseline.json
  tracekit gate baseline.json new-capture/ --max-device-time +5%
"""


@click.command(epilog=_EPILOG)
@path_argument
@scope_options
@click.option("-o", "--output", required=True, type=OutputFile(), help="The JSON file.")
def command(
    given: Given,
    step: int | None,
    everything: bool,
    output: Path,
) -> None:
    """Write the measures of PATH to a JSON file that can live in a repository.

    `tracekit diff` and `tracekit gate` take the file in place of the capture. The profiles of an archive are
    taken as repeats of one program, unless --profile names one.
    """
    side = measured(given, chosen_scope(step, everything))
    text = baseline.to_json(side)
    output.write_text(text, encoding="utf-8")
    made = f"baseline of {side.name} ({side.basis}), {len(text.encode()):,} bytes"
    console().print(printable(f"{output}: {made}"), soft_wrap=True)
