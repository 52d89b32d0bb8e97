"""What an archive holds, one row per profile, damaged ones included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import polars as pl

from tracekit.errors import ArchiveError
from tracekit.profile import Archive
from tracekit.runs import RUNS, facts_of, runs
from tracekit.tables import Column, Table

LISTING = Table(
    name="listing",
    doc="One row per profile.",
    key=("profile",),
    columns=(
        RUNS["profile"],
        Column("started", pl.String(), "First event, UTC; null where a trace's clock counts from elsewhere.", True),
        Column("labels", pl.String(), "Labels, as key=value.", nullable=True),
        Column("problem", pl.String(), "Why it cannot be read.", nullable=True),
        Column("event_count", pl.Int64(), "Events.", nullable=True),
        Column("size_bytes", pl.Int64(), "Size of its tables.", nullable=True, unit="B"),
        RUNS["session_count"],
        RUNS["device"],
        RUNS["instance_type"],
    ),
)


def listing(found: Archive, ids: Sequence[str]) -> pl.DataFrame:
    """List profiles of an archive by name.

    Returns:
        ``LISTING``; of a profile that cannot be read, the name and the problem.
    """
    rows = [_facts(found, profile_id) for profile_id in ids]
    known = [str(row["profile"]) for row in rows if row["problem"] is None]
    facts = _runs(found, known, rows)
    schema = {"profile": pl.String(), "event_count": pl.Int64(), "size_bytes": pl.Int64(), "problem": pl.String()}
    listed = pl.DataFrame(rows, schema=schema).join(facts, on="profile", how="left")
    started = pl.col("started_at").dt.strftime("%Y-%m-%d %H:%M")
    labels = pl.Series([_spelled(text) for text in listed["labels_json"].to_list()], dtype=pl.String)
    filled = listed.with_columns(started=started, labels=labels, session_count=pl.col("session_count").fill_null(0))
    return LISTING.conform(filled)


def _spelled(labels_json: str | None) -> str | None:
    """Labels as they are given on the command line."""
    return None if labels_json is None else ", ".join(f"{k}={v}" for k, v in facts_of(labels_json).items())


def _facts(found: Archive, profile_id: str) -> dict[str, object]:
    row: dict[str, object] = {"profile": profile_id, "event_count": None, "size_bytes": None, "problem": None}
    try:
        manifest = found[profile_id].manifest
        counts = cast(Mapping[str, int], manifest["tables"])
        files = cast(Mapping[str, Mapping[str, int]], manifest.get("files", {}))
        return row | {"event_count": int(counts["events"]), "size_bytes": sum(f["size_bytes"] for f in files.values())}
    except ArchiveError as error:
        return row | {"problem": error.problem}
    except (KeyError, TypeError, ValueError, AttributeError):
        return row | {"problem": "its manifest is damaged"}


def _runs(found: Archive, ids: Sequence[str], rows: list[dict[str, object]]) -> pl.DataFrame:
    """``RUNS`` of what can be read; one by one only if something cannot."""
    try:
        return runs(found.only(ids).sessions)
    except (ArchiveError, pl.exceptions.PolarsError, OSError):
        if len(ids) == 1:
            next(row for row in rows if row["profile"] == ids[0])["problem"] = "its sessions cannot be read"
            return RUNS.empty()
    return pl.concat([_runs(found, [i], rows) for i in ids], how="diagonal_relaxed")
