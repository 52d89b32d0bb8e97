from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from tests.archive_data import run, sample_archive
from tracekit.cli import query as module
from tracekit.errors import QueryError
from tracekit.profile import open_archive


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample_archive(tmp_path_factory.mktemp("archive"))


COUNT = "SELECT COUNT(*) AS event_count FROM events"


def test_formats_hold_the_same_rows(archive: Path, tmp_path: Path) -> None:
    expected = open_archive(archive).events.collect().height
    assert json.loads(run("query", archive, COUNT, "--format", "json").output) == [{"event_count": expected}]
    assert run("query", archive, COUNT, "--format", "csv").output == f"event_count\n{expected}\n"
    assert run("query", archive, COUNT, "-o", tmp_path / "x.parquet").exit_code == 0
    assert pl.read_parquet(tmp_path / "x.parquet")["event_count"].to_list() == [expected]
    assert f"{expected:,}" in run("query", archive, COUNT).output


def test_sql_comes_from_a_file_or_standard_input(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text(COUNT)
    direct = run("query", archive, COUNT).output
    assert run("query", archive, "--file", tmp_path / "q.sql").output == direct
    assert run("query", archive, "--file", "-", input=COUNT).output == direct
    assert run("query", archive, input=COUNT).output == direct


def test_named_queries_are_listed_and_take_parameters(archive: Path) -> None:
    assert "@top-ops" in run("query", archive, "--list").output
    out = run("query", archive, "@op-p95", "--param", "op=aten::mul", "--format", "json").output
    assert json.loads(out)[0]["call_count"] > 0
    assert isinstance(run("query", archive, "@nope").exception, QueryError)
    assert run("query", archive, COUNT, "--param", "op=x").exit_code == 2


def test_queries_of_the_archive_are_found(archive: Path, tmp_path: Path) -> None:
    root = sample_archive(tmp_path / "a")
    (root / "queries").mkdir()
    (root / "queries" / "mine.sql").write_text(
        "-- How many.\n-- :least = 0\nSELECT COUNT(*) AS n FROM runs WHERE 1 > :least"
    )
    assert json.loads(run("query", root, "@mine", "--format", "json").output) == [{"n": 4}]


def converse(archive: Path, text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text(text)
        module._converse(open_archive(archive), [], "csv", 50)


def test_a_conversation_goes_on_after_errors(
    archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = f"SELECT nope FROM runs;\r.tables\r.schema runs\r.nonsense\r.format xml\r{COUNT}\r;\r.quit\r"
    converse(archive, said, monkeypatch, tmp_path)
    shown = capsys.readouterr().out
    assert "no column 'nope'" in shown
    assert "no command .nonsense" in shown
    assert "label_commit" in shown
    assert "event_count\n1234\n" in shown
    history = (tmp_path / "state" / "tracekit" / "query_history").read_text()
    assert COUNT in history


def test_completion_knows_tables_columns_and_labels(archive: Path) -> None:
    words = module.completions(open_archive(archive), [])
    assert {"events", "gaps", "start_ns", "label_commit", "@top-ops", ".schema"} <= set(words)
