"""``tracekit artifacts``: the files of a capture, which NEFF belongs to which NTFF, and what is missing."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import click
import polars as pl
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from tracekit import tables
from tracekit.cli.output import cell, format_option, printable, screen, write_rows
from tracekit.cli.units import plural, size, told

NOTE_CODES = (
    "artifacts_only",
    "no_neff",
    "no_ntff",
    "empty_ntff",
    "hash_without_neff",
    "twin_neff",
    "neff_from_cache",
    "no_neff_cache",
    "damaged_file",
    "duplicate_file",
    "cut_archive",
    "nested_archive",
    "archive_refused",
    "unreadable_directory",
    "bad_manifest",
    "no_system_trace",
    "ntrace_not_understood",
    "unreadable_file",
)
"""Notes that are about files; the others are about events."""

DAMAGE_CODES = ("cut_file", "damaged_gzip", "damaged_header", "damaged_event", "unreadable_file")
"""Notes of readers that a file is damaged; they stand beside the file."""

_EPILOG = """\b
Examples:
  tracekit artifacts capture/
  tracekit artifacts capture/ --neff-cache /tmp/neff_cache
  tracekit artifacts runs.tar.zst --format json
"""
_ROWS = 20


@dataclass(frozen=True)
class _Files:
    """What is shown: ``tables.ARTIFACTS``, ``tables.NOTES``, and label and reason of what nothing reads."""

    artifacts: pl.DataFrame
    notes: pl.DataFrame
    ignored: Sequence[tuple[str, str]]


@click.command(epilog=_EPILOG)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--profile", "profile_id", help="Which profile of an archive.")
@click.option("--neff-cache", multiple=True, type=click.Path(path_type=Path), help="Look for NEFFs here too.")
@click.option("--all", "everything", is_flag=True, help="List every file, also those that nothing reads.")
@format_option
def command(
    path: Path,
    profile_id: str | None,
    neff_cache: tuple[Path, ...],
    everything: bool,
    form: str | None,
    output: Path | None,
) -> None:
    """List the files of PATH, pair NEFFs with NTFFs, and name what is missing.

    PATH is raw input (a directory, a trace, a tarball), a stored profile or an archive. Raw input is
    looked at, not read: this is quick for any size.
    """
    found = _files(path, profile_id, neff_cache)
    if form in ("json", "csv", "parquet") or (output and output.suffix in (".json", ".csv", ".parquet")):
        write_rows(found.artifacts, form or cast(Path, output).suffix.removeprefix("."), output)
        return
    with screen(output) as out:
        _show(out, found, everything)


def _files(path: Path, profile_id: str | None, neff_cache: Sequence[Path]) -> _Files:
    """Files of a stored profile from its tables, else from the input itself."""
    from tracekit import archive as store

    if store.is_profile(path) or store.is_archive(path):
        from tracekit.profile import open_profile

        profile = open_profile(path, profile_id)
        ignored = cast("list[dict[str, str]]", profile.manifest.get("ignored", []))
        pairs = [(entry["path"], entry["reason"]) for entry in ignored]
        notes = profile.notes.collect()
        return _Files(_with_damage(profile.artifacts.collect(), notes), notes, pairs)
    from tracekit.discover import artifact_rows, discover
    from tracekit.wholeness import damage

    with tempfile.TemporaryDirectory(prefix="tracekit-") as workdir:
        discovery = discover([path], workdir=Path(workdir), neff_cache=neff_cache)
        checked = [a if a.problem else replace(a, problem=damage(a)) for a in discovery.artifacts]
        return _Files(artifact_rows(checked), discovery.notes, discovery.ignored)


def _with_damage(artifacts: pl.DataFrame, notes: pl.DataFrame) -> pl.DataFrame:
    """Files with what their reader found damaged as their problem, where they have no other."""
    told = (
        notes.filter(pl.col("code").is_in(DAMAGE_CODES) & pl.col("path").is_not_null())
        .group_by("path", maintain_order=True)
        .agg(damage=pl.col("message").first())
    )
    joined = artifacts.join(told, on="path", how="left", maintain_order="left")
    return joined.with_columns(problem=pl.coalesce("problem", "damage")).drop("damage")


def _show(out: Console, found: _Files, everything: bool) -> None:
    artifacts = found.artifacts
    out.print(_counted(artifacts), style="bold")
    limit = None if everything else _ROWS
    binary = artifacts.filter(pl.col("role").is_in(("neff", "ntff")))
    groups = binary.with_columns(group=pl.coalesce("session", pl.col("path").str.replace(r"/?[^/]*$", "")))
    for (group,), files in groups.group_by("group", maintain_order=True):
        out.print()
        title = f"NEFF and NTFF of {printable(str(group) or 'the directory')}"
        _grid(out, title, _pairs(files), limit)
    others = artifacts.filter(~pl.col("role").is_in(("neff", "ntff", "other")))
    if others.height:
        out.print()
        _grid(out, "Traces and other files", _others(others), limit)
    _show_notes(out, found.notes)
    _show_ignored(out, found.ignored, everything)


def _counted(artifacts: pl.DataFrame) -> str:
    count = Counter(artifacts["role"].to_list())
    names = {"neff": "NEFF", "ntff": "NTFF"}
    parts = [f"{count[role]:,} {names.get(role, role.replace('_', ' '))}" for role in tables.ROLES if count[role]]
    return f"{plural(artifacts.height, 'file')}, {size(cast(int, artifacts['size_bytes'].sum()))}: {', '.join(parts)}"


def _pairs(files: pl.DataFrame) -> pl.DataFrame:
    """The files of one process for the screen: those with problems first, then pair by pair."""
    return files.select(
        "role",
        file=pl.col("path").str.extract(r"([^/]*)$"),
        core=pl.col("core_index"),
        size_bytes=pl.col("size_bytes"),
        pair=pl.col("pair_id").str.extract(r":(.*)$").fill_null("none"),
        problem=pl.col("problem").fill_null(""),
    ).sort(pl.col("problem") == "", "pair", pl.col("role") == "ntff", "file", maintain_order=True)


def _others(files: pl.DataFrame) -> pl.DataFrame:
    """The files that are no NEFF or NTFF for the screen."""
    return files.select(
        what=pl.coalesce("format", "role"),
        path="path",
        size_bytes="size_bytes",
        problem=pl.col("problem").fill_null(""),
    ).sort(pl.col("problem") == "", maintain_order=True)


def _grid(out: Console, title: str, rows: pl.DataFrame, limit: int | None) -> None:
    """Print rows under a title, problems below their files; long names go on in the next line, to be copied."""
    out.print(title, style="bold")
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    shown = rows.head(limit) if limit else rows
    names = [n for n in rows.columns if n != "problem" and (rows[n].cast(pl.String).fill_null("") != "").any()]
    for name in names:
        is_text = rows.schema[name] == pl.String
        is_long = name in ("file", "path")
        grid.add_column(
            name.removesuffix("_bytes"),
            justify="left" if is_text else "right",
            no_wrap=not is_long,
            overflow="fold",
        )
    for row in shown.iter_rows(named=True):
        grid.add_row(*(Text(cell(tables.ARTIFACTS[n] if n == "size_bytes" else None, row[n])) for n in names))
        if row["problem"]:
            problem = Text(printable(told(row["problem"])), style="yellow")
            grid.add_row(*(problem if n in ("file", "path") else Text("") for n in names))
    out.print(grid)
    if rows.height > shown.height:
        out.print(f"  … {rows.height - shown.height:,} more; --all lists them", style="dim")


def _show_notes(out: Console, notes: pl.DataFrame) -> None:
    about_files = notes.filter(pl.col("code").is_in(NOTE_CODES))
    if about_files.height:
        out.print()
        out.print("Notes", style="bold")
    for note in about_files.to_dicts():
        place = note["session"] or note["path"]
        text = f"{note['severity']}: {f'{place}: ' if place else ''}{told(note['message'])}"
        out.print(Text(printable(text + (f" → {note['hint']}" if note["hint"] else ""))))


def _show_ignored(out: Console, ignored: Sequence[tuple[str, str]], everything: bool) -> None:
    if not ignored:
        return
    out.print()
    out.print(f"Not read: {plural(len(ignored), 'file')}", style="bold")
    for label, reason in ignored if everything else ignored[:5]:
        out.print(Text(f"  {printable(label)}: {printable(reason)}"))
    if not everything and len(ignored) > 5:
        out.print(f"  … {len(ignored) - 5:,} more; --all lists them", style="dim")
