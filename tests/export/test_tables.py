"""CSV, Parquet, SQLite and DuckDB hold every row of every table, exactly."""

from __future__ import annotations

import csv
import dataclasses
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

import tracekit
from tests.shared_data import SAMPLES
from tracekit.export import EXPORTS, Written, export
from tracekit.export.base import MARKER, ExportError
from tracekit.metrics.base import SCOPE, Inputs
from tracekit.tables import EVENTS, TABLES

HUGE = 2**64 - 3
ODD = "a,b\n\"c\" 'd' \x01 名"


def made() -> Inputs:
    """A profile whose values are at the limits of their types, and another table that is empty."""
    row = {"lane": "dispatch", "kind": "op", "source": "kineto", "is_primary": True, "start_ns": 2**62, "end_ns": 2**62}
    frames = {name: table.empty() for name, table in TABLES.items()} | {"scope": SCOPE.empty()}
    frames["events"] = EVENTS.rows(
        [
            row | {"event_id": 0, "session": "s", "name": ODD, "sequence_id": HUGE, "moved_bytes": -(2**63)},
            row | {"event_id": 1, "session": "s", "name": "", "attrs_json": '{"k":"\\u0000"}', "is_primary": False},
            row | {"event_id": 2, "session": "s", "name": "nul \x00 inside"},
        ]
    )
    chain = {"session": "s", "name": "n", "kind": "execution", "device_ns": 1, "complete": True}
    frames["chains"] = TABLES["chains"].rows(
        [chain | {"chain_id": 0, "hardware_ids": [1, 2**62]}, chain | {"chain_id": 1, "hardware_ids": []}]
    )
    frames["sessions"] = TABLES["sessions"].rows([{"session": "s", "path": "s"}])
    return Inputs(**{name: frames[name].lazy() for name in Inputs.names()})


@pytest.fixture(scope="module")
def sample(cache: Path) -> Inputs:
    profile = tracekit.open(SAMPLES / "neuron" / "train_small", cache=cache)
    assert isinstance(profile, tracekit.Profile)
    return profile.inputs("all")


@pytest.fixture(params=["made", "sample"])
def inputs(request: pytest.FixtureRequest, sample: Inputs) -> Inputs:
    return made() if request.param == "made" else sample


def table(inputs: Inputs, name: str) -> pl.DataFrame:
    frame: pl.LazyFrame = getattr(inputs, name)
    return frame.collect()


