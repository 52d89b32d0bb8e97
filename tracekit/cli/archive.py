"""``tracekit archive``: list, check, clean, remove, rename, relabel, compact and migrate stored profiles."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from tracekit.cli.output import console, emit, format_option, printable
from tracekit.cli.units import plural, size
from tracekit.errors import ArchiveError, TracekitError

if TYPE_CHECKING:
    from tracekit.profile import Archive

_Command = TypeVar("_Command", bound=Callable[..., object])

_EPILOG = """\b
Examples:
  tracekit archive ls runs/ --where "label_commit = '4f2a'"
  tracekit archive label runs/ nightly-0f3a build=1207
  tracekit archive rm runs/ nightly-0f3a
  tracekit archive verify runs/
"""


@click.group(epilog=_EPILOG)
def command() -> None:
    """List, check, label and remove the profiles of an archive.

    Profiles are named by id, or chosen with --where: an SQL condition over the table runs (its columns:
    tracekit query ARCHIVE "SELECT * FROM runs").
    """


def _archive_argument(command: _Command) -> _Command:
    return click.argument("archive")(command)


def _chosen(command: _Command) -> _Command:
    """Add PROFILE... and ``--where``."""
    where = click.option("--where", metavar="CONDITION", help="Those whose row of runs fulfils an SQL condition.")
    return click.argument("profiles", nargs=-1, metavar="[PROFILE]...")(where(command))


@command.command("ls", epilog="\b\nExamples:\n  tracekit archive ls runs/\n  tracekit archive ls runs/ --format csv\n")
@_archive_argument
@click.option("--where", metavar="CONDITION", help="Only those whose row of runs fulfils an SQL condition.")
@format_option
def ls(archive: str, where: str | None, form: str | None, output: Path | None) -> None:
    """List the profiles of ARCHIVE with size, machine, ranks and labels."""
    from tracekit.listing import LISTING, listing

    found = _open(archive)
    frame = listing(found, _ids(found, (), where))
    emit(frame, LISTING, form, output)
    if form in (None, "table") and output is None:
        total = [plural(frame.height, "profile"), size(int(frame["size_bytes"].sum()))]
        console().print(", ".join([*total, plural(int(frame["event_count"].sum()), "event")]), style="dim")


@command.command("verify")
@_archive_argument
@_chosen
@click.option("--quick", is_flag=True, help="Sizes, layout and row counts only; do not read everything.")
@format_option
def verify(
    archive: str,
    profiles: tuple[str, ...],
    where: str | None,
    quick: bool,
    form: str | None,
    output: Path | None,
) -> None:
    """Check that profiles are what was written; clean up what dead processes left.

    Exits 1 if a profile is damaged.
    """
    from tracekit import remote_upkeep, upkeep

    if is_url(archive):
        removed = remote_upkeep.recover(archive)
        check = partial(remote_upkeep.verify, archive)
    else:
        removed = upkeep.clean(_local(archive))
        check = partial(upkeep.verify, Path(archive))
    ids = _ids(_open(archive), profiles, where)
    rows = [problem for i in ids for problem in check(i, contents=not quick)]
    rows += [] if is_url(archive) or profiles or where else upkeep.headless(Path(archive))
    if rows or form not in (None, "table") or output is not None:
        emit(upkeep.PROBLEMS.rows(rows), upkeep.PROBLEMS, form, output)
    bad = {row["profile"] for row in rows}
    sound = sum(profile_id not in bad for profile_id in ids)
    swept = f"; removed {len(removed)} unfinished" if removed else ""
    console(stderr=bool(rows)).print(f"{plural(sound, 'profile')} sound, {len(bad):,} damaged{swept}")
    sys.exit(1 if bad else 0)


@command.command("rm")
@_archive_argument
@_chosen
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
def rm(archive: str, profiles: tuple[str, ...], where: str | None, yes: bool, dry_run: bool) -> None:
    """Remove profiles. There is no way back."""
    from tracekit import remote_upkeep, upkeep

    discard = partial(remote_upkeep.remove, archive) if is_url(archive) else partial(upkeep.remove, _local(archive))
    ids = _named(archive, profiles, where)
    if not dry_run and not yes and ids:
        click.confirm(f"Remove {plural(len(ids), 'profile')}: {_some(ids)}?", abort=True, err=True)
    for profile_id in () if dry_run else ids:
        discard(profile_id)
    console().print(f"{'would remove' if dry_run else 'removed'} {len(ids)}: {_some(ids)}", soft_wrap=True)


@command.command("rename")
@_archive_argument
@click.argument("profile")
@click.argument("new_name")
def rename(archive: str, profile: str, new_name: str) -> None:
    """Give a profile another name."""
    from tracekit import remote_upkeep, upkeep

    if is_url(archive):
        remote_upkeep.rename(archive, profile, new_name)
    else:
        upkeep.rename(_local(archive), profile, new_name)
    console().print(f"{printable(profile)} is now {new_name}", soft_wrap=True)


@command.command("label")
@_archive_argument
@click.argument("words", nargs=-1, required=True, metavar="[PROFILE]... KEY=VALUE...")
@click.option("--where", metavar="CONDITION", help="Those whose row of runs fulfils an SQL condition.")
def label(archive: str, words: tuple[str, ...], where: str | None) -> None:
    """Set labels of profiles; KEY= without a value removes one."""
    from tracekit import remote_upkeep, upkeep

    pairs = [word.partition("=") for word in words if "=" in word]
    profiles = tuple(word for word in words if "=" not in word)
    if not pairs or any(not key for key, _, _ in pairs):
        raise click.UsageError("name at least one KEY=VALUE")
    change = partial(remote_upkeep.relabel, archive) if is_url(archive) else partial(upkeep.relabel, _local(archive))
    ids = _named(archive, profiles, where)
    for profile_id in ids:
        change(profile_id, {key: value or None for key, _, value in pairs})
    console().print(f"labelled {len(ids)}: {_some(ids)}", soft_wrap=True)


@command.command("compact")
@_archive_argument
@_chosen
def compact(archive: str, profiles: tuple[str, ...], where: str | None) -> None:
    """Compress profiles harder: smaller files, the same rows. Takes all profiles if none are named."""
    from tracekit import remote_upkeep, upkeep

    if is_url(archive):
        shrink = partial(remote_upkeep.compact, archive)
    else:
        upkeep.clean(_local(archive))
        shrink = partial(upkeep.compact, Path(archive))
    ids = _ids(_open(archive), profiles, where)
    sizes, failed = [], False
    for profile_id in ids:
        try:
            sizes.append(shrink(profile_id))
        except ArchiveError as error:
            failed = True
            console(stderr=True).print(printable(str(error)), soft_wrap=True)
    before, after = (sum(s[i] for s in sizes) for i in (0, 1))
    console().print(f"{plural(len(sizes), 'profile')}: {size(before)} → {size(after)}")
    sys.exit(1 if failed else 0)


@command.command(
    "index", epilog="\b\nExamples:\n  tracekit archive index runs/\n  tracekit archive index runs/ --metric gaps\n"
)
@_archive_argument
@click.option(
    "--metric", "names", multiple=True, metavar="NAME", help="Keep this metric of every profile, too; repeatable."
)
def index(archive: str, names: tuple[str, ...]) -> None:
    """Keep durations by name, and metrics, beside the profiles, so that questions about many are answered quickly.

    A batch keeps durations, and those metrics that were named here once. The index may be deleted at any time.
    """
    from tracekit import durations, measured
    from tracekit.metrics import metric

    root, found = _local(archive), _open(archive)
    for name in names:
        metric(name)
    builds = {"durations": partial(durations.build, root)}
    for name in dict.fromkeys((*measured.kept(root), *names)):
        builds[name] = partial(measured.build, root, name, found.__getitem__)
    failed = False
    for name, build in builds.items():
        try:
            console().print(f"{name}: {plural(build(), 'profile')} added")
        except ArchiveError as error:
            failed = True
            console(stderr=True).print(printable(f"{name}: {error}"), soft_wrap=True)
    sys.exit(1 if failed else 0)


@command.command("migrate")
@_archive_argument
def migrate(archive: str) -> None:
    """Bring profiles of an older version to this one's layout."""
    from tracekit import remote_upkeep, upkeep
    from tracekit.tables import SCHEMA_VERSION

    bring = partial(remote_upkeep.migrate, archive) if is_url(archive) else partial(upkeep.migrate, _local(archive))
    failed = 0
    ids = _open(archive).ids
    for profile_id in ids:
        try:
            bring(profile_id)
        except ArchiveError as error:
            failed += 1
            console(stderr=True).print(printable(str(error)), soft_wrap=True)
    done = plural(len(ids) - failed, "profile")
    console().print(f"{done} with schema {SCHEMA_VERSION}, {failed:,} that cannot be brought there")
    sys.exit(1 if failed else 0)


