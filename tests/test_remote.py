"""Object storage, against a real server on loopback: same bytes as from disk, whatever the connection does."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

import tracekit
from tests.archive_data import NEURON, SAMPLE_NAMES
from tests.archive_data import run as command
from tests.s3_server import SECRET, Troubles, s3_server, use
from tests.test_batch import Here, by_status
from tracekit import archive as store
from tracekit import captures as local
from tracekit import remote, remote_upkeep
from tracekit.batch import Executors, Outcome, plan, run
from tracekit.batch.ledger import open_ledger
from tracekit.errors import ArchiveError, DiscoveryError

pytest.importorskip("s3fs")
pytest.importorskip("moto.moto_server.werkzeug_app")


@pytest.fixture(scope="module")
def server() -> Iterator[Troubles]:
    with pytest.MonkeyPatch.context() as patch, s3_server() as (endpoint, troubles):
        use(endpoint, patch)
        patch.setattr(remote, "_FIRST_PAUSE_S", 0.01)
        fs = remote.filesystem()
        fs.mkdir("captures")
        fs.mkdir("archive")
        fs.put(f"{NEURON}/", "captures/in/", recursive=True)
        yield troubles


@pytest.fixture(autouse=True)
def quiet(server: Troubles) -> Iterator[None]:
    server.rate, server.refuse = 0.0, ""
    yield
    server.rate, server.refuse = 0.0, ""


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The profiles of the same captures, read from disk."""
    root = tmp_path_factory.mktemp("direct")
    for name in SAMPLE_NAMES:
        tracekit.ingest([NEURON / name], root)
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.glob("profile=*/*")}


def here() -> Executors:
    @contextmanager
    def start() -> Iterator[Executor]:
        yield Here()

    return Executors(2, start, start)


def batch(source: str, archive: str, **options: int) -> list[Outcome]:
    ledger = open_ledger(archive)
    made = plan([source], ledger)
    return made.done + run(made.tasks, archive, here(), ledger, **options)


def contents(url: str) -> dict[str, bytes]:
    fs = remote.filesystem()
    names = [o.url.removeprefix(f"{url}/") for o in remote.objects(url)]
    return {name: fs.cat_file(f"{url}/{name}") for name in names if not name.startswith(".")}


def test_captures_are_split_as_on_disk(server: Troubles) -> None:
    found = {c.name: len(c.objects) for c in remote.captures("s3://captures/in")}
    assert set(found) == {c.name for c in local.captures(NEURON)}
    assert sum(found.values()) == sum(1 for p in NEURON.rglob("*") if p.is_file())


def test_storage_to_storage_gives_the_same_bytes_under_trouble(server: Troubles, direct: dict[str, bytes]) -> None:
    server.rate = 0.25
    outcomes = batch("s3://captures/in", "s3://archive/troubled", retry=3)
    server.rate = 0.0
    assert by_status(outcomes)["stored"] == len(SAMPLE_NAMES), outcomes
    assert contents("s3://archive/troubled") == direct
    assert min(server.seen[kind] for kind in ("503", "slow", "cut")) > 0
    again = batch("s3://captures/in", "s3://archive/troubled")
    assert by_status(again)["known"] == len(SAMPLE_NAMES)


def test_storage_to_disk_gives_the_same_bytes(server: Troubles, direct: dict[str, bytes], tmp_path: Path) -> None:
    batch("s3://captures/in", str(tmp_path))
    stored = {p.relative_to(tmp_path).as_posix(): p.read_bytes() for p in tmp_path.glob("profile=*/*")}
    assert stored == direct


@pytest.fixture(scope="module")
def archive(server: Troubles, direct: dict[str, bytes]) -> str:
    batch("s3://captures/in", "s3://archive/good")
    return "s3://archive/good"


def test_archives_are_opened_and_queried_in_place(archive: str) -> None:
    found = tracekit.open(archive)
    assert isinstance(found, tracekit.Archive)
    events = {i: found[i].events.select(pl.len()).collect().item() for i in found}
    assert sum(events.values()) == 1234
    counted = found.query("SELECT profile, COUNT(*) AS n FROM events GROUP BY profile").collect()
    assert dict(counted.rows()) == events
    assert found.runs.collect().height == len(SAMPLE_NAMES)
    assert found.where(pl.col("label_sample") == "rms_naive").events.select(pl.len()).collect().item() == 62
    gaps = found[next(i for i in found if i.startswith("rms_naive"))].gaps().collect()
    assert gaps.equals(tracekit.open(NEURON / "rms_naive").gaps().collect())


