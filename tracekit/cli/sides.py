"""What ``diff`` and ``gate`` share: opening two sides, and a comparison in words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from tracekit import archive, baseline
from tracekit.cli.given import Given
from tracekit.cli.output import printable
from tracekit.cli.units import change, duration, minus, plural, ratio
from tracekit.comparison import Comparison
from tracekit.diffing import one_side
from tracekit.lazy_tables import Scope
from tracekit.sides import Side
from tracekit.significance import MIN_CHANGE, is_chance

_HEADLINE = ("device_time", "host_time", "window", "executions", "operators", "gap")


def open_side(path: Path, cache: Path | None, scope: Scope) -> Side:
    """One side of a comparison: a baseline file, or anything that can be analysed."""
    if baseline.is_baseline(path):
        return baseline.from_json(path)
    return measured(Given(path, cache=cache), scope)


def measured(given: Given, scope: Scope) -> Side:
    """One side, measured now; an archive of which no profile is named is one of repeats."""
    from tracekit.profile import open_any

    is_stored = archive.is_archive(given.path) or str(given.path).startswith("s3:/")
    return one_side(open_any(given.path) if is_stored and given.profile_id is None else given.open(), scope)


def as_json(compared: Comparison) -> str:
    """All tables of a comparison as one JSON object."""
    document = {
        "a": compared.a.name,
        "b": compared.b.name,
        "a_basis": compared.a.basis,
        "b_basis": compared.b.basis,
        "per_process": compared.is_per_process,
        "replaced_in": [compared.a.sequence_of, compared.b.sequence_of],
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


def heading(compared: Comparison) -> str:
    """``a → b per step``."""
    return f"{compared.a.name} → {compared.b.name} {compared.basis}".rstrip()


def headline(compared: Comparison) -> list[str]:
    """The answer in a few lines: the main measures, what was replaced, and what the values stand for."""
    known = {row["measure"]: row for row in compared.totals.to_dicts()}
    rows = [known[measure] for measure in _HEADLINE if measure in known]
    lines = [_line(row) for row in rows if row["a"] or row["b"]]
    return lines + replacements(compared) + remarks(compared)


def _line(row: dict[str, Any]) -> str:
    name = row["measure"].replace("_", " ")
    if row["verdict"] == "same":
        return f"{name}: {amount(row, 'a')}, no change"
    share = f" ({ratio(row['change_ratio'], signed=True)})" if row["change_ratio"] is not None else ""
    return f"{name}: {_both(row)}{share}{_claim(row)}"


def remarks(compared: Comparison) -> list[str]:
    """What must be known of the two sides to read their numbers."""
    a, b = compared.a, compared.b
    lines = []
    if compared.is_per_process:
        one, other = (f"{n} processes" if n > 1 else "one process" for n in (a.process_count, b.process_count))
        lines.append(f"A has {one}, B has {other}: values are per process")
    elif a.process_count > 1:
        lines.append(f"values are sums over {a.process_count} processes")
    if max(a.run_count, b.run_count) > 1:
        lines.append(f"A: {a.basis}; B: {b.basis}")
    if compared.lacking:
        lines.append(f"only one side has {', '.join(compared.lacking)}: a baseline of another version")
    return lines


def _both(row: dict[str, Any]) -> str:
    if row["unit"] == "count":
        return f"{amount(row, 'a')} → {amount(row, 'b')}"
    return change(row["a"], row["b"])


_REPLACED_SHOWN = 5


def replacements(compared: Comparison) -> list[str]:
    """``6 → 1 executions: …`` for every run of executions that became another, and of which step that is said."""
    lines = []
    for row in compared.replaced.head(_REPLACED_SHOWN).iter_rows(named=True):
        went, came = counted_names(row["a_names"]), counted_names(row["b_names"])
        times = change(row["a_device_ns"], row["b_device_ns"])
        many = f"{row['a_executions']:,} → {row['b_executions']:,} executions"
        lines.append(f"{many} ({times}): {went or 'none'} → {came or 'none'}")
    if compared.replaced.height > _REPLACED_SHOWN:
        lines.append(f"… {plural(compared.replaced.height - _REPLACED_SHOWN, 'more replacement')}: --table replaced")
    is_part = max(compared.a.sample_count, compared.b.sample_count) > 1 or compared.a.process_count > 1
    if lines and is_part:
        lines.insert(0, f"replaced in {printable(compared.a.sequence_of)} → {printable(compared.b.sequence_of)}:")
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
        return f" [noise{'' if is_chance(row['p_value']) else _why_noise(row)}, p = {row['p_value']:.2g}]"
    return f" [p = {row['p_value']:.2g}]" if row["p_value"] is not None else ""


def _why_noise(row: dict[str, Any]) -> str:
    """Why a difference that is no chance is no change of the program either."""
    if abs(row["b"] - row["a"]) < MIN_CHANGE * abs(row["a"]):
        return f": less than {100 * MIN_CHANGE:.0f} %"
    return ": the samples scatter more than they differ"


def told_ops(ops: pl.DataFrame) -> tuple[pl.DataFrame, bool]:
    """Operators to show, and whether by their device time; where only the host changed, by that of the host.

    ``name`` has the shapes behind it where the name alone says too little. What is the same, and what is noise,
    is left out.
    """
    shown = ops.filter(~pl.col("status").is_in(["same", "noise"]))
    on_device = (pl.col("device_change_ns") != 0) | (pl.col("a_executions") != pl.col("b_executions"))
    has_device = bool(shown.select(on_device.any()).item())
    if not has_device:
        shown = shown.sort(pl.col("host_change_ns").abs(), descending=True, maintain_order=True)
    often = ops["name"].filter(ops["name"].is_duplicated()).unique().implode()
    shapes = pl.concat_list("a_shapes", "b_shapes").list.drop_nulls().list.unique(maintain_order=True).list.join(" → ")
    is_apart = pl.col("name").is_in(often) | (pl.col("a_shapes") != pl.col("b_shapes")).fill_null(value=False)
    full = pl.when(is_apart & (shapes != "")).then(pl.format("{} {}", "name", shapes)).otherwise("name")
    return shown.with_columns(name=full), has_device


def left_out(ops: pl.DataFrame) -> str:
    """How many operators differ by no more than noise, in words; empty for none."""
    count = ops.filter(pl.col("status") == "noise").height
    return f"{plural(count, 'more operator')} within the noise" if count else ""


def count(value: float) -> str:
    """Executions or calls per sample: ``2,000``, ``2.5``."""
    return minus(f"{value:,.1f}" if value % 1 else f"{value:,.0f}")


def markdown(compared: Comparison) -> str:
    """The comparison for a pull request."""
    a, b = _code(compared.a.name), _code(compared.b.name)
    lines = [f"### tracekit: {a} → {b} {compared.basis}".rstrip(), ""]
    lines += [f"- {line}" for line in headline(compared)]
    lines += ["", "| measure | before | after | change | | verdict |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    for row in compared.totals.iter_rows(named=True):
        if row["a"] or row["b"]:
            share = ratio(row["change_ratio"], signed=True) if row["change_ratio"] is not None else ""
            cells = (row["measure"], amount(row, "a"), amount(row, "b"), amount(row, "change"), share, row["verdict"])
            lines.append(_row(cells))
    return "\n".join(lines + _markdown_ops(compared.ops))


def _markdown_ops(ops: pl.DataFrame, limit: int = 20) -> list[str]:
    shown, has_device = told_ops(ops)
    which = "device" if has_device else "host"
    head = ["operator", "", *(["executions"] if has_device else []), f"{which} time", "change"]
    lines = ["", _row(head), _row(["---", "---", *["---:"] * (len(head) - 2)])]
    for row in shown.head(limit).iter_rows(named=True):
        times = change(row[f"a_{which}_ns"], row[f"b_{which}_ns"])
        cells = [times, duration(row[f"{which}_change_ns"], signed=True)]
        if has_device:
            cells.insert(0, f"{count(row['a_executions'])} → {count(row['b_executions'])}")
        lines.append(_row([_code(row["name"]), row["status"], *cells]))
    if shown.is_empty():
        lines = ["", "No operator changed by more than noise."]
    more = f"{plural(shown.height - limit, 'more row')}: `--table ops --format csv`" if shown.height > limit else ""
    notes = [note for note in (more, left_out(ops)) if note]
    return [*lines, *(["", "; ".join(notes)] if notes else [])]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _code(text: str) -> str:
    """Text as Markdown code, also in a table."""
    return f"`{printable(text).replace('|', chr(92) + '|').replace('`', chr(39))}`"
