"""``tracekit diff A B``: what changed between two profiles."""

from __future__ import annotations

from pathlib import Path

import click
import polars as pl
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from tracekit.cli.output import OutputFile, chosen_scope, emit, print_table, printable, scope_options, screen
from tracekit.cli.sides import amount, as_json, count, heading, headline, left_out, markdown, open_side, told_ops
from tracekit.cli.units import ratio
from tracekit.comparison import OPS, REPLACED, TOTALS, Comparison, diff

_EPILOG = """\b
Examples:
  tracekit diff before/ after/
  tracekit diff baseline.json after/ --format markdown    for a pull request
  tracekit diff runs/profile=a runs/profile=b --format json
"""

_HEADINGS = {
    "a_executions": "runs A",
    "b_executions": "runs B",
    "a_device_ns": "device A",
    "b_device_ns": "device B",
    "device_change_ns": "change",
    "a_host_ns": "host A",
    "b_host_ns": "host B",
    "host_change_ns": "change",
}


@click.command(epilog=_EPILOG)
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@scope_options
@click.option("--cache", type=click.Path(path_type=Path), help="Archive for raw input (default: user's cache).")
@click.option(
    "--table",
    "which",
    type=click.Choice(["totals", "ops", "replaced"]),
    default="totals",
    show_default=True,
    help="Table that csv and parquet give; json gives all.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv", "parquet", "markdown"]),
    default="table",
    help="Default: table.",
)
@click.option("-o", "--output", type=OutputFile(), help="Write to a file.")
def command(
    a: Path, b: Path, step: int | None, everything: bool, cache: Path | None, which: str, form: str, output: Path | None
) -> None:
    """Show what changed from A to B: time, executions, gaps by cause, operators.

    A and B are anything `tracekit analyze` takes, a baseline file, or an archive whose profiles repeat one
    program. Values are per step where there are steps. Captures one after the other are repeats; processes
    side by side are added up, and where their number differs, values are per process.

    A difference between two sets of steps or repeats is called noise unless the Mann–Whitney U test gives
    p < 0.01 and the medians differ by at least 5 %; from single captures nothing is claimed. Operators match by
    name, then by input shapes, then by order.
    """
    scope = chosen_scope(step, everything)
    compared = diff(open_side(a, cache, scope), open_side(b, cache, scope))
    if form == "json":
        _write(as_json(compared), output)
    elif form == "markdown":
        _write(markdown(compared), output)
    elif form == "table":
        with screen(output) as out:
            _show(out, compared)
    else:
        frame, table = {
            "totals": (compared.totals, TOTALS),
            "ops": (compared.ops, OPS),
            "replaced": (compared.replaced, REPLACED),
        }[which]
        emit(frame, table, form, output)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        click.echo(text)
    else:
        output.write_text(text + "\n", encoding="utf-8")


def _show(out: Console, compared: Comparison) -> None:
    out.print(printable(heading(compared)), style="bold")
    for line in headline(compared):
        out.print(Padding(Text(line), (0, 0, 0, 2)))
    shown = compared.totals.filter((pl.col("a") != 0) | (pl.col("b") != 0))
    rows = shown.select(
        "measure",
        a=pl.Series([amount(r, "a") for r in shown.to_dicts()], dtype=pl.String),
        b=pl.Series([amount(r, "b") for r in shown.to_dicts()], dtype=pl.String),
        change=pl.Series([amount(r, "change") for r in shown.to_dicts()], dtype=pl.String),
        share=pl.Series([ratio(r["change_ratio"] or None, signed=True) for r in shown.to_dicts()], dtype=pl.String),
        verdict="verdict",
    )
    out.print()
    numbers = ("a", "b", "change", "share")
    print_table(out, rows, TOTALS, title="Measures", columns=("measure", *numbers, "verdict"), numbers=numbers)
    out.print()
    _show_ops(out, compared.ops)


def _show_ops(out: Console, ops: pl.DataFrame) -> None:
    shown, has_device = told_ops(ops)
    counts = ("a_executions", "b_executions")
    device = ("name", "status", *counts, "a_device_ns", "b_device_ns", "device_change_ns")
    host = ("name", "status", "a_host_ns", "b_host_ns", "host_change_ns")
    rows = shown.with_columns(pl.Series(n, map(count, shown[n].to_list()), dtype=pl.String) for n in counts)
    print_table(
        out,
        rows,
        OPS,
        title="Operators that differ",
        columns=device if has_device else host,
        limit=20,
        more="--table ops --format csv",
        headings=_HEADINGS,
        numbers=counts,
    )
    more = left_out(ops)
    if more:
        out.print(f"  {more}", style="dim")