def test_commands_take_urls(archive: str) -> None:
    assert json.loads(command("query", archive, "SELECT COUNT(*) AS n FROM runs", "--format", "json").output) == [
        {"n": 4}
    ]
    assert "4 profiles" in command("archive", "ls", archive).output


def test_archives_are_checked_and_profiles_removed_by_command(server: Troubles) -> None:
    batch("s3://captures/in", "s3://archive/kept")
    assert "4 profiles sound, 0 damaged" in command("archive", "verify", "s3://archive/kept").output
    fs = remote.filesystem()
    first, second, third = remote.profile_ids("s3://archive/kept")[:3]
    good = fs.cat_file(f"archive/kept/profile={first}/events.parquet")
    fs.pipe_file(f"archive/kept/profile={first}/events.parquet", good[:-1] + b"x")
    fs.rm_file(f"archive/kept/profile={second}/links.parquet")
    found = command("archive", "verify", "s3://archive/kept")
    assert found.exit_code == 1 and "2 damaged" in found.output
    assert command("archive", "rm", "s3://archive/kept", "--yes", third).exit_code == 0
    assert third not in remote.profile_ids("s3://archive/kept")
    refused = command("archive", "index", "s3://archive/kept")
    assert "file system" in str(refused.exception)


def test_a_query_reads_only_its_columns(archive: str, server: Troubles) -> None:
    before = server.seen["GET"]
    tracekit.open(archive).query("SELECT COUNT(DISTINCT name) FROM events").collect()
    assert server.seen["GET"] > before


def test_what_an_interrupted_upload_leaves_is_no_profile(
    server: Troubles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    profile = tracekit.ingest([NEURON / "rms_fused"], tmp_path).path
    for refused in ("manifest.json", "events.parquet", "threads.parquet"):
        target = f"s3://archive/cut-{refused.partition('.')[0]}"
        server.refuse = refused
        with pytest.raises(ArchiveError):
            remote.upload(profile, target)
        server.refuse = ""
        assert remote.profile_ids(target) == []
        with pytest.raises(ArchiveError, match="no stored profile"):
            tracekit.open(target)
        assert remote.upload(profile, target) is True
        assert remote.upload(profile, target) is False
        assert len(remote.profile_ids(target)) == 1
    remote_upkeep.remove(target, remote.profile_ids(target)[0])
    assert contents(target) == {}


def test_unsafe_object_names_never_become_paths(server: Troubles, tmp_path: Path) -> None:
    import boto3

    client = boto3.client("s3")
    body = (NEURON / "rms_fused" / "capture").rglob("*.json")
    text = next(p for p in body if p.name != "capture.json").read_bytes()
    for key in ("hostile/../../../escape.json", "hostile//a.json", "hostile/./b.json", "hostile/ok/trace.json"):
        client.put_object(Bucket="captures", Key=key, Body=text)
    made = plan(["s3://captures/hostile"], None)
    assert [t.paths for t in made.tasks] == [("s3://captures/hostile/ok/trace.json",)]
    assert "unsafe object name" in (made.done[0].problem or "")
    with pytest.raises(DiscoveryError):
        list(remote.captures("s3://captures/hostile"))


def test_errors_are_one_line_and_show_no_credentials(
    server: Troubles, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    problems = []
    for url in ("s3://nowhere/x", "s3://archive/nothing"):
        with pytest.raises(ArchiveError) as raised:
            tracekit.open(url)
        problems.append(str(raised.value))
    server.rate = 3.0
    outcomes = plan(["s3://captures/in"], None).done
    assert [o.status for o in outcomes] == ["failed"]
    problems += [f"{o.problem} {o.hint}" for o in outcomes]
    shown = "\n".join(problems) + caplog.text
    assert SECRET not in shown
    assert all("\n" not in p for p in problems)


def test_missing_credentials_are_said_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    try:
        with pytest.raises(ArchiveError, match="credentials"):
            tracekit.open("s3://archive/good")
    finally:
        s3fs.S3FileSystem.clear_instance_cache()


def test_paths_of_a_download_follow_the_url(tmp_path: Path) -> None:
    assert remote.local_path("s3://b/a/c.json", tmp_path) == tmp_path / "b" / "a" / "c.json"
    assert remote.is_url("s3://b") and not remote.is_url("/s3:/b")
    assert os.sep == "/" and store.PROFILE_PREFIX == "profile="
