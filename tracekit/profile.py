"""What a user holds: one profile, or an archive of many, as lazy tables and metrics."""

from __future__ import annotations

import difflib
import html
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import platformdirs
import polars as pl

from tracekit import archive as store
from tracekit import durations, measured, tables
from tracekit.errors import (
    ArchiveError,
    NoPathError,
    NoSuchProfileError,
    TracekitError,
)
from tracekit.ingestion import Progress, ingest
from tracekit.lazy_tables import LazyTables, Scope
from tracekit.metrics import METRICS, metric
from tracekit.metrics.base import Inputs, OptionValue
from tracekit.metrics.steps import scope as scope_of
from tracekit.runs import runs

if TYPE_CHECKING:
    from tracekit.report.notebook import Plots, View

_PATH_HINT = "name a capture, a trace, a stored profile, an archive, or s3://bucket/prefix"


class Profile(LazyTables):
    """One stored profile.

    Tables are attributes (``profile.events``), metrics are methods (``profile.gaps()``); both give
    LazyFrames. A metric takes its own options and ``scope``: ``"steps"`` (default: the steps after
    warm-up, or everything if there are none), ``"all"``, or the number of one step.
    """

    CALLED = "a profile"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.manifest = store.read_manifest(self.path)

    @property
    def id(self) -> str:
        """Name in the archive."""
        return str(self.manifest["profile"])

    def table(self, name: str) -> pl.LazyFrame:
        """One stored table by name.

        Raises:
            ArchiveError: if there is no such table.
        """
        if name not in tables.TABLES:
            raise ArchiveError(f"no table {name!r}", hint=f"tables are {', '.join(tables.TABLES)}")
        return store.scan([self.path], name).drop("profile")

    @property
    def runs(self) -> pl.LazyFrame:
        """One row: capture facts, labels and versions as columns (``runs.RUNS``)."""
        return runs(self._named(self.sessions)).lazy()

    def sql_table(self, name: str) -> pl.LazyFrame:
        """See ``query.Queryable``."""
        if name == "runs":
            return self.runs
        if name == "durations":
            return durations.durations(self._named(self.events))
        return self._named(self.metric(name) if name in METRICS else self.table(name))

    def _named(self, frame: pl.LazyFrame) -> pl.LazyFrame:
        return frame.select(pl.lit(self.id).alias("profile"), pl.all())

    @property
    def device_tables(self) -> Sequence[str]:
        """Names of Neuron Explorer's device tables that the capture holds."""
        return sorted(cast(Mapping[str, object], self.manifest.get("device_tables", {})))

    def device_table(self, name: str, *, root: str | os.PathLike[str] | None = None) -> pl.LazyFrame:
        """A device table of Neuron Explorer (``Instruction``, ``OpcodeSummary``, …), read where it lies.

        Args:
            name: one of ``device_tables``.
            root: the capture's directory; by default where it lay when it was ingested on this machine.

        Raises:
            ArchiveError: if the capture has no such table, or its files were moved since.
        """
        known = cast(Mapping[str, Sequence[str]], self.manifest.get("device_tables", {}))
        if name not in known:
            have = ", ".join(sorted(known)) or "none"
            raise ArchiveError(f"{self.id}: no device table {name!r}", hint=f"this profile has {have}")
        place = Path(root) if root is not None else store.origin(self.path, self.id)
        if place is None:
            raise ArchiveError(f"{self.id}: it is not known where its capture lies", hint="give its directory as root")
        paths = [place / label for label in known[name]]
        for path in paths:
            if not path.is_file():
                raise ArchiveError(f"{path}: device table was moved or deleted", hint="ingest the capture again")
        return pl.scan_parquet(paths, glob=False, missing_columns="insert", extra_columns="ignore")

    def inputs(self, scope: Scope = "steps") -> Inputs:
        """The tables and the measured windows that metrics take.

        Raises:
            TracekitError: if ``scope`` names a step that the profile does not have.
        """
        frames = {name: self.table(name) for name in tables.TABLES}
        return Inputs(scope=scope_of(frames["events"], frames["sessions"], scope), **frames)

    def metric(self, name: str, *, scope: Scope = "steps", **options: OptionValue) -> pl.LazyFrame:
        """Compute a metric by name.

        Raises:
            TracekitError: if there is no such metric or option, or the option has no such value.
        """
        chosen = metric(name)
        known = {option.name: option.default for option in chosen.options}
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise TracekitError(
                f"metric {name} has no option {', '.join(unknown)}", hint=f"it has {', '.join(known) or 'none'}"
            )
        for option in chosen.options:
            value = options.get(option.name)
            if option.choices and value is not None and value not in option.choices:
                raise TracekitError(
                    f"metric {name}: {option.name} is never {value!r}", hint=f"it is one of {', '.join(option.choices)}"
                )
        return chosen.compute(self.inputs(scope), {**known, **options})

    def timeline(self, step: int | None = None, *, scope: Scope = "steps") -> View:
        """The four lanes, to pan and zoom in a notebook; with ``step`` only that step, every event of it.

        Raises:
            TracekitError: if the profile has no such step, or no events.
        """
        from tracekit.report import notebook

        return notebook.timeline(self.inputs(scope if step is None else step), name=self.id, clip=step is not None)

    @property
    def plot(self) -> Plots:
        """Charts for a notebook: ``plot.gaps()``, ``plot.split()``, ``plot.steps()``, ``plot.queue()``."""
        from tracekit.report.notebook import Plots

        return Plots(self.inputs(), self.id)

    def _summary(self) -> dict[str, str]:
        """Facts for the repr, from the manifest alone."""
        counts = cast(Mapping[str, int], self.manifest["tables"])
        return {
            "sessions": str(counts["sessions"]),
            "events": f"{counts['events']:,}",
            "chains": f"{counts['chains']:,}",
            "notes": str(counts["notes"]),
            "path": str(self.path),
        }

    def __repr__(self) -> str:
        facts = self._summary()
        path = facts.pop("path")
        counts = ", ".join(f"{v} {k.removesuffix('s') if v == '1' else k}" for k, v in facts.items())
        return f"<Profile {self.id}: {counts}, at {path}>"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{k}</th><td>{html.escape(v)}</td></tr>" for k, v in self._summary().items())
        return f"<table><caption>Profile {html.escape(self.id)}</caption>{rows}</table>"


