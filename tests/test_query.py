from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracekit
from tests.archive_data import NEURON, SAMPLE_NAMES, sample_archive
from tracekit.errors import QueryError
from tracekit.metrics import METRICS
from tracekit.query import TABLE_NAMES, check, collect, named_queries, named_query, named_tables
from tracekit.tables import TABLES


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tracekit.Archive:
    opened = tracekit.open(sample_archive(tmp_path_factory.mktemp("archive")))
    assert isinstance(opened, tracekit.Archive)
    return opened


def test_sql_and_polars_agree(archive: tracekit.Archive) -> None:
    by_sql = archive.query("SELECT profile, COUNT(*) AS n FROM events GROUP BY profile").collect().sort("profile")
    by_frame = archive.events.group_by("profile").agg(n=pl.len()).collect().sort("profile")
    assert by_sql.rows() == by_frame.rows()
    assert by_sql.height == len(SAMPLE_NAMES)


def test_labels_are_columns_of_runs(archive: tracekit.Archive) -> None:
    labelled = archive.query("SELECT label_commit FROM runs ORDER BY label_commit").collect()
    assert labelled["label_commit"].to_list() == sorted(SAMPLE_NAMES)
    joined = archive.with_facts(archive.events, "label_commit").select("label_commit").unique().collect()
    assert sorted(joined["label_commit"]) == sorted(SAMPLE_NAMES)


def test_profiles_that_a_condition_leaves_out_are_not_opened(archive: tracekit.Archive) -> None:
    kept = archive.where(pl.col("label_commit") == "rms_naive")
    assert len(kept) == 1
    plan = kept.events.explain()
    assert all(i not in plan for i in archive.ids if i not in kept.ids)


def test_metrics_are_tables(archive: tracekit.Archive) -> None:
    total = archive.query("SELECT SUM(device_ns) AS device_ns FROM work").collect().item()
    assert total == sum(p.metric("work").select(pl.col("device_ns").sum()).collect().item() for p in archive.values())
    assert total > 0


def test_one_profile_answers_as_the_archive_does() -> None:
    profile = tracekit.open(NEURON / "rms_naive" / "capture")
    assert profile.query("SELECT COUNT(*) FROM events").collect().item() == profile.events.collect().height
    assert profile.query("SELECT profile FROM runs").collect().item() == profile.id


def test_tables_are_listed(archive: tracekit.Archive) -> None:
    names = archive.query("show tables;").collect()["name"].to_list()
    assert names == ["runs", "durations", *TABLES, *METRICS]


@pytest.mark.parametrize(
    ("sql", "problem", "hint"),
    [
        pytest.param("SELECT nmae FROM events", "no column 'nmae'", "did you mean name", id="column"),
        pytest.param("SELECT e.nmae FROM events e", "no column 'nmae'", "did you mean name", id="qualified-column"),
        pytest.param("SELECT * FROM event", "no table 'event'", "did you mean events?", id="table"),
        pytest.param("SELECT * FROM zzz", "no table 'zzz'", "tables are runs, durations, events", id="far-table"),
        pytest.param("SELECT nofun(name) FROM events", "unsupported function 'nofun'", "Polars SQL", id="function"),
        pytest.param("SELECT * FROM events; SELECT 1", "one (and only one)", "Polars SQL", id="two"),
        pytest.param("SELECT name FROM events WHERE", "not valid", "Polars SQL", id="syntax"),
        pytest.param("", "empty", "SELECT", id="empty"),
        pytest.param("SELECT CAST(name AS INT) FROM events", "conversion", "", id="data"),
    ],
)
def test_errors_are_one_line_that_helps(archive: tracekit.Archive, sql: str, problem: str, hint: str) -> None:
    with pytest.raises(QueryError) as raised:
        collect(archive.query(sql))
    assert problem in raised.value.problem
    assert hint in raised.value.hint
    assert "\n" not in str(raised.value)


