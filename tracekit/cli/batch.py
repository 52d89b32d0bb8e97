"""``tracekit batch SRC... -o ARCHIVE``: many captures into one archive."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli.output import console, printable, write_rows
from tracekit.cli.units import and_more, duration, size, told
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from tracekit.batch import Outcome, Plan, Progress
    from tracekit.batch.executors import Executors
    from tracekit.batch.ledger import Ledger

_EPILOG = """\b
Examples:
  tracekit batch captures/ -o runs/
  tracekit batch 'nightly/*/rank*.json.gz' -o runs/ --label branch=main
  tracekit batch s3://bucket/captures -o s3://bucket/runs --results done.json
  tracekit batch @list.txt -o runs/ --scheduler tcp://head:8786
"""
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_LOCAL_SHARE = 0.8
_WARNED = 10
"""Captures with warnings that the summary names."""


def _bytes(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", value.strip().lower())
    if match is None:
        raise click.BadParameter(f"{value!r} is not a size such as 8GB")
    return int(float(match.group(1)) * _UNITS[match.group(2)])


@click.command(epilog=_EPILOG)
@click.argument("sources", nargs=-1, required=True, metavar="SRC...")
@click.option("-o", "--output", "archive", required=True, help="The archive: a directory or s3://bucket/prefix.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label for every profile; repeatable.")
@click.option("--neff-cache", multiple=True, type=click.Path(), help="Look for NEFFs here too; repeatable.")
@click.option("--jobs", type=click.IntRange(1), help="Worker processes (default: one per core).")
@click.option(
    "--limit-memory", "limit_bytes", callback=_bytes, metavar="SIZE", help="For all workers, e.g. 8GB (default: 80 %)."
)
@click.option("--scheduler", metavar="ADDRESS", help="Run on this Dask scheduler; local starts one here.")
@click.option("--retry", type=click.IntRange(0), default=0, show_default=True, help="Try failed captures again.")
@click.option("--fail-fast", is_flag=True, help="Start nothing more after the first failure.")
@click.option("--dry-run", is_flag=True, help="Only list what would be done.")
@click.option("--results", type=click.Path(dir_okay=False, path_type=Path), help="Write .json, .csv or .parquet.")
def command(
    sources: tuple[str, ...],
    archive: str,
    labels: tuple[str, ...],
    neff_cache: tuple[str, ...],
    jobs: int | None,
    limit_bytes: int | None,
    scheduler: str | None,
    retry: int,
    fail_fast: bool,
    dry_run: bool,
    results: Path | None,
) -> None:
    """Find the captures in SRC and store each as a profile in an archive.

    SRC is a directory with any number of captures, a glob, an archive file, s3://bucket/prefix, or a list: @FILE
    with one source per line (tab-separated KEY=VALUE labels may follow). Captures that are stored already are
    passed over, so that an interrupted batch goes on when it is started again. A capture that cannot be read
    is reported and stops nothing else. Exits 1 if any failed.
    """
    from tracekit.batch import plan
    from tracekit.batch.running import results as result_rows

    begun = time.monotonic_ns()
    form = _form(results)
    ledger = _prepared(archive, make=not dry_run)
    found = plan(sources, ledger, labels=_labels(labels), neff_cache=neff_cache)
    if dry_run:
        _list(found)
        sys.exit(1 if any(o.status == "failed" for o in found.done) else 0)
    outcomes = list(found.done)
    interrupted = False
    try:
        with _executors(scheduler, jobs, len(found.tasks)) as executors:
            outcomes += _run(found, archive, executors, ledger, retry, fail_fast, limit_bytes)
    except KeyboardInterrupt:
        interrupted = True
    if not interrupted and any(o.profile for o in outcomes):
        _index(archive)
    frame = result_rows(outcomes)
    if results is not None and not interrupted:
        write_rows(frame, form, results)
    _summary(outcomes, found, time.monotonic_ns() - begun, archive)
    if interrupted:
        raise click.Abort
    sys.exit(1 if any(o.status in ("failed", "skipped") for o in outcomes) else 0)


def _labels(pairs: tuple[str, ...]) -> dict[str, str]:
    labels = dict(pair.partition("=")[::2] for pair in pairs)
    for pair in pairs:
        if "=" not in pair or pair.startswith("="):
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="--label")
    return labels


def _form(results: Path | None) -> str:
    ending = results.suffix.removeprefix(".") if results else "json"
    if ending not in ("json", "csv", "parquet"):
        raise click.BadParameter("name a .json, .csv or .parquet file", param_hint="--results")
    return ending


def _prepared(archive: str, *, make: bool) -> Ledger:
    """The archive's ledger; an archive on a file system is made, and cleared of what dead batches left."""
    from tracekit import remote, upkeep
    from tracekit.batch.ledger import open_ledger

    if not remote.is_url(archive):
        root = Path(archive)
        if make:
            try:
                root.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise TracekitError(f"{root}: cannot make an archive here: {error.strerror}") from error
            upkeep.clean(root)
    return open_ledger(archive)


