"""``tracekit trend ARCHIVE``: a measure over runs, commits or machine types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli.output import OutputFile, console, emit, format_option, printable
from tracekit.cli.units import duration

if TYPE_CHECKING:
    import polars as pl

_EPILOG = """\b
Examples:
  tracekit trend runs/
  tracekit trend runs/ --metric device_time --by label:commit
  tracekit trend runs/ --metric gap --by instance_type --format csv
  tracekit trend runs/ --by label:commit --chart trend.html
"""


CHARTS = (".html", ".svg")
"""Endings of charts."""


@click.command(epilog=_EPILOG)
@click.argument("archive")
@click.option("--metric", "measure", default="device_time", show_default=True, help="A measure of `tracekit diff`.")
@click.option("--by", default="time", show_default=True, help="time, label:KEY, or a column of the table runs.")
@click.option("--where", metavar="CONDITION", help="Only runs whose row of runs fulfils an SQL condition.")
@click.option("--chart", type=OutputFile(), help="Write a chart, too: .html, a page to mail, or .svg.")
@click.option("--limit", default=40, show_default=True, help="Rows on screen; 0 shows all.")
@format_option
def command(
    archive: str,
    measure: str,
    by: str,
    where: str | None,
    chart: Path | None,
    limit: int,
    form: str | None,
    output: Path | None,
) -> None:
    """Show how a measure changed over the runs of ARCHIVE, and where its level stepped.

    A value is the median over the steps of a run (or of all runs with one label). Steps of the level are
    found by PELT and confirmed by the test that `tracekit diff` uses.
    """
    from tracekit.profile import open_archive
    from tracekit.tables import Column, Table
    from tracekit.trend import COUNTS, TREND, trend

    if chart is None and output is not None and form is None and output.suffix in CHARTS:
        chart, output = output, None
    if chart is not None and chart.suffix not in CHARTS:
        raise click.BadParameter(f"name an {' or '.join(CHARTS)} file", param_hint="--chart")
    found = open_archive(archive)
    if where is not None:
        kept = found.query(f"SELECT profile FROM runs WHERE ({where})").collect()["profile"].to_list()
        found = found.only([i for i in found.ids if i in set(kept)])
    frame = trend(found, measure, by)
    unit = None if measure in COUNTS else "ns"
    measured = ("value", "low", "high", "level")
    columns = tuple(
        Column(c.name, c.dtype, c.doc, c.nullable, unit) if c.name in measured else c for c in TREND.columns
    )

    def text(value: float) -> str:
        return duration(value) if unit else f"{value:,.0f}"

    if chart is not None:
        about = {"archive": archive, "measure": measure, "ordered by": by} | ({"only": where} if where else {})
        chart.write_text(_drawn(frame, measure, by, text, chart.suffix, about), encoding="utf-8")
    if form in (None, "table") and output is None:
        _headline(frame, measure, by, text)
    shown = ("point", "run_count", "sample_count", "value", "low", "high", "step_ratio", "verdict")
    emit(frame, Table("trend", TREND.doc, TREND.key, columns), form, output, columns=shown, limit=limit or None)


def _drawn(
    frame: pl.DataFrame, measure: str, by: str, text: Callable[[float], str], ending: str, about: dict[str, str]
) -> str:
    """The chart as a file of that ending."""
    from tracekit.trend import COUNTS, chart

    if ending == ".svg":
        return chart(frame, f"{measure} by {by}", text)
    from tracekit.report.page import page
    from tracekit.report.trend import trend_report

    return page(trend_report(frame, measure, by, is_count=measure in COUNTS, about=about), part="trend")


def _headline(frame: pl.DataFrame, measure: str, by: str, text: Callable[[float], str]) -> None:
    """The series as a line of bars, and each step of its level in words."""
    from tracekit.trend import sparkline

    out = console()
    values = frame["value"].to_list()
    if values:
        span = f"{text(min(values))} to {text(max(values))}"
        out.print(f"{measure} by {printable(by)}: {sparkline(values)}  {span}", soft_wrap=True)
    for row in frame.filter(frame["verdict"].is_not_null()).to_dicts():
        level = text(row["level"])
        change = _change(row["step_ratio"])
        sure = "" if row["verdict"] == "changed" else ", too few samples to be sure"
        out.print(f"  {change} at {printable(row['point'])}: {level} from here on{sure}", soft_wrap=True)


def _change(ratio: float | None) -> str:
    """A change of the level in words; beyond tenfold percents say nothing."""
    if ratio is None:
        return "from nothing"
    return f"×{1 + ratio:,.0f}" if ratio >= 9 else f"{100 * ratio:+.1f} %".replace("-", "−")