WRITES = [
    "DROP TABLE events", "DELETE FROM events", "TRUNCATE TABLE events", "INSERT INTO events VALUES (1)",
    "UPDATE events SET name = 'x'", "CREATE TABLE t AS SELECT * FROM events", "COPY events TO '{out}'",
    "WITH q AS (SELECT 1) DELETE FROM events", "SELECT * INTO t FROM events", "ATTACH '{out}' AS x",
    "SELECT * FROM events; DROP TABLE events", "EXPLAIN COPY events TO '{out}'", "SET x = 1", "INSTALL httpfs",
    "/* SELECT */ DROP TABLE events", "-- SELECT\nDROP TABLE events", "(DROP TABLE events)",
]  # fmt: skip
READS = [
    "SELECT * FROM read_csv('{path}')", "SELECT * FROM READ_CSV('{path}')", "SELECT * FROM \"read_csv\"('{path}')",
    "SELECT * FROM `read_csv`('{path}')", "SELECT * FROM read_csv /* x */ ('{path}')",
    "SELECT * FROM read_csv--x\n('{path}')", "SELECT * FROM read_parquet('{path}')", "SELECT * FROM read_ipc('{path}')",
    "SELECT * FROM read_json('{path}')", "SELECT * FROM read_ndjson('{path}')", "SELECT * FROM scan_csv('{path}')",
    "SELECT * FROM events JOIN read_csv('{path}') ON TRUE",
    "WITH q AS (SELECT * FROM read_csv('{path}')) SELECT * FROM q",
    "SELECT * FROM runs WHERE profile IN (SELECT x FROM read_csv('{path}'))", "SELECT * FROM '{path}'",
    "SELECT * FROM \"{path}\"", "FROM read_csv('{path}')", "EXPLAIN SELECT * FROM read_csv('{path}')",
    "SELECT '\\' FROM read_csv('{path}') --'", "SELECT /* /* */ x FROM read_csv('{path}') */ 1",
    "SELECT 1 UNION ALL SELECT x FROM read_csv('{path}')", "SELECT * FROM main.read_csv('{path}')",
]  # fmt: skip


@pytest.mark.parametrize("sql", WRITES + READS)
def test_nothing_but_the_archive_is_read_or_written(archive: tracekit.Archive, tmp_path: Path, sql: str) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("x\nconfidential\n")
    before = sorted(p for p in archive.path.rglob("*"))
    with pytest.raises(QueryError) as raised:
        archive.query(sql.format(path=secret, out=tmp_path / "out")).collect()
    assert "confidential" not in str(raised.value)
    assert not (tmp_path / "out").exists()
    assert sorted(p for p in archive.path.rglob("*")) == before


FUNCTIONS = st.sampled_from(["read_csv", "READ_CSV", "Read_Parquet", "read_json", "read_ipc"])
NOISE = st.sampled_from(["", " ", "\n", "/* */", "-- x\n", "\t", "/**/ "])
AROUND = st.sampled_from(["SELECT * FROM {}", "SELECT 1 FROM runs, {}", "WITH a AS (SELECT * FROM {}) SELECT * FROM a"])


@given(FUNCTIONS, NOISE, NOISE, AROUND, st.sampled_from(["", '"', "`"]))
def test_file_functions_never_pass_however_they_are_spelled(
    function: str, before: str, behind: str, around: str, quote: str
) -> None:
    with pytest.raises(QueryError, match="not allowed"):
        check(around.format(f"{before}{quote}{function}{quote}{behind}('/etc/passwd')"))


def test_only_named_tables_are_opened() -> None:
    assert named_tables("SELECT name FROM events e JOIN runs r ON true") == ["runs", "events"]
    assert named_tables("SELECT start_ns AS gaps FROM events") == ["events"]
    assert named_tables('SELECT * FROM "gaps", copies') == ["gaps", "copies"]
    assert set(named_tables("SELECT * FROM " + ", ".join(TABLE_NAMES))) == set(TABLE_NAMES)


@pytest.mark.parametrize("name", sorted(named_queries()))
def test_every_shipped_query_runs(archive: tracekit.Archive, name: str) -> None:
    chosen = named_query(name)
    assert chosen.doc.endswith(".")
    frame = collect(archive.query(chosen.filled({})))
    assert frame.columns


def test_parameters_cannot_leave_their_quotes(archive: tracekit.Archive) -> None:
    evil = "x' OR '1'='1"
    frame = archive.query(named_query("op-p95").filled({"op": evil})).collect()
    assert frame["call_count"].item() == 0
    with pytest.raises(QueryError, match="no parameter nope"):
        named_query("op-p95").filled({"nope": "1"})


def test_own_queries_win(tmp_path: Path) -> None:
    (tmp_path / "top-ops.sql").write_text("-- Mine.\nSELECT 1 AS one\n")
    assert named_query("top-ops", [tmp_path]).sql == "SELECT 1 AS one"
    with pytest.raises(QueryError, match="did you mean top-ops"):
        named_query("top-op")
