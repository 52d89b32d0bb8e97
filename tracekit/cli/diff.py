"""``tracekit diff A B``: what changed between two profiles."""

from __future__ import annotations

from pathlib import Path

import click
import polars as pl
from rich.console import Console

from tracekit.cli.output import (
    chosen_scope,
    console,
    duration,
    emit,
    open_for_command,
    print_table,
    printable,
    ratio,
    scope_options,
)
from tracekit.comparison import OPS, REPLACED, TOTALS, Comparison, Side, diff, side
from tracekit.profile import Scope

_EPILOG = """\b
Examples:
  tracekit diff before/ after/
  tracekit diff baseline.json after/ --format markdown    for a pull request
  tracekit diff runs/profile=a runs/profile=b --format json
"""
_HEADLINE = ("device_time", "host_time", "window", "executions", "operators", "gap")


def open_side(path: Path, cache: Path | None, scope: Scope) -> Side:
    """One side of a comparison: a baseline file, or anything that can be analysed."""
    from tracekit import baseline

    if baseline.is_baseline(path):
        return baseline.from_json(path)
    profile = open_for_command(path, None, cache)
    return side(profile.id, profile.inputs(scope))


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
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to a file.")
def command(
    a: Path, b: Path, step: int | None, everything: bool, cache: Path | None, which: str, form: str, output: Path | None
) -> None:
    """Show what changed from A to B: time, executions, gaps by cause, operators.

    A and B are anything `tracekit analyze` takes, or a baseline file. Values are per step where there are
    steps. A difference between two sets of steps is called noise unless the Mann–Whitney U test gives
    p < 0.01 and the medians differ by 5 % and by more than the spread; from single captures nothing is
    claimed.
    """
    scope = chosen_scope(step, everything)
    compared = diff(open_side(a, cache, scope), open_side(b, cache, scope))
    if form == "json":
        _write(as_json(compared), output)
    elif form == "markdown":
        _write(markdown(compared), output)
    elif form == "table":
        _show(console() if output is None else Console(file=output.open("w", encoding="utf-8"), width=80), compared)
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


def as_json(compared: Comparison) -> str:
    """All tables of a comparison as one JSON object."""
    import json

    document = {
        "a": compared.a.name,
        "b": compared.b.name,
        "totals": compared.totals.to_dicts(),
        "ops": compared.ops.to_dicts(),
        "replaced": compared.replaced.to_dicts(),
    }
    return json.dumps(document, indent=1, ensure_ascii=False)


def amount(row: dict[str, object], column: str) -> str:
    """A value of ``TOTALS`` for people, in its unit."""
    value = float(str(row[column]))
    return f"{value:,.6g}" if row["unit"] == "count" else duration(value)


def headline(compared: Comparison) -> list[str]:
    """The answer in a few lines: the main measures and what was replaced."""
    lines = []
    for measure in _HEADLINE:
        row = compared.total(measure)
        if row["a"] == 0 and row["b"] == 0:
            continue
        name = measure.replace("_", " ")
        if row["verdict"] == "same":
            lines.append(f"{name}: {amount(row, 'a')}, no change")
            continue
        share = f" ({_signed(row['change_ratio'])})" if row["change_ratio"] is not None else ""
        lines.append(f"{name}: {amount(row, 'a')} → {amount(row, 'b')}{share}{_claim(row)}")
    return lines + replacements(compared)


def replacements(compared: Comparison) -> list[str]:
    """``6 executions → 1: …`` for every run of executions that became another."""
    lines = []
    for row in compared.replaced.head(5).iter_rows(named=True):
        went, came = counted_names(row["a_names"]), counted_names(row["b_names"])
        times = f"{duration(row['a_device_ns'])} → {duration(row['b_device_ns'])}"
        lines.append(
            f"{row['a_executions']} executions → {row['b_executions']} ({times}): {went or 'none'} → {came or 'none'}"
        )
    return lines


def counted_names(names: list[str]) -> str:
    """``3 × aten::mul, aten::mean``: names in order of appearance with how often."""
    unique = list(dict.fromkeys(names))
    shown = [f"{names.count(n)} × {n}" if names.count(n) > 1 else n for n in unique[:8]]
    return printable(", ".join(shown)) + (f", … {len(unique) - 8} more" if len(unique) > 8 else "")


def _signed(value: object) -> str:
    return f"{100 * float(str(value)):+.1f} %".replace("-", "−")


def _claim(row: dict[str, object]) -> str:
    if row["verdict"] == "unproven":
        return " [too few samples to tell from noise]"
    if row["verdict"] == "noise":
        return f" [noise, p = {row['p_value']:.2g}]"
    return f" [p = {row['p_value']:.2g}]" if row["p_value"] is not None else ""


def _show(out: Console, compared: Comparison) -> None:
    per_step = " per step" if compared.a.per_step and compared.b.per_step else ""
    out.print(f"{printable(compared.a.name)} → {printable(compared.b.name)}{per_step}", style="bold")
    for line in headline(compared):
        out.print(f"  {line}", soft_wrap=True)
    shown = compared.totals.filter((pl.col("a") != 0) | (pl.col("b") != 0))
    rows = shown.select(
        "measure",
        a=pl.Series([amount(r, "a") for r in shown.to_dicts()], dtype=pl.String),
        b=pl.Series([amount(r, "b") for r in shown.to_dicts()], dtype=pl.String),
        change=pl.Series([amount(r, "change") for r in shown.to_dicts()], dtype=pl.String),
        share=pl.Series([ratio(r["change_ratio"]) for r in shown.to_dicts()], dtype=pl.String),
        verdict="verdict",
    )
    out.print()
    print_table(out, rows, TOTALS, title="Measures")
    out.print()
    columns = ("name", "status", "a_executions", "b_executions", "a_device_ns", "b_device_ns", "device_change_ns")
    host = ("name", "status", "a_host_ns", "b_host_ns", "host_change_ns")
    has_device = bool(compared.ops.select((pl.col("a_device_ns") + pl.col("b_device_ns")).sum()).item())
    ops = compared.ops.filter(pl.col("status") != "same")
    if not has_device:
        ops = ops.sort(pl.col("host_change_ns").abs(), descending=True)
    print_table(out, ops, OPS, title="Operators that changed", columns=columns if has_device else host, limit=20)


def markdown(compared: Comparison) -> str:
    """The comparison for a pull request."""
    lines = [f"### tracekit: `{compared.a.name}` → `{compared.b.name}`", ""]
    lines += [f"- {line}" for line in headline(compared)]
    lines += ["", "| measure | before | after | change | | verdict |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    for row in compared.totals.iter_rows(named=True):
        if row["a"] or row["b"]:
            share = _signed(row["change_ratio"]) if row["change_ratio"] is not None else ""
            cells = (row["measure"], amount(row, "a"), amount(row, "b"), amount(row, "change"), share, row["verdict"])
            lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "| operator | | executions | device time | change |", "| --- | --- | ---: | ---: | ---: |"]
    for row in compared.ops.filter(pl.col("status") != "same").head(20).iter_rows(named=True):
        executions = f"{row['a_executions']:,.6g} → {row['b_executions']:,.6g}"
        times = f"{duration(row['a_device_ns'])} → {duration(row['b_device_ns'])}"
        name = printable(row["name"]).replace("|", "\\|").replace("`", "'")
        lines.append(f"| `{name}` | {row['status']} | {executions} | {times} | {duration(row['device_change_ns'])} |")
    return "\n".join(lines)
