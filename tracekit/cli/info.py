"""``tracekit info``: what is inside a capture, a profile or an archive."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import cast

import click
import polars as pl
from rich.console import Console

from tracekit import tables
from tracekit.cli.given import Given, path_argument
from tracekit.cli.output import facts, format_option, print_notes, print_table, screen, write_rows
from tracekit.cli.units import duration, moment, size
from tracekit.profile import Profile
from tracekit.tables import Column, Table

LANES = Table(
    name="lanes",
    doc="Events of each session by lane, kind and source.",
    key=("session", "lane", "kind", "source"),
    columns=(
        Column("session", pl.String(), "Key of `sessions`."),
        Column("lane", pl.String(), "Lane of the events."),
        Column("kind", pl.String(), "What they are."),
        Column("source", pl.String(), "Format they came from."),
        Column("is_primary", pl.Boolean(), "Whether metrics use them."),
        Column("event_count", pl.Int64(), "How many."),
        Column("first_ns", pl.Int64(), "First start.", unit="ns"),
        Column("last_ns", pl.Int64(), "Last end.", unit="ns"),
        Column("summed_ns", pl.Int64(), "Summed durations.", unit="ns"),
    ),
)
_EPILOG = """\b
Examples:
  tracekit info capture/
  tracekit info runs/ --profile nightly-4f2ab0c1d2
  tracekit info trace.json.gz --format json
"""


@click.command(epilog=_EPILOG)
@path_argument
@format_option
def command(
    given: Given,
    form: str | None,
    output: Path | None,
) -> None:
    """Show what PATH holds: sessions, lanes, event counts, time range, files and notes.

    PATH is an archive, a stored profile, or raw input (a directory, a trace, a tarball).
    """
    profile = given.open()
    lanes = lane_counts(profile)
    if form is None and output and output.suffix in (".json", ".csv", ".parquet"):
        form = output.suffix.removeprefix(".")
    if form in ("json", "csv", "parquet"):
        write_rows(lanes, form, output)
        return
    with screen(output) as out:
        _show(out, profile, lanes)


def _show(out: Console, profile: Profile, lanes: pl.DataFrame) -> None:
    facts(out, _summary(profile))
    out.print()
    print_table(
        out,
        lanes,
        LANES,
        title="Events by lane and kind",
        columns=("session", "lane", "kind", "source", "is_primary", "event_count", "summed_ns"),
    )
    out.print()
    artifacts = profile.artifacts.collect()
    print_table(
        out,
        artifacts,
        tables.ARTIFACTS,
        title="Files",
        columns=("path", "role", "format", "size_bytes", "problem"),
        limit=20,
        more="tracekit artifacts PATH",
    )
    out.print()
    notes = profile.notes.collect()
    print_notes(out, notes, limit=50)


def lane_counts(profile: Profile) -> pl.DataFrame:
    """Events and summed time per session, lane, kind and source (``LANES``)."""
    lane = pl.col("lane").replace_strict({n: i for i, n in enumerate(tables.LANES)}, return_dtype=pl.Int64)
    return (
        profile.events.group_by("session", "lane", "kind", "source", "is_primary")
        .agg(
            event_count=pl.len().cast(pl.Int64),
            first_ns=pl.col("start_ns").min(),
            last_ns=pl.col("end_ns").max(),
            summed_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
        )
        .sort("session", lane, "kind", "source")
        .collect(engine="streaming")
    )


def _summary(profile: Profile) -> dict[str, str]:
    sessions = profile.sessions.collect()
    first, last = sessions["first_ns"].min(), sessions["last_ns"].max()
    sources = cast("list[dict[str, object]]", profile.manifest["sources"])
    facts_by_name = {
        "profile": profile.id,
        "path": str(profile.path),
        "devices": ", ".join(sessions["device"].drop_nulls().unique().sort().to_list()),
        "sessions": _some(sessions["session"].to_list()),
        "ranks": _ranks(sessions["rank"].drop_nulls().to_list()),
        "from": moment(cast("int | None", first)),
        "to": moment(cast("int | None", last)),
        "length": duration(cast(int, last) - cast(int, first)) if first is not None else "no events",
        "events": f"{profile.events.select(pl.len()).collect().item():,}",
        "files": f"{len(sources)}, {size(sum(cast(int, s['size_bytes']) for s in sources))}",
        "device tables": ", ".join(profile.device_tables),
    }
    return {name: value for name, value in facts_by_name.items() if value}


def _ranks(ranks: list[int]) -> str:
    """Each rank once; one that several sessions claim says so."""
    several = {rank: f" ({count} sessions)" for rank, count in Counter(ranks).items() if count > 1}
    return _some([f"{rank}{several.get(rank, '')}" for rank in sorted(set(ranks))])


def _some(names: list[str]) -> str:
    return ", ".join(names[:6]) + (f", … ({len(names)})" if len(names) > 6 else "")
