"""The cookbook's snippets run, in its order, on an archive made of the samples."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.archive_data import NEURON, run, sample_archive
from tracekit.profile import open_archive
from tracekit.query import collect, named_queries

PAGE = (Path(__file__).parents[2] / "docs" / "queries.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cookbook")
    sample_archive(root / "runs")
    return root


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCKS if kind == language]


@pytest.mark.parametrize("sql", blocks("sql"))
def test_sql_runs(place: Path, sql: str) -> None:
    assert collect(open_archive(place / "runs").query(sql)).width > 1


def test_python_runs_from_top_to_bottom(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    names: dict[str, object] = {}
    for text in blocks("python"):
        exec(compile(text, "docs/queries.md", "exec"), names)
    assert names["device"].height > 0  # type: ignore[attr-defined]


def test_commands_run_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample_archive(tmp_path / "runs")
    shutil.copytree(NEURON, tmp_path / "captures")
    monkeypatch.chdir(tmp_path)
    for line in "".join(blocks("console")).splitlines():
        words = shlex.split(line)
        assert words[0] == "tracekit"
        result = run(*words[1:])
        assert result.exit_code == 0, (line, result.output, result.exception)


def test_every_named_query_is_in_the_cookbook() -> None:
    assert {name for name in named_queries() if f"@{name}" not in PAGE} == set()