def _open(archive: str) -> Archive:
    from tracekit.profile import Archive, open_archive

    found = open_archive(archive)
    assert isinstance(found, Archive)
    return found


def is_url(archive: str) -> bool:
    """Whether an archive lies in object storage."""
    return archive.startswith("s3://")


def _local(archive: str) -> Path:
    if is_url(archive):
        raise TracekitError(f"{printable(archive)}: only for archives on a file system", hint="copy it first")
    path = Path(archive)
    if not path.is_dir():
        raise ArchiveError(f"{path}: no such archive", hint="make one with `tracekit ingest` or `tracekit batch`")
    return path


def _named(archive: str, profiles: tuple[str, ...], where: str | None) -> list[str]:
    if not profiles and where is None:
        raise click.UsageError("name profiles, or choose them with --where CONDITION")
    return _ids(_open(archive), profiles, where)


def _ids(found: Archive, profiles: tuple[str, ...], where: str | None) -> list[str]:
    """Profiles that are named and fulfil the condition; all without either.

    Raises:
        ArchiveError: if a named one does not exist.
    """
    known = found.ids
    missing = [p for p in profiles if p not in known]
    if missing:
        raise ArchiveError(f"no profile {missing[0]!r} in this archive", hint="`tracekit archive ls` lists them")
    ids = list(dict.fromkeys(profiles)) or known
    if where is not None:
        kept = found.query(f"SELECT profile FROM runs WHERE ({where})").collect()["profile"].to_list()
        ids = [i for i in ids if i in set(kept)]
    return ids


def _some(ids: list[str]) -> str:
    shown = ", ".join(printable(i) for i in ids[:5]) or "none"
    return f"{shown}, … ({len(ids)} in all)" if len(ids) > 5 else shown
