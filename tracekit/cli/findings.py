"""Findings on screen, as paragraphs: what was found, what to try, and whether the capture is fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from tracekit.cli.output import printable
from tracekit.cli.units import duration, plural, told

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console


def print_findings(
    out: Console, advice: pl.DataFrame, *, limit: int | None = None, evidence: bool = False, more: str = "--limit 0"
) -> None:
    """Print findings, the most time at stake first, each once however many sessions have it.

    Args:
        out: where to.
        advice: rows of the metric ``advice``.
        limit: findings to print; None prints all.
        more: what to type to see those beyond ``limit``.
        evidence: with the formula of the estimate and the ids it rests on.
    """
    import polars as pl

    merged = (
        advice.group_by("finding", "subject", "next_step", "formula", "evidence", maintain_order=True)
        .agg(pl.col("message", "evidence_ids").first(), pl.col("at_stake_ns").sum(), sessions=pl.len())
        .sort("at_stake_ns", descending=True)
    )
    for row in merged.head(limit or merged.height).iter_rows(named=True):
        times = f" (and {plural(row['sessions'] - 1, 'more session')})" if row["sessions"] > 1 else ""
        text = Text(f"{duration(row['at_stake_ns'])} at stake: ", style="yellow")
        step = row["next_step"][0].upper() + row["next_step"][1:]
        text += Text(printable(f"{row['message']}{times}. {step}."), style="default")
        out.print(Padding(text, (0, 0, 0, 2)))
        if evidence:
            ids = ", ".join(map(str, row["evidence_ids"]))
            basis = f"{row['finding']} = {row['formula']}; {row['evidence']} {ids}"
            out.print(Padding(Text(printable(basis), style="dim"), (0, 0, 0, 4)))
    if merged.height > (limit or merged.height):
        out.print(f"  … {merged.height - (limit or 0):,} more: {more}", style="dim")


def print_state(out: Console, diagnoses: pl.DataFrame, *, limit: int = 4) -> None:
    """Say whether a capture is fit, what it lacks, and how to have it next time; mere information is left out.

    Args:
        out: where to.
        diagnoses: ``doctor.DIAGNOSES``.
        limit: diagnoses to print.
    """
    import polars as pl

    from tracekit import doctor

    grave = diagnoses.filter(pl.col("severity") != "info")
    if grave.is_empty():
        out.print("Capture: fine (tracekit doctor)")
        return
    out.print("Capture: usable with care" if doctor.verdict(diagnoses) == 1 else "Capture: unusable", style="yellow")
    merged = grave.group_by("message", "next_step", maintain_order=True).len()
    for row in merged.head(limit).iter_rows(named=True):
        step = f" → {row['next_step']}" if row["next_step"] else ""
        out.print(Padding(Text(printable(f"{told(row['message'])}{step}")), (0, 0, 0, 2)))
    if merged.height > limit:
        out.print(f"  … {merged.height - limit:,} more: tracekit doctor PATH", style="dim")
