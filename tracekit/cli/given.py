"""What commands are given: PATH, the options to choose in it, and a progress bar while it is read."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli.output import console

if TYPE_CHECKING:
    from tracekit.ingestion import Progress
    from tracekit.profile import Profile


@dataclass(frozen=True)
class Given:
    """What the user named as PATH, and how to choose in it; ``path_argument`` makes it."""

    path: Path
    profile_id: str | None = None
    cache: Path | None = None
    neff_cache: Sequence[Path] = ()

    def open(self) -> Profile:
        """The one profile that is meant, with a progress bar when raw input is read, and a word when it is kept."""
        from tracekit.profile import default_cache, open_profile

        place = default_cache()
        known = set(place.iterdir()) if self.cache is None and place.is_dir() else set()
        with reading() as progress:
            profile = open_profile(
                self.path, self.profile_id, cache=self.cache, neff_cache=self.neff_cache, progress=progress
            )
        if self.cache is None and profile.path.parent == place and profile.path not in known:
            console(stderr=True).print(
                f"tables are kept in {place} (safe to delete; --cache DIR puts them elsewhere)", style="dim"
            )
        return profile


def path_argument(command: Callable[..., object]) -> Callable[..., object]:
    """Add PATH (an archive, a stored profile, or raw input) and the options to choose in it, as ``given``."""

    @functools.wraps(command)
    def filled(
        *, path: Path, profile_id: str | None, cache: Path | None, neff_cache: tuple[Path, ...], **rest: object
    ) -> object:
        return command(given=Given(path, profile_id, cache, neff_cache), **rest)

    for option in (
        click.option("--neff-cache", multiple=True, type=click.Path(path_type=Path), help="Look for NEFFs here too."),
        click.option("--cache", type=click.Path(path_type=Path), help="Archive for raw input (default: user's cache)."),
        click.option("--profile", "profile_id", help="Which profile of an archive."),
    ):
        filled = option(filled)
    return click.argument("path", type=click.Path(path_type=Path))(filled)


@contextmanager
def reading() -> Iterator[Progress | None]:
    """A progress bar for an ingest on standard error; nothing when that is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        tasks: dict[str, object] = {}

        def update(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)  # type: ignore[arg-type]

        yield update
