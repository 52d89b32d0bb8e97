"""What ``diff`` and ``gate`` share: opening two sides, and a comparison in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from tracekit import baseline
from tracekit.cli.given import Given
from tracekit.cli.output import printable
from tracekit.cli.units import change, duration, minus, ratio
from tracekit.comparison import Comparison, Side, side
from tracekit.lazy_tables import Scope
from tracekit.significance import is_chance

_HEADLINE = ("device_time", "host_time", "window", "executions", "operators", "gap")


def open_side(path: Path, cache: Path | None, scope: Scope) -> Side:
    """One side of a comparison: a baseline file, or anything that can be analysed."""
    if baseline.is_baseline(path):
        return baseline.from_json(path)
    profile = Given(path, cache=cache).open()
    return side(profile.id, profile.inputs(scope))


def as_json(compared: Comparison) -> str:
    """All tables of a comparison as one JSON object."""
    document = {
        "a": compared.a.name,
        "b": compared.b.name,
        "totals": compared.totals.to_dicts(),
        "ops": compared.ops.to_dicts(),
        "replaced": compared.replaced.to_dicts(),
    }
    return json.dumps(document, indent=1, ensure_ascii=False)


def amount(row: dict[str, object], column: str) -> str:
    """A value of ``TOTALS`` for people, in its unit; a change has a sign."""
    value, signed = float(str(row[column])), column == "change"
    if row["unit"] != "count":
        return duration(value, signed=signed)
    return minus(f"{value:+,.6g}" if signed and value else f"{value:,.6g}")


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
        share = f" ({ratio(float(str(row['change_ratio'])), signed=True)})" if row["change_ratio"] is not None else ""
        lines.append(f"{name}: {_both(row)}{share}{_claim(row)}")
    return lines + replacements(compared)


def _both(row: dict[str, object]) -> str:
    if row["unit"] == "count":
        return f"{amount(row, 'a')} → {amount(row, 'b')}"
    return change(float(str(row["a"])), float(str(row["b"])))


def replacements(compared: Comparison) -> list[str]:
    """``6 executions → 1: …`` for every run of executions that became another."""
    lines = []
    for row in compared.replaced.head(5).iter_rows(named=True):
        went, came = counted_names(row["a_names"]), counted_names(row["b_names"])
        times = change(row["a_device_ns"], row["b_device_ns"])
        many = f"{row['a_executions']} → {row['b_executions']} executions"
        lines.append(f"{many} ({times}): {went or 'none'} → {came or 'none'}")
    return lines


def counted_names(names: list[str]) -> str:
    """``3 × aten::mul, aten::mean``: names in order of appearance with how often."""
    unique = list(dict.fromkeys(names))
    shown = [f"{names.count(n)} × {n}" if names.count(n) > 1 else n for n in unique[:8]]
    return printable(", ".join(shown)) + (f", … {len(unique) - 8} more" if len(unique) > 8 else "")


def _claim(row: dict[str, Any]) -> str:
    if row["verdict"] == "unproven":
        return " [single samples: not tested]" if row["a_samples"] == row["b_samples"] == 1 else " [too few samples]"
    if row["verdict"] == "noise":
        is_small = not is_chance(row["p_value"])
        return f" [noise{': the medians differ by less than 5 %' if is_small else ''}, p = {row['p_value']:.2g}]"
    return f" [p = {row['p_value']:.2g}]" if row["p_value"] is not None else ""


def markdown(compared: Comparison) -> str:
    """The comparison for a pull request."""
    lines = [f"### tracekit: `{compared.a.name}` → `{compared.b.name}`", ""]
    lines += [f"- {line}" for line in headline(compared)]
    lines += ["", "| measure | before | after | change | | verdict |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    for row in compared.totals.iter_rows(named=True):
        if row["a"] or row["b"]:
            share = ratio(row["change_ratio"], signed=True) if row["change_ratio"] is not None else ""
            cells = (row["measure"], amount(row, "a"), amount(row, "b"), amount(row, "change"), share, row["verdict"])
            lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "| operator | | executions | device time | change |", "| --- | --- | ---: | ---: | ---: |"]
    for row in compared.ops.filter(pl.col("status") != "same").head(20).iter_rows(named=True):
        executions = f"{row['a_executions']:,.6g} → {row['b_executions']:,.6g}"
        times = change(row["a_device_ns"], row["b_device_ns"])
        name = printable(row["name"]).replace("|", "\\|").replace("`", "'")
        changed = duration(row["device_change_ns"], signed=True)
        lines.append(f"| `{name}` | {row['status']} | {executions} | {times} | {changed} |")
    return "\n".join(lines)
