"""``tracekit analyze``: the main command; where did the time go?"""

from __future__ import annotations

from pathlib import Path

import click
import polars as pl

from tracekit.cli.output import (
    chosen_scope,
    console,
    duration,
    facts,
    format_option,
    moment,
    open_for_command,
    path_argument,
    print_notes,
    print_table,
    scope_options,
)
from tracekit.metrics import METRICS
from tracekit.profile import Profile, Scope

_EPILOG = """\b
Examples:
  tracekit analyze capture/
  tracekit analyze trace.json.gz --step 3
  tracekit analyze runs/ --profile nightly-4f2ab0c1d2 --format json
"""

SECTIONS: tuple[tuple[str, str, tuple[str, ...], int], ...] = (
    ("devices", "Devices", ("session", "core_index", "window_ns", "busy_ns", "idle_ns", "busy_ratio"), 16),
    ("work", "Device work", ("session", "name", "kind", "execution_count", "device_ns", "share_ratio"), 10),
)
"""Metric, title, columns on screen, rows on screen; in the order of the answer."""


@click.command(epilog=_EPILOG)
@path_argument
@scope_options
@format_option
def command(
    path: Path,
    profile_id: str | None,
    cache: Path | None,
    neff_cache: tuple[Path, ...],
    step: int | None,
    everything: bool,
    form: str | None,
    output: Path | None,
) -> None:
    """Say where the time went in PATH, and why.

    PATH is raw input (a capture directory, a trace, a tarball), a stored profile, or an archive.
    Steps that are warm-up are left out unless --all is given.
    """
    profile = open_for_command(path, profile_id, cache, neff_cache)
    scope = chosen_scope(step, everything)
    out = console()
    facts(out, _window(profile, scope))
    for name, title, columns, limit in SECTIONS:
        if name not in METRICS:
            continue
        frame = profile.metric(name, scope=scope).collect(engine="streaming")
        if frame.height:
            out.print()
            print_table(out, frame, METRICS[name].table, title=title, columns=columns, limit=limit)
    notes = profile.notes.collect()
    if notes.height:
        out.print()
        print_notes(out, notes)


def _window(profile: Profile, scope: Scope) -> dict[str, str]:
    windows = profile.inputs(scope).scope.collect()
    steps = windows["step"].drop_nulls().unique().sort().to_list()
    total = windows.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item()
    measured = f"steps {', '.join(map(str, steps[:8]))}{' …' if len(steps) > 8 else ''}" if steps else "everything"
    return {
        "profile": profile.id,
        "measured": f"{measured}: {duration(total)}" if windows.height else "nothing: no events",
        "from": moment(windows["start_ns"].min()),  # type: ignore[arg-type]
    }
