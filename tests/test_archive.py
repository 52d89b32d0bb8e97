from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tracekit import archive as store
from tracekit.errors import ArchiveError
from tracekit.tables import EVENTS, NOTES, SCHEMA_VERSION, TABLES


def event_rows(count: int, name: str = "aten::mul") -> pl.DataFrame:
    index = pl.int_range(count, eager=True, dtype=pl.Int64)
    rows = pl.DataFrame({"event_id": index, "start_ns": index * 10, "end_ns": index * 10 + 5})
    constants = {"session": "s", "lane": "dispatch", "kind": "op", "source": "kineto", "name": name}
    return EVENTS.conform(rows.with_columns(is_primary=pl.lit(True), **{k: pl.lit(v) for k, v in constants.items()}))


def store_profile(archive: Path, profile_id: str, rows: pl.DataFrame, **manifest: object) -> Path:
    staging = store.new_staging(archive, profile_id)
    for table in TABLES.values():
        store.write_table(table, rows if table is EVENTS else table.empty(), staging / f"{table.name}.parquet")
    facts = {"schema_version": SCHEMA_VERSION, "profile": profile_id, "tables": {"events": rows.height}}
    store.write_manifest(staging, facts | manifest)
    return store.publish(staging, archive, profile_id)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    rows = event_rows(300_000)
    path = store_profile(tmp_path, "a", rows)
    back = store.scan([path], "events").drop("profile").collect()
    assert back.equals(rows)
    assert pq.ParquetFile(path / "events.parquet").num_row_groups > 1


def test_dictionary_and_plain_rows_are_stored_alike(tmp_path: Path) -> None:
    rows = event_rows(100).to_arrow()
    encoded = rows.set_column(
        rows.schema.get_field_index("name"),
        "name",
        pa.array(["aten::mul"] * 100, pa.large_string()).dictionary_encode(),
    )
    for name, version in (("plain", rows), ("encoded", encoded)):
        writer = store.TableWriter(EVENTS, tmp_path / name)
        writer.write(version)
        writer.close()
    assert (tmp_path / "plain").read_bytes() == (tmp_path / "encoded").read_bytes()


def test_docs_and_units_are_in_the_file(tmp_path: Path) -> None:
    path = store_profile(tmp_path, "a", event_rows(3)) / "events.parquet"
    field = pq.read_schema(path).field("start_ns")
    assert field.metadata[b"unit"] == b"ns"
    assert field.metadata[b"doc"]
    assert pa.types.is_large_string(pq.read_schema(path).field("name").type)


def test_duckdb_reads_the_archive(tmp_path: Path) -> None:
    store_profile(tmp_path, "a", event_rows(3))
    store_profile(tmp_path, "b", event_rows(4, name="aten::add"))
    pattern = f"{tmp_path}/profile=*/events.parquet"
    counted = duckdb.sql(f"select profile, name, count(*) from '{pattern}' group by all order by all").fetchall()
    assert counted == [("a", "aten::mul", 3), ("b", "aten::add", 4)]


def test_publishing_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    store_profile(tmp_path, "a", event_rows(3))
    store_profile(tmp_path, "a", event_rows(5))
    assert [p.name for p in tmp_path.iterdir()] == ["profile=a"]
    assert store.scan([tmp_path / "profile=a"], "events").collect().height == 5


def _publish_often(archive: str, count: int) -> None:
    for _ in range(10):
        store_profile(Path(archive), "same", event_rows(count))


def test_two_processes_may_publish_the_same_profile(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_publish_often, args=(str(tmp_path), n)) for n in (10, 20)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert store.profile_ids(tmp_path) == ["same"]
    assert store.scan([tmp_path / "profile=same"], "events").collect().height in (10, 20)
    assert not list(tmp_path.glob(f"{store.STAGING_PREFIX}*"))


def test_half_written_profile_is_not_seen(tmp_path: Path) -> None:
    staging = store.new_staging(tmp_path, "a")
    store.write_table(NOTES, NOTES.empty(), staging / "notes.parquet")
    assert store.profile_ids(tmp_path) == []
    assert not store.is_archive(tmp_path)


@pytest.mark.parametrize(
    ("manifest", "problem", "hint"),
    [
        pytest.param({"schema_version": SCHEMA_VERSION + 1}, "this tracekit reads schema", "upgrade", id="newer"),
        pytest.param(
            {"schema_version": SCHEMA_VERSION - 1}, "this tracekit reads schema", "ingest the capture again", id="older"
        ),
        pytest.param({"schema_version": None}, "no schema version", "ingest", id="none"),
    ],
)
def test_other_schema_versions_are_explained(tmp_path: Path, manifest, problem: str, hint: str) -> None:
    path = store_profile(tmp_path, "a", event_rows(1), **manifest)
    with pytest.raises(ArchiveError) as caught:
        store.read_manifest(path)
    assert problem in caught.value.problem
    assert hint in caught.value.hint


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00"])
def test_damaged_manifest_is_an_error_of_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / store.MANIFEST).write_text(text)
    with pytest.raises(ArchiveError) as caught:
        store.read_manifest(tmp_path)
    assert "\n" not in str(caught.value)


def test_missing_table_is_explained(tmp_path: Path) -> None:
    path = store_profile(tmp_path, "a", event_rows(1))
    (path / "links.parquet").unlink()
    with pytest.raises(ArchiveError, match=r"links\.parquet: missing"):
        store.scan([path], "links")


def test_read_only_archive_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArchiveError, match="cannot write an archive here"):
        store.new_staging(tmp_path / "file" / "archive", "a")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rms naive", "rms-naive"),
        ("../../etc", "etc"),
        ("a\nb\x1b[31m", "a-b-31m"),
        ("", "profile"),
        ("ü" * 9, "profile"),
    ],
)
def test_slug_is_a_safe_file_name(name: str, expected: str) -> None:
    assert store.slug(name) == expected


def test_manifest_is_readable_and_ordered(tmp_path: Path) -> None:
    store.write_manifest(tmp_path, {"b": 1, "a": "µ"})
    text = (tmp_path / store.MANIFEST).read_text()
    assert list(json.loads(text)) == ["a", "b"]
    assert "µ" in text
