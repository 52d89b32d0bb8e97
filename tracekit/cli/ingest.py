"""``tracekit ingest``: captures → one profile in an archive."""

from __future__ import annotations

from pathlib import Path

import click

from tracekit.cli.given import reading
from tracekit.cli.output import console, printable
from tracekit.cli.units import and_more, duration, size, told

_EPILOG = """\b
Examples:
  tracekit ingest capture/ -o runs/
  tracekit ingest rank0.json.gz rank1.json.gz -o runs/ --label commit=4f2a
  tracekit ingest capture.tar.zst -o runs/ --id nightly
"""


@click.command(epilog=_EPILOG)
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", "archive", required=True, type=click.Path(path_type=Path), help="The archive, a directory."
)
@click.option("--id", "profile_id", help="Name of the profile (default: the input's name and a hash).")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label of your own; repeatable.")
@click.option(
    "--neff-cache", multiple=True, type=click.Path(path_type=Path), help="Look for NEFFs here too; repeatable."
)
@click.option("--force", is_flag=True, help="Read again even if this input is stored already.")
def command(
    sources: tuple[Path, ...],
    archive: Path,
    profile_id: str | None,
    labels: tuple[str, ...],
    neff_cache: tuple[Path, ...],
    force: bool,
) -> None:
    """Store captures as a profile in an archive.

    SOURCES are what belongs to one capture: a directory (with all its processes and ranks), trace files
    (.json, .json.gz), or an archive file (.tar, .tar.gz, .tar.zst, .zip). For many captures at once see
    `tracekit batch`. The same input with the same labels is stored once; running this
    again does nothing (`tracekit archive label` changes labels).
    """
    import time

    from tracekit.ingestion import ingest

    begun = time.monotonic_ns()
    with reading() as progress:
        result = ingest(
            sources,
            archive,
            profile_id=profile_id,
            force=force,
            neff_cache=neff_cache,
            labels=parsed_labels(labels),
            progress=progress,
        )
    out = console()
    if result.warning_count:
        more = and_more(result.warning_count, "warning")
        text = printable(told(result.first_warning or ""))
        console(stderr=True).print(f"warning: {text}{more}", style="yellow", soft_wrap=True)
    if result.was_stored:
        out.print(f"{printable(str(result.path))}: already stored, nothing to do")
        return
    took = duration(time.monotonic_ns() - begun)
    what = f"{result.event_count:,} events from {size(result.read_bytes)} in {took}"
    out.print(f"{printable(str(result.path))}: {what}", soft_wrap=True)


def parsed_labels(pairs: tuple[str, ...]) -> dict[str, str]:
    """``KEY=VALUE`` texts as a mapping."""
    labels = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="--label")
        labels[key] = value
    return labels
