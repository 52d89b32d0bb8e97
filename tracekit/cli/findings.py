"""Findings on screen, as paragraphs: what was found, what to try, and whether the capture is fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.text import Text

from tracekit.cli.output import printable
from tracekit.cli.units import duration, told

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console


def print_findings(
    out: Console, advice: pl.DataFrame, *, limit: int | None = None, evidence: bool = False, more: str = "--limit 0"
) -> None:
    """Print findings, the most time at stake first, each once however many sessions have it.

    What is said of several sessions holds for each, or for the one with the most at stake, which is named.

    Args:
        out: where to.
        advice: rows of the metric ``advice``.
        limit: findings to print; None prints all.
        more: what to type to see those beyond ``limit``.
        evidence: with the formula of the estimate and the ids it rests on.
    """
    import polars as pl

    if advice.is_empty():
        out.print("no findings", style="dim")
    merged = (
        advice.sort("at_stake_ns", descending=True, maintain_order=True)
        .group_by("finding", "subject", "next_step", "formula", "evidence", maintain_order=True)
        .agg(
            pl.col("session", "message", "evidence_ids").first(),
            pl.col("at_stake_ns").sum(),
            largest_ns=pl.col("at_stake_ns").first(),
            sessions=pl.len(),
            messages=pl.col("message").n_unique(),
        )
        .sort("at_stake_ns", descending=True, maintain_order=True)
    )
    for row in merged.head(limit or merged.height).iter_rows(named=True):
        text = Text(f"{duration(row['at_stake_ns'])} at stake{_where(row)}: ", style="yellow")
        step = row["next_step"][0].upper() + row["next_step"][1:]
        text += Text(printable(f"{row['message']}. {step}."), style="default")
        out.print(Padding(text, (0, 0, 0, 2)))
        if evidence:
            ids = ", ".join(map(str, row["evidence_ids"]))
            basis = f"{row['finding']} = {row['formula']}; {row['evidence']} {ids}"
            out.print(Padding(Text(printable(basis), style="dim"), (0, 0, 0, 4)))
    if merged.height > (limit or merged.height):
        out.print(f"  … {merged.height - (limit or 0):,} more: {more}", style="dim")


def _where(finding: Mapping[str, Any]) -> str:
    """Of how many sessions the time at stake is, and which of them the message describes."""
    if finding["sessions"] == 1:
        return ""
    if finding["messages"] == 1:
        return f" in {finding['sessions']} sessions, in each"
    largest = f"most ({duration(finding['largest_ns'])}) in {printable(finding['session'])}"
    return f" in {finding['sessions']} sessions, {largest}"


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
