"""``tracekit-capture pack``: one file to copy."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from capture import checks, layout
from capture import pack as packing
from capture.errors import CaptureError
from capture.text import human_bytes, shown_path


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="FILE.tar.zst, .tar.gz or .tar")
@click.option("--everything", is_flag=True, help="All files: NTFFs beside Parquet, memory snapshots, logs.")
@click.option("--neff-cache", type=click.Path(path_type=Path), help="Add NEFFs from this cache.")
@click.option("--dry-run", is_flag=True, help="Only show what would be packed.")
@click.option("--force", is_flag=True, help="Overwrite FILE; pack although check finds errors.")
def pack(directory: Path, output: Path, everything: bool, neff_cache: Path | None, dry_run: bool, force: bool) -> None:
    """Pack the captures below DIRECTORY into one file, checksums inside."""
    plan = packing.plan(directory, everything=everything, neff_cache=neff_cache, output=output)
    _show(plan)
    if dry_run:
        return
    _refuse(directory, output, force=force)
    with click.progressbar(length=plan.size_bytes, label="packing", file=sys.stderr) as bar:
        packing.pack(plan, output, lambda done: bar.update(done - bar.pos))
    size = output.stat().st_size
    click.echo(f"{shown_path(output)}: {human_bytes(size)} ({size:,} bytes)")
    click.echo(f"next, on the other machine: tracekit analyze {shlex.quote(output.name)}")


def _show(plan: packing.Plan) -> None:
    click.echo(f"to pack from {shown_path(plan.directory)}:")
    for role, count, size in packing.sizes_by_role(plan.members):
        click.echo(f"  {role:<10} {count:>6,} files  {human_bytes(size):>8}")
    click.echo(f"  {'total':<10} {len(plan.members):>6,} files  {human_bytes(plan.size_bytes):>8}  before compression")
    for role, count, size in packing.sizes_by_role(plan.left_out):
        click.echo(f"  left out: {count:,} {role} files, {human_bytes(size)} (--everything takes them)")


def _refuse(directory: Path, output: Path, *, force: bool) -> None:
    """Stop before hours of copying: errors in the capture, an existing file, a full disk."""
    if output.exists() and not force:
        raise CaptureError(f"{output}: exists already", hint="choose another name, or --force")
    report = checks.check(directory)
    errors = [finding for finding in report.findings if finding.severity == "error"]
    if errors and not force:
        raise CaptureError(
            f"{len(errors)} errors in the capture, the first: {errors[0].problem}",
            hint=f"see: tracekit-capture check {shown_path(directory)}; --force packs it anyway",
        )
    parent = output.resolve().parent
    if parent.is_dir() and layout.free_bytes(parent) < 1024 * 1024:
        raise CaptureError(f"{parent}: the disk is full", hint="write the archive to another disk")
