from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.archive_data import run, sample_archive
from tracekit import archive as store
from tracekit.errors import ArchiveError, QueryError


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return sample_archive(tmp_path / "archive")


def test_listing_shows_every_profile_with_labels(archive: Path) -> None:
    rows = json.loads(run("archive", "ls", archive, "--format", "json").output)
    assert [r["profile"] for r in rows] == store.profile_ids(archive)
    assert any("commit=rms_naive" in r["labels"] for r in rows)
    assert sum(r["event_count"] for r in rows) == 1234
    shown = run("archive", "ls", archive, "--where", "label_commit = 'rms_naive'").output
    assert "1 profile, " in shown and "commit=rms" in shown


def test_a_condition_cannot_do_more_than_choose(archive: Path) -> None:
    for condition in ("1=1) UNION SELECT x FROM read_csv('/etc/passwd'", "nope = 1", "1=1); DROP TABLE runs; --"):
        result = run("archive", "rm", archive, "--yes", "--where", condition)
        assert isinstance(result.exception, QueryError), condition
    assert len(store.profile_ids(archive)) == 4


def test_damaged_profiles_are_listed_and_fail_the_check(archive: Path) -> None:
    ids = store.profile_ids(archive)
    (store.profile_path(archive, ids[0]) / "manifest.json").write_text("{")
    (store.profile_path(archive, ids[1]) / "sessions.parquet").write_bytes(b"PAR1 no PAR1")
    (store.profile_path(archive, ids[2]) / "manifest.json").write_text('{"schema_version": 1}')
    rows = json.loads(run("archive", "ls", archive, "--format", "json").output)
    assert [r["problem"] is None for r in rows] == [False, False, False, True]
    result = run("archive", "verify", archive)
    assert result.exit_code == 1
    assert "3 damaged" in result.output
    assert run("archive", "migrate", archive).exit_code == 1
    compacted = run("archive", "compact", archive, ids[1], ids[3])
    assert compacted.exit_code == 1
    assert "sessions.parquet: damaged" in compacted.output and "1 profile: " in compacted.output
    (store.profile_path(archive, ids[3]) / "manifest.json").unlink()
    told = " ".join(run("archive", "verify", archive).output.split())
    assert "0 profiles sound, 4 damaged" in told
    rows = json.loads(run("archive", "verify", archive, "--format", "json").output.partition("]")[0] + "]")
    assert [r["problem"] for r in rows if r["profile"] == ids[3]] == ["missing, so this is no profile"]


def test_labels_in_any_script_are_kept_and_listed(archive: Path) -> None:
    first = store.profile_ids(archive)[0]
    assert run("archive", "label", archive, first, "ü=ñ", "é=2", "a-b=1", "commit=").exit_code == 0
    assert "ü=ñ" in run("archive", "ls", archive, "--format", "csv").output
    question = f"SELECT label_ü, label_é, label_a_b FROM runs WHERE profile = '{first}'"
    rows = run("query", archive, question, "--format", "json")
    assert json.loads(rows.output)[0] == {"label_ü": "ñ", "label_é": "2", "label_a_b": "1"}


HOSTILE = ["a\nb", "\x1b[31mred\x1b[0m", "'; DROP TABLE runs; --", 'q"uote', "..", "$(touch x)", "ü\u202eltr", "-rf"]


def test_hostile_names_are_shown_safely_and_hurt_nothing(archive: Path) -> None:
    victim = store.profile_path(archive, store.profile_ids(archive)[0])
    for name in HOSTILE:
        copy = store.profile_path(archive, name)
        copy.mkdir()
        for file in victim.iterdir():
            (copy / file.name).write_bytes(file.read_bytes())
    result = run("archive", "ls", archive)
    assert result.exit_code == 0, result.exception
    assert "\x1b" not in result.output and "\u202e" not in result.output
    assert len(result.output.splitlines()) == 1 + 4 + len(HOSTILE) + 1 + ("… and" in result.output)
    counted = run("query", archive, "SELECT COUNT(DISTINCT profile) AS n FROM events", "--format", "json")
    assert json.loads(counted.output) == [{"n": 4 + len(HOSTILE)}]
    for name in HOSTILE:
        assert run("archive", "rm", archive, "--yes", "--", name).exit_code == 0, name
    assert len(store.profile_ids(archive)) == 4


def test_removing_asks_first(archive: Path) -> None:
    profile = store.profile_ids(archive)[0]
    assert run("archive", "rm", archive, profile, input="n\n").exit_code == 1
    assert run("archive", "rm", archive, profile, "--dry-run").exit_code == 0
    assert profile in store.profile_ids(archive)
    assert run("archive", "rm", archive, profile, input="y\n").exit_code == 0
    assert profile not in store.profile_ids(archive)
    assert run("archive", "rm", archive, "--yes").exit_code == 2


def test_labels_and_names_are_changed(archive: Path) -> None:
    assert run("archive", "label", archive, "--where", "label_commit LIKE 'rms%'", "build=12", "commit=").exit_code == 0
    rows = json.loads(
        run(
            "query", archive, "SELECT label_build, label_commit FROM runs ORDER BY label_build", "--format", "json"
        ).output
    )
    assert sorted(str(r["label_build"]) for r in rows) == ["12", "12", "12", "None"]
    assert {r["label_commit"] for r in rows} == {None, "train_small"}
    profile = store.profile_ids(archive)[0]
    assert run("archive", "rename", archive, profile, "mine").exit_code == 0
    assert "mine" in store.profile_ids(archive)
    assert run("archive", "compact", archive).exit_code == 0
    assert run("archive", "verify", archive).exit_code == 0
    assert run("archive", "label", archive, profile).exit_code == 2


def test_what_is_not_an_archive_is_refused_with_a_hint(tmp_path: Path, archive: Path) -> None:
    assert isinstance(run("archive", "ls", tmp_path / "nothing").exception, ArchiveError)
    profile = store.profile_path(archive, store.profile_ids(archive)[0])
    assert isinstance(run("archive", "ls", profile).exception, ArchiveError)
    assert isinstance(run("archive", "rm", archive, "--yes", "nope").exception, ArchiveError)