def _index(archive: str) -> None:
    """Index what is new; a profile that is damaged or just being replaced must not fail the batch."""
    from tracekit import durations, measured, remote
    from tracekit.profile import Archive

    if remote.is_url(archive):
        return
    root = Path(archive)
    with suppress(TracekitError, OSError):
        durations.build(root)
    for name in measured.kept(root):
        with suppress(TracekitError, OSError):
            measured.build(root, name, Archive(root).__getitem__)


@contextmanager
def _executors(scheduler: str | None, jobs: int | None, count: int) -> Iterator[Executors]:
    from tracekit.batch import cluster, local_processes

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = max(1, min(jobs or cores, count))
    if scheduler is None:
        yield local_processes(workers)
        return
    with cluster(scheduler, workers) as executors:
        yield executors


def _run(
    found: Plan,
    archive: str,
    executors: Executors,
    ledger: Ledger,
    retry: int,
    fail_fast: bool,
    limit_bytes: int | None,
) -> list[Outcome]:
    from tracekit.batch import run

    limit = limit_bytes or (int(_LOCAL_SHARE * _available_bytes()) if executors.is_local else None)
    with _progress(len(found.tasks), found.size_bytes) as progress:
        return run(
            found.tasks,
            archive,
            executors,
            ledger,
            retry=retry,
            fail_fast=fail_fast,
            limit_bytes=limit,
            progress=progress,
        )


def _available_bytes() -> int:
    """Memory that is free now, or that the container may still take."""
    free = 4 * 10**9
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
        return min(free, int(limit) - int(used)) if limit.isdigit() else free
    except (OSError, ValueError):
        return free


@contextmanager
def _progress(count: int, total: int) -> Iterator[Progress | None]:
    """A bar on standard error: captures done and failed, MB/s, time left; nothing where that is no terminal."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    out = console(stderr=True)
    if not out.is_terminal:
        yield None
        return
    text = TextColumn("{task.fields[done]}/{task.fields[count]} captures, {task.fields[failed]} failed")
    columns = (text, BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Bar(*columns, console=out, transient=True) as bar:
        row = bar.add_task("batch", total=total, done=0, count=count, failed=0)

        def update(outcomes: list[Outcome], done_bytes: int, _total: int) -> None:
            failed = sum(o.status == "failed" for o in outcomes)
            bar.update(row, completed=done_bytes, done=len(outcomes), failed=failed)

        yield update


def _list(found: Plan) -> None:
    out = console()
    for task in sorted(found.tasks, key=lambda t: t.name):
        out.print(f"new     {size(task.size_bytes):>9}  {printable(task.name)}", soft_wrap=True)
    for outcome in sorted(found.done, key=lambda o: o.name):
        more = outcome.profile or outcome.problem or ""
        out.print(f"{outcome.status:7} {'':>9}  {printable(outcome.name)}: {printable(more)}", soft_wrap=True)
    out.print(f"{len(found.tasks):,} to do, {size(found.size_bytes)}; {len(found.done):,} need nothing", style="dim")


def _summary(outcomes: list[Outcome], found: Plan, took_ns: int, archive: str) -> None:
    out = console()
    for outcome in sorted((o for o in outcomes if o.status == "failed"), key=lambda o: o.name)[:30]:
        hint = f" ({printable(outcome.hint)})" if outcome.hint else ""
        out.print(f"failed  {printable(outcome.name)}: {printable(outcome.problem or '')}{hint}", soft_wrap=True)
    warned = sorted((o for o in outcomes if o.status == "stored" and o.warning_count), key=lambda o: o.name)
    for outcome in warned[:_WARNED]:
        more = and_more(outcome.warning_count or 0, "warning")
        text = f"warning {printable(outcome.name)}: {printable(told(outcome.problem or ''))}{more}"
        out.print(text, style="yellow", soft_wrap=True)
    if len(warned) > _WARNED:
        out.print(f"  … and {len(warned) - _WARNED:,} more with warnings: --results FILE has all", style="dim")
    counts = {status: sum(o.status == status for o in outcomes) for status in ("stored", "known", "failed", "skipped")}
    words = ", ".join(f"{n:,} {status}" for status, n in counts.items() if n or status == "stored")
    read = sum(o.read_bytes for o in outcomes)
    events = sum(o.event_count or 0 for o in outcomes if o.status == "stored")
    speed = f", {size(read / (took_ns / 1e9))}/s" if read else ""
    place = printable(archive)
    out.print(
        f"{place}: {words}; {events:,} events from {size(read)} in {duration(took_ns)}{speed}",
        soft_wrap=True,
    )
    if counts["stored"]:
        place = shlex.quote(place)
        next_steps = f"tracekit archive ls {place} · tracekit query {place} --list · tracekit trend {place}"
        out.print(f"next: {next_steps}", style="dim", soft_wrap=True)