class Archive(LazyTables, Mapping[str, Profile]):
    """Many profiles: a mapping from id to profile, and tables that span them all.

    Spanning tables have a ``profile`` column; filters and column choices reach the Parquet files.
    """

    CALLED = "an archive"

    def __init__(self, path: str | os.PathLike[str], ids: Sequence[str] | None = None) -> None:
        self.path = Path(path)
        self._ids = ids

    @property
    def ids(self) -> list[str]:
        """Ids of the whole profiles, sorted."""
        return store.profile_ids(self.path) if self._ids is None else list(self._ids)

    def table(self, name: str) -> pl.LazyFrame:
        """One stored table over all profiles, with ``profile`` first.

        Raises:
            ArchiveError: if there is no such table.
        """
        if name not in tables.TABLES:
            raise ArchiveError(f"no table {name!r}", hint=f"tables are {', '.join(tables.TABLES)}")
        return store.scan([store.profile_path(self.path, i) for i in self.ids], name)

    @property
    def runs(self) -> pl.LazyFrame:
        """One row per profile: capture facts, labels and versions as columns (``runs.RUNS``)."""
        return runs(self.sessions).lazy()

    @property
    def durations(self) -> pl.LazyFrame:
        """How long every event took, by name: quick to filter by one name (``durations.DURATIONS``)."""
        return durations.table(self.path, self.ids)

    def with_facts(self, frame: pl.LazyFrame, *columns: str) -> pl.LazyFrame:
        """``frame``, which has a ``profile`` column, with columns of ``runs`` joined (default: all of them)."""
        facts = self.runs
        return frame.join(facts.select("profile", *columns) if columns else facts, on="profile", how="left")

    def where(self, condition: pl.Expr) -> Archive:
        """The archive cut down to the profiles whose row of ``runs`` fulfils a condition; others are not opened."""
        return self.only(self.runs.filter(condition).select("profile").collect()["profile"].to_list())

    def only(self, ids: Sequence[str]) -> Archive:
        """The archive cut down to some of its profiles."""
        return type(self)(self.path, ids)

    def sql_table(self, name: str) -> pl.LazyFrame:
        """See ``query.Queryable``."""
        if name == "runs":
            return self.runs
        if name == "durations":
            return self.durations
        if name not in METRICS:
            return self.table(name)
        if not self.ids:
            spec = metric(name).table
            return spec.empty().lazy().select(pl.lit(None, pl.String).alias("profile"), pl.all())
        return self.metric(name)

    def metric(self, name: str, *, scope: Scope = "steps", **options: OptionValue) -> pl.LazyFrame:
        """A metric of every profile, with ``profile`` first: computed now, one profile after another.

        What the archive's index holds of it (``tracekit archive index --metric``) is read from there.

        Raises:
            TracekitError: as of ``Profile.metric``; or if the archive is empty.
        """
        chosen = metric(name)
        ids = self.ids
        if not ids:
            raise ArchiveError(f"{self._place}: no profiles", hint="run `tracekit ingest` first")
        given = {o.name: options.get(o.name, o.default) for o in chosen.options}
        is_plain = (
            scope == "steps"
            and not set(options) - set(given)
            and all(given[o.name] == o.default for o in chosen.options)
        )
        frames, rest = self._indexed(name, ids) if is_plain else ([], ids)
        if rest:
            frames.append(measured.spool(name, map(self.__getitem__, rest), scope=scope, options=options))
        return pl.concat(frames)

    def _indexed(self, name: str, ids: Sequence[str]) -> tuple[list[pl.LazyFrame], list[str]]:
        return measured.covered(self.path, name, ids)

    def unindexed(self, name: str) -> int:
        """Of how many profiles ``metric`` has to compute a metric, because the index does not hold it."""
        return len(self._indexed(name, self.ids)[1])

    @property
    def _place(self) -> str:
        return str(self.path)

    def _open(self, profile_id: str) -> Profile | None:
        """A profile, None if the archive has none of that name."""
        path = store.profile_path(self.path, profile_id)
        return Profile(path) if (path / store.MANIFEST).is_file() else None

    def __getitem__(self, profile_id: str) -> Profile:
        found = self._open(profile_id)
        if found is None:
            ids = self.ids
            near = difflib.get_close_matches(str(profile_id), ids, 3, 0.5) or ids[:3]
            hint = f"archive.ids lists them: {', '.join(near)}{', …' if len(ids) > len(near) else ''}"
            raise NoSuchProfileError(f"{self._place}: no profile {profile_id!r}", hint=hint if ids else "it is empty")
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"<Archive {self.path}: {len(self)} profile{'' if len(self) == 1 else 's'}>"

    def _repr_html_(self) -> str:
        ids = list(self)
        rows = "".join(f"<tr><td>{html.escape(name)}</td></tr>" for name in ids[:20])
        more = f"<tr><td>… {len(ids) - 20} more</td></tr>" if len(ids) > 20 else ""
        return (
            f"<table><caption>Archive {html.escape(str(self.path))}: {len(ids)} profiles</caption>{rows}{more}</table>"
        )


