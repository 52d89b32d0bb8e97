from __future__ import annotations

import json

import polars as pl
import pytest

from tracekit.runs import RUNS, label_column, runs
from tracekit.tables import SESSIONS

NOW = 1_764_547_200_123_456_789
"""1 December 2025, with nanoseconds."""


def sessions(*rows: dict[str, object]) -> pl.LazyFrame:
    given = [{"profile": "a", "session": f"s{n}", "root": ".", **row} for n, row in enumerate(rows)]
    schema = {"profile": pl.String(), **{c.name: c.dtype for c in SESSIONS.columns}}
    return pl.DataFrame(given, schema=schema).lazy()


@pytest.mark.parametrize(
    ("first", "day"), [(NOW, "2025-12-01 00:00:00.123456789"), (3_600_000_000_000, None), (0, None), (None, None)]
)
def test_a_clock_without_a_date_gives_no_date(first: int | None, day: str | None) -> None:
    found = runs(sessions({"first_ns": first, "last_ns": first}))
    assert found["first_ns"].to_list() == [first]
    assert found["started_at"].dt.strftime("%Y-%m-%d %H:%M:%S.%f").to_list() == [day]


def test_sessions_of_a_profile_are_one_row() -> None:
    found = runs(
        sessions(
            {"first_ns": NOW + 5, "last_ns": NOW + 9, "rank": 1, "host_name": "b", "labels_json": '{"Batch size": 4}'},
            {"first_ns": NOW, "last_ns": NOW + 7, "rank": 0, "host_name": "a", "versions_json": '{"torch": "2.9"}'},
            {"profile": "b", "rank": None, "labels_json": "[1]", "versions_json": "{"},
        )
    )
    assert found.select(RUNS.names).columns == list(RUNS.names)
    first, second = found.to_dicts()
    assert (first["first_ns"], first["last_ns"]) == (NOW, NOW + 9)
    assert (first["session_count"], first["rank_count"], first["host_count"], first["host_name"]) == (2, 2, 2, "a")
    assert (first[label_column("Batch size")], first["version_torch"]) == ("4", "2.9")
    assert (second["rank_count"], second["host_count"], second["label_batch_size"]) == (0, 0, None)


def test_labels_of_one_column_name_share_the_column() -> None:
    spellings: tuple[dict[str, str], ...] = ({"a-b": "1"}, {"A b": "2"}, {"a_b": "3", "A b": "4"}, {"ü": "5"})
    rows = [{"profile": f"p{n}", "labels_json": json.dumps(labels)} for n, labels in enumerate(spellings)]
    found = runs(sessions(*rows))
    assert found["label_a_b"].to_list() == ["1", "2", "4", None]
    assert found["label_ü"].to_list() == [None, None, None, "5"]
