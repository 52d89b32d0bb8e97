"""``tracekit chains PATH``: chains per operator, where they break, and the time of each hop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table as Grid
from rich.text import Text

from tracekit.cli.given import Given, path_argument
from tracekit.cli.output import console, emit, format_option, print_notes, printable
from tracekit.cli.units import duration, plural

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

_EPILOG = """\b
Examples:
  tracekit chains capture/
  tracekit chains runs/ --profile base --step 5 --format csv
\b
Hops:
  submit   from the operator's start to the submit to the runtime
  start    from the submit to the start on the hardware
  device   on the hardware, physical cores merged
"""
_HOPS = {"submit": "to_submit", "start": "to_start", "device": "device"}
_NAME_WIDTH = 24
_NOTES = (
    "artifacts_only",
    "no_events",
    "no_device_events",
    "no_framework_events",
    "no_system_trace",
    "incomplete_chains_hardware",
    "incomplete_chains_runtime",
    "unlinked_work",
)
"""Notes about what chains lack, and how to have it next time."""


@click.command(epilog=_EPILOG)
@path_argument
@click.option("--step", type=int, help="Take the chains that start in one step only.")
@format_option
@click.option("--limit", default=15, show_default=True, help="Operators on screen; 0 shows all.")
def command(
    given: Given,
    step: int | None,
    form: str | None,
    output: Path | None,
    limit: int,
) -> None:
    """Show where the chains from operator to hardware break, and how long each hop takes.

    A chain is one launch: operator, call, device stream, runtime, hardware execution. It is complete if
    every lane that the capture holds is present. PATH is an archive, a stored profile, or raw input.
    """
    import polars as pl

    from tracekit.links.summary import CHAIN_SUMMARY, summary

    profile = given.open()
    scope = profile.inputs("all" if step is None else step).scope
    frame = summary(profile.chains, scope).collect(engine="streaming")
    if form not in (None, "table") or output is not None:
        emit(frame, CHAIN_SUMMARY, form, output)
        return
    out = console()
    _print(out, frame, limit)
    notes = profile.notes.filter(pl.col("code").is_in(_NOTES)).collect()
    if notes.height:
        out.print()
        print_notes(out, notes)


def _print(out: Console, frame: pl.DataFrame, limit: int) -> None:
    if frame.is_empty():
        out.print("no chains: the capture holds no launches and no device work in this scope")
        return
    out.print(_headline(frame))
    has_hops = any(frame[f"{hop}_median_ns"].null_count() < frame.height for hop in _HOPS.values())
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    grid.add_column("operator", no_wrap=True, max_width=_NAME_WIDTH)
    grid.add_column("complete" if has_hops else "chains", justify="right", no_wrap=True)
    for name in ("hop", "median", "p95", "total") if has_hops else ():
        grid.add_column(name, justify="left" if name == "hop" else "right", no_wrap=True)
    shown = frame.head(limit) if limit else frame
    for row in shown.iter_rows(named=True):
        if has_hops:
            _add(grid, row)
        else:
            grid.add_row(Text(_cut(printable(str(row["name"])), _NAME_WIDTH)), f"{row['chain_count']:,}")
    out.print(grid)
    if shown.height < frame.height:
        out.print(f"  … {plural(frame.height - shown.height, 'more operator')} (--limit 0)", style="dim")


def _headline(frame: pl.DataFrame) -> str:
    """How many chains there are, and how far they go."""
    total, complete = int(frame["chain_count"].sum()), int(frame["complete_count"].sum())
    if frame["device_median_ns"].null_count() == frame.height:
        return f"{plural(total, 'chain')}, and none reaches the hardware: the capture has no device events"
    breaks = _breaks({c: int(frame[c].sum()) for c in frame.columns if c.startswith("missing_")})
    return f"{plural(total, 'chain')}, {complete:,} complete" + (f"; {breaks}" if breaks else "")


def _add(grid: Grid, row: dict[str, object]) -> None:
    """Up to three lines of one operator: one per hop that was measured, and where its chains break."""
    breaks = _breaks({n: v for n, v in row.items() if n.startswith("missing_") and isinstance(v, int)})
    kind = "" if row["kind"] == "execution" else f" ({row['kind']})"
    name = _cut(printable(str(row["name"])), _NAME_WIDTH - len(kind)) + kind
    first = [Text(name), Text(f"{row['complete_count']:,}/{row['chain_count']:,}")]
    second = [Text(_cut(f"  {breaks}" if breaks else "", _NAME_WIDTH), style="yellow"), Text("")]
    hops = [(label, hop) for label, hop in _HOPS.items() if row[f"{hop}_median_ns"] is not None]
    for number in range(max(len(hops), 2 if breaks else 1)):
        left = first if number == 0 else second if number == 1 else [Text(""), Text("")]
        label, hop = hops[number] if number < len(hops) else ("", "")
        times = [duration(_ns(row[f"{hop}_{s}_ns"])) if hop else "" for s in ("median", "p95", "total")]
        grid.add_row(*left, label, *times)


def _ns(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _breaks(counts: dict[str, int]) -> str:
    """``3 without hardware, 1 without runtime``: the first lane that chains lack, most first."""
    lanes = {name.removeprefix("missing_").removesuffix("_count"): count for name, count in counts.items()}
    return ", ".join(f"{count:,} without {lane}" for lane, count in sorted(lanes.items(), key=lambda i: -i[1]) if count)
