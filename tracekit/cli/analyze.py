"""``tracekit analyze``: the main command; where did the time go?"""

from __future__ import annotations

import sys
from pathlib import Path

import click
import polars as pl
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from tracekit import doctor
from tracekit.cli.findings import print_findings, print_state
from tracekit.cli.given import Given, path_argument
from tracekit.cli.output import (
    chosen_scope,
    format_option,
    print_table,
    printable,
    scope_options,
    screen,
    write_rows,
)
from tracekit.errors import TracekitError
from tracekit.metrics import METRICS
from tracekit.profile import Profile
from tracekit.report.answer import answer
from tracekit.report.results import Results

_EPILOG = """\b
Examples:
  tracekit analyze capture/
  tracekit analyze trace.json.gz --step 3
  tracekit analyze runs/ --profile nightly-4f2ab0c1d2 --format json
"""

Section = tuple[str, str, dict[str, str], tuple[str, ...], int]

SECTIONS: tuple[Section, ...] = (
    ("devices", "Devices", {}, ("session", "core_index", "window_ns", "busy_ns", "idle_ns", "busy_ratio"), 8),
    (
        "gaps",
        "Gaps between executions, by cause",
        {"by": "cause"},
        ("session", "core_index", "group", "gap_ns", "gap_count", "longest_ns"),
        10,
    ),
    ("work", "Device work", {}, ("session", "name", "kind", "execution_count", "device_ns", "share_ratio"), 10),
    ("ops", "Operators by self CPU time", {}, ("session", "name", "call_count", "self_cpu_ns", "self_device_ns"), 10),
    ("collectives", "Collectives", {}, (), 6),
    ("copies", "Copies", {}, ("session", "direction", "copy_count", "moved_bytes", "copy_ns", "scalar_count"), 6),
    ("waits", "Host waits", {}, ("session", "name", "wait_count", "wait_ns", "device_busy_ns", "device_idle_ns"), 6),
)
"""Metric, title, options, columns on screen, rows on screen; in the order of the answer."""
_OF_DEVICE = ("self_device_ns", "device_busy_ns", "device_idle_ns")
"""Columns that say nothing of a capture without device work."""


@click.command(epilog=_EPILOG)
@path_argument
@scope_options
@format_option
def command(
    given: Given,
    step: int | None,
    everything: bool,
    form: str | None,
    output: Path | None,
) -> None:
    """Say where the time went in PATH, and why.

    PATH is raw input (a capture directory, a trace, a tarball), a stored profile, or an archive. Steps
    that are warm-up are left out unless --all is given. With --format json every metric is written in
    full; csv and parquet give the findings. A capture without any timed event (NEFF and NTFF files alone,
    say) is exit code 1, with what is missing and how to have it next time.
    """
    profile = given.open()
    results = Results(profile.inputs(chosen_scope(step, everything)))
    if form == "json" or (form is None and output and output.suffix == ".json"):
        _write_json(profile, results, output)
    elif form in ("csv", "parquet"):
        write_rows(_frame(results, "advice"), form, output)
    else:
        with screen(output) as out:
            _show(out, profile, results)
    if results.split() is None:
        sys.exit(1)


def _frame(results: Results, name: str, **options: str) -> pl.DataFrame:
    found = results.get(name, **options)
    return METRICS[name].table.empty() if found is None else found


def _show(out: Console, profile: Profile, results: Results) -> None:
    told = answer(results)
    out.print(printable(told.headline), style="bold")
    cut = profile.notes.filter(pl.col("code").is_in(["cut_file", "cut_archive"])).collect()
    if cut.height:
        out.print(Text("  This capture is cut: what comes after the cut counts as idle.", style="yellow"))
    for sentence in told.sentences:
        out.print(Padding(Text(printable(sentence)), (0, 0, 0, 2)))
    advice = _frame(results, "advice")
    if advice.height:
        out.print()
        out.print("What to try", style="bold")
        print_findings(out, advice, limit=5, more="tracekit show advice PATH")
    facts = {
        "marks_steps": bool(results.inputs.scope.select(pl.col("step").is_not_null().any()).collect().item()),
        "has_device": results.get("devices") is not None,
    }
    tables = [(section, results.get(section[0], **section[2])) for section in SECTIONS]
    shown = [_show_section(out, section, found, **facts) for section, found in tables if found is not None]
    if results.split() is not None and not any(shown):
        out.print("  It has no operators and no device work: tracekit info PATH shows what it holds.")
    for name, problem in results.failed.items():
        raise TracekitError(f"metric {name} failed: {problem}", hint="please report this with the capture")
    out.print()
    print_state(out, doctor.diagnose(profile.inputs("all")))
    out.print(Text(printable(f"{profile.id} in {profile.path.parent}"), style="dim"), soft_wrap=True)


def _show_section(out: Console, section: Section, found: pl.DataFrame, *, marks_steps: bool, has_device: bool) -> bool:
    """Print a table, and say whether there is anything in it."""
    name, title, _, columns, limit = section
    metric = METRICS[name]
    if name == "devices" and not marks_steps:
        title = "Devices, each from its first to its last work"
    if name == "gaps":
        found = found.filter(pl.col("gap_ns") > 0)
    if name == "ops":
        found = found.filter(pl.col("kind") == "op").sort("self_cpu_ns", descending=True)
    if found.is_empty():
        return False
    out.print()
    print_table(
        out,
        found,
        metric.table,
        title=title,
        columns=[c for c in columns or metric.screen if has_device or c not in _OF_DEVICE],
        limit=limit,
        more=f"tracekit show {name} PATH",
        headings={"group": "cause"},
    )
    return True


def _write_json(profile: Profile, results: Results, output: Path | None) -> None:
    """Every metric in full, the answer, and the state of the capture, as one JSON object."""
    import json

    told = answer(results)
    document = {
        "profile": profile.id,
        "answer": [told.headline, *told.sentences],
        "scope": results.inputs.scope.collect().to_dicts(),
        "metrics": {name: _frame(results, name).to_dicts() for name in METRICS},
        "doctor": doctor.diagnose(profile.inputs("all")).to_dicts(),
        "notes": profile.notes.collect().to_dicts(),
    }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    if output is None:
        click.echo(text)
    else:
        output.write_text(text + "\n", encoding="utf-8")