def default_cache() -> Path:
    """Archive in the user's cache directory that raw input is ingested into."""
    return platformdirs.user_cache_path("tracekit") / "profiles"


def open_any(
    path: str | os.PathLike[str],
    *,
    cache: str | os.PathLike[str] | None = None,
    neff_cache: Sequence[str | os.PathLike[str]] = (),
    progress: Progress | None = None,
) -> Profile | Archive:
    """Open an archive, one stored profile, or raw input (a capture directory, a trace, a tarball).

    Raw input is ingested once into ``cache`` (default: ``default_cache()``) and opened from there; input
    whose content is there already is not read again.

    Returns:
        An ``Archive`` for an archive, else a ``Profile``.

    Raises:
        TracekitError: if the path holds nothing that can be read.
    """
    if not isinstance(path, str | os.PathLike):
        raise NoPathError(f"{path!r} is no path but {type(path).__name__}", hint=_PATH_HINT)
    if str(path).startswith("s3:/"):
        return _remote(path)
    place = Path(path)
    if store.is_profile(place):
        return Profile(place)
    if store.is_archive(place):
        return Archive(place)
    result = ingest([place], cache or default_cache(), neff_cache=neff_cache, progress=progress)
    return Profile(result.path)


def _remote(path: str | os.PathLike[str]) -> Profile | Archive:
    """Open in object storage; ``Path("s3://b/p")`` has lost a slash."""
    from tracekit.remote_archive import open_url

    return open_url("s3://" + str(path).removeprefix("s3:").lstrip("/"))


def open_archive(path: str | os.PathLike[str]) -> Archive:
    """Open an archive, one without profiles included.

    Raises:
        ArchiveError: if there is no directory of that name, or it is a profile.
    """
    if str(path).startswith("s3:/"):
        found = _remote(path)
        if isinstance(found, Archive):
            return found
        raise ArchiveError(f"{path}: one profile, not an archive")
    place = Path(path)
    if not place.is_dir():
        raise ArchiveError(f"{place}: no such archive", hint="make one with `tracekit ingest` or `tracekit batch`")
    if store.is_profile(place):
        raise ArchiveError(f"{place}: one profile, not an archive", hint=f"name {place.parent}")
    return Archive(place)


def open_profile(
    path: str | os.PathLike[str],
    profile_id: str | None = None,
    *,
    cache: str | os.PathLike[str] | None = None,
    neff_cache: Sequence[str | os.PathLike[str]] = (),
    progress: Progress | None = None,
) -> Profile:
    """Open exactly one profile; of an archive the one named, or its only one.

    Raises:
        ArchiveError: if an archive holds several and none was named, or the named one is not there.
    """
    found = open_any(path, cache=cache, neff_cache=neff_cache, progress=progress)
    if isinstance(found, Profile):
        if profile_id not in (None, found.id):
            raise ArchiveError(f"{path}: this is no archive, it holds one profile", hint="leave out --profile")
        return found
    ids = found.ids
    if profile_id is None and len(ids) == 1:
        return found[ids[0]]
    if profile_id in ids:
        return found[profile_id]
    listed = ", ".join(ids[:5]) + (f", … ({len(ids)} in all)" if len(ids) > 5 else "")
    problem = f"no profile {profile_id!r}" if profile_id else "several profiles"
    raise ArchiveError(f"{path}: {problem} in this archive", hint=f"name one with --profile: {listed}")
