"""One row per profile: where, when and with what it was captured, and the user's labels as columns."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import polars as pl

from tracekit.tables import Column, Table
from tracekit.vocabulary import FIRST_DATE_NS

RUNS = Table(
    name="runs",
    doc="One row per profile: its capture's facts. Labels follow as `label_<key>`, versions as `version_<package>`.",
    key=("profile",),
    columns=(
        Column("profile", pl.String(), "Name of the profile in the archive."),
        Column("started_at", pl.Datetime("ns", "UTC"), "First event; null where the clock has no date.", nullable=True),
        Column("first_ns", pl.Int64(), "First start of any event.", nullable=True, unit="ns"),
        Column("last_ns", pl.Int64(), "Last end of any event.", nullable=True, unit="ns"),
        Column("session_count", pl.Int64(), "Captured processes."),
        Column("rank_count", pl.Int64(), "Different ranks among them; 0 if none is known."),
        Column("world_size", pl.Int32(), "Ranks of the job, as the capture says.", nullable=True),
        Column("device", pl.String(), "neuron, cuda, rocm, xpu, mtia or cpu.", nullable=True),
        Column("instance_type", pl.String(), "Machine type; of several, the first by name.", nullable=True),
        Column("instance_id", pl.String(), "Machine; of several, the first by name.", nullable=True),
        Column("host_name", pl.String(), "Host; of several, the first by name.", nullable=True),
        Column("host_count", pl.Int64(), "Different hosts, else machines; 0 if none is known."),
        Column("labels_json", pl.String(), "All labels, as a JSON object of text.", nullable=True),
        Column("versions_json", pl.String(), "All versions, as a JSON object of text.", nullable=True),
    ),
)

_FIRST = ("device", "instance_type", "instance_id", "host_name", "labels_json", "versions_json")


def runs(sessions: pl.LazyFrame) -> pl.DataFrame:
    """Sum up the sessions of each profile.

    Where sessions of a profile differ in a fact, the first in alphabetical order stands.

    Args:
        sessions: ``tables.SESSIONS`` with a ``profile`` column.

    Returns:
        ``RUNS``, then a text column ``label_<key>`` for each label and ``version_<package>`` for each version
        that any profile has (letters, digits and ``_``; keys that fall together share a column), by profile.
    """
    host = pl.coalesce("host_name", "instance_id")
    moment = pl.from_epoch("first_ns", time_unit="ns").dt.replace_time_zone("UTC")
    summed = (
        sessions.group_by("profile")
        .agg(
            pl.col("first_ns").min(),
            pl.col("last_ns").max(),
            pl.col("world_size").max(),
            pl.col(_FIRST).min(),
            session_count=pl.len().cast(pl.Int64),
            rank_count=pl.col("rank").drop_nulls().n_unique().cast(pl.Int64),
            host_count=host.drop_nulls().n_unique().cast(pl.Int64),
        )
        .with_columns(started_at=pl.when(pl.col("first_ns") >= FIRST_DATE_NS).then(moment))
        .collect()
    )
    known = RUNS.conform(summed).sort("profile")
    return known.with_columns(
        **_columns(known["labels_json"], "label_"), **_columns(known["versions_json"], "version_")
    )


def _columns(texts: pl.Series, prefix: str) -> Mapping[str, pl.Series]:
    """JSON objects as one text column per key; of keys with one column name, each row has the first that it has."""
    parsed = {text: facts_of(text) for text in texts.drop_nulls().unique().to_list()}
    keys = sorted({key for facts in parsed.values() for key in facts})
    columns: dict[str, pl.Series] = {}
    for key in keys:
        name = prefix + _column_name(key)
        values = {text: facts.get(key) for text, facts in parsed.items()}
        column = texts.replace_strict(values, default=None, return_dtype=pl.String).alias(name)
        known = columns.get(name)
        columns[name] = column if known is None else known.zip_with(known.is_not_null(), column)
    return columns


def label_text(labels: Mapping[str, str]) -> str:
    """Labels as ``labels_json`` holds them: one JSON object with its keys in order, readable in any script."""
    text = json.dumps(dict(labels), sort_keys=True, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()


def label_column(key: str) -> str:
    """The column of ``runs`` that holds a label."""
    return f"label_{_column_name(key)}"


def _column_name(key: str) -> str:
    return re.sub(r"\W+", "_", key).strip("_").lower() or "_"


def facts_of(text: str) -> dict[str, str]:
    """The entries of a JSON object, as text; of anything else, none."""
    try:
        facts = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(facts, dict):
        return {}
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in facts.items() if v is not None}