def test_csv_has_every_cell_as_text(inputs: Inputs, tmp_path: Path) -> None:
    export(inputs, "csv", tmp_path / "out")
    assert {p.name for p in (tmp_path / "out").iterdir()} == {*(f"{n}.csv" for n in TABLES), MARKER}
    for name, spec in TABLES.items():
        with (tmp_path / "out" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            header, *rows = list(csv.reader(file))
        assert header == list(spec.names)
        assert rows == [[as_text(v) for v in row] for row in table(inputs, name).rows()]


def as_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ",".join(map(str, value)) + "]"
    return str(value)


def test_parquet_has_every_row_with_docs_and_units(inputs: Inputs, tmp_path: Path) -> None:
    export(inputs, "parquet", tmp_path / "out")
    for name, spec in TABLES.items():
        assert pl.read_parquet(tmp_path / "out" / f"{name}.parquet").equals(table(inputs, name), null_equal=True)
        schema = pq.read_schema(tmp_path / "out" / f"{name}.parquet")
        assert schema.metadata[b"doc"].decode() == spec.doc
    assert pq.read_schema(tmp_path / "out" / "events.parquet").field("start_ns").metadata[b"unit"] == b"ns"


def test_sqlite_has_every_row(inputs: Inputs, tmp_path: Path) -> None:
    export(inputs, "sqlite", tmp_path / "out.sqlite")
    with closing(sqlite3.connect(tmp_path / "out.sqlite")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        for name, spec in TABLES.items():
            names = ", ".join(spec.names)
            found = database.execute(f"SELECT {names} FROM {name} ORDER BY rowid").fetchall()
            assert found == [tuple(map(held, row)) for row in table(inputs, name).rows()]
        units = database.execute("SELECT unit FROM column_docs WHERE column_name = 'moved_bytes'").fetchall()
        assert units == [("B",)]


def held(value: object) -> object:
    """A value as SQLite holds it: integers that it cannot hold as decimal text."""
    if isinstance(value, list):
        return as_text(value)
    return str(value) if isinstance(value, int) and value >= 2**63 else value


def test_sqlite_compares_sequence_ids_as_numbers(tmp_path: Path) -> None:
    inputs = made()
    numbers = [4, 10, HUGE]
    events = inputs.events.with_columns(sequence_id=pl.Series(numbers, dtype=pl.UInt64))
    export(dataclasses.replace(inputs, events=events), "sqlite", tmp_path / "out.sqlite")
    with closing(sqlite3.connect(tmp_path / "out.sqlite")) as database:
        found = database.execute("SELECT sequence_id FROM events WHERE sequence_id > 5 ORDER BY sequence_id").fetchall()
    assert found == [(10,), (str(HUGE),)]


def test_sqlite_writes_rows_that_are_all_equal(tmp_path: Path) -> None:
    rows = [{"severity": "info", "code": "c", "message": "it's"}] * 3
    frames = {name: spec.empty() for name, spec in TABLES.items()} | {"scope": SCOPE.empty()}
    frames["notes"] = TABLES["notes"].rows(rows)
    export(Inputs(**{n: frames[n].lazy() for n in Inputs.names()}), "sqlite", tmp_path / "out.sqlite")
    with closing(sqlite3.connect(tmp_path / "out.sqlite")) as database:
        assert database.execute("SELECT code, message FROM notes").fetchall() == [("c", "it's")] * 3


def test_duckdb_has_every_row_and_comments(inputs: Inputs, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    export(inputs, "duckdb", tmp_path / "out.duckdb")
    with duckdb.connect(tmp_path / "out.duckdb", read_only=True) as database:
        for name, spec in TABLES.items():
            found = pl.DataFrame(database.sql(f"SELECT * FROM {name}").to_arrow_table(), schema=spec.schema)
            assert found.equals(table(inputs, name), null_equal=True), name
        comment = database.execute(
            "SELECT comment FROM duckdb_columns() WHERE table_name = 'events' AND column_name = 'start_ns'"
        ).fetchone()
        assert comment == ("Start. [ns]",)


def test_duckdb_that_is_not_installed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ExportError, match="needs the package duckdb"):
        export(made(), "duckdb", tmp_path / "out.duckdb")
    assert list(tmp_path.iterdir()) == []


# --- names, and what is in the way


@pytest.mark.parametrize("form", EXPORTS)
def test_a_second_export_replaces_the_first(form: str, tmp_path: Path) -> None:
    first = export(made(), form, tmp_path / "out")
    second = export(made(), form, tmp_path / "out")
    assert isinstance(second, Written)
    assert second.size_bytes > 0
    assert abs(second.size_bytes - first.size_bytes) < 1 + first.size_bytes // 2
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("form", EXPORTS)
def test_a_failed_export_leaves_the_old_one_and_nothing_else(form: str, tmp_path: Path) -> None:
    export(made(), form, tmp_path / "out")
    before = sorted((p.relative_to(tmp_path), p.stat().st_size) for p in tmp_path.rglob("*"))
    broken = made()
    wrong = broken.events.with_columns(start_ns=pl.col("name").cast(pl.Int64))
    inputs = Inputs(**{n: wrong if n == "events" else getattr(broken, n) for n in Inputs.names()})
    with pytest.raises(Exception, match="conversion"):
        export(inputs, form, tmp_path / "out")
    assert sorted((p.relative_to(tmp_path), p.stat().st_size) for p in tmp_path.rglob("*")) == before


def test_other_peoples_files_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "events.csv").write_text("precious")
    with pytest.raises(ExportError, match="holds other files"):
        export(made(), "csv", tmp_path / "mine")
    with pytest.raises(ExportError, match="is a directory"):
        export(made(), "sqlite", tmp_path / "mine")
    (tmp_path / "file").write_text("precious")
    with pytest.raises(ExportError, match="is a file"):
        export(made(), "csv", tmp_path / "file")
    assert (tmp_path / "mine" / "events.csv").read_text() == "precious"
    assert (tmp_path / "file").read_text() == "precious"


def test_an_empty_directory_is_filled(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    export(made(), "csv", tmp_path / "out")
    assert (tmp_path / "out" / "events.csv").is_file()


def test_progress_ends_at_the_total(sample: Inputs, tmp_path: Path) -> None:
    for form in ("perfetto", "chrome", "csv"):
        told: dict[str, tuple[int, int]] = {}
        export(sample, form, tmp_path / form, lambda label, done, total: told.__setitem__(label, (done, total)))  # noqa: B023
        assert told
        assert [label for label, (done, total) in told.items() if done != total] == []


def test_an_unknown_format_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="perfetto, chrome"):
        export(made(), "xml", tmp_path / "out")


def test_a_profile_without_sessions_is_an_empty_trace(tmp_path: Path) -> None:
    inputs = Inputs(**{n: TABLES[n].empty().lazy() if n in TABLES else SCOPE.empty().lazy() for n in Inputs.names()})
    for form in ("chrome", "perfetto"):
        assert export(inputs, form, tmp_path / form).size_bytes < 30
    assert json.loads((tmp_path / "chrome").read_text()) == {"traceEvents": []}
