"""Profiles in object storage are relabelled, renamed and compacted as on disk, whatever interrupts it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import tracekit
from tests.archive_data import NEURON, run, sample_archive
from tests.s3_server import Troubles, s3_server, use
from tracekit import archive as store
from tracekit import remote, remote_upkeep, upkeep
from tracekit.errors import ArchiveError
from tracekit.tables import SCHEMA_VERSION

s3fs = pytest.importorskip("s3fs")
pytest.importorskip("moto.moto_server.werkzeug_app")


@pytest.fixture(scope="module")
def server() -> Iterator[Troubles]:
    with pytest.MonkeyPatch.context() as patch, s3_server() as (endpoint, troubles):
        s3fs.S3FileSystem.clear_instance_cache()
        use(endpoint, patch)
        patch.setattr(remote, "_FIRST_PAUSE_S", 0.01)
        remote.filesystem().mkdir("upkeep")
        yield troubles
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Two profiles on disk."""
    root = sample_archive(tmp_path / "here")
    for profile_id in store.profile_ids(root):
        if not profile_id.startswith("rms_n") and not profile_id.startswith("rms_f"):
            upkeep.remove(root, profile_id)
    return root


@pytest.fixture
def there(server: Troubles, here: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The same two in object storage."""
    server.rate, server.refuse = 0.0, ""
    url = f"s3://upkeep/{abs(hash(request.node.name))}"
    for profile_id in store.profile_ids(here):
        remote.upload(store.profile_path(here, profile_id), url)
    yield url
    server.rate, server.refuse = 0.0, ""


def profiles(url: str) -> dict[str, bytes]:
    fs = remote.filesystem()
    names = [o.url.removeprefix(f"{url}/") for o in remote.objects(url)]
    return {name: fs.cat_file(f"{url}/{name}") for name in names if not name.startswith(".")}


def on_disk(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.glob("profile=*/*")}


def hidden(url: str) -> list[str]:
    names = [o.url.removeprefix(f"{url}/") for o in remote.objects(url)]
    return [name for name in names if name.startswith(".staging-")]


def labels(url: str) -> list[str | None]:
    runs = tracekit.open(url).runs.collect()
    return runs["label_build"].to_list() if "label_build" in runs.columns else [None] * runs.height


def event_counts(url: str) -> list[int]:
    found = tracekit.open(url)
    assert isinstance(found, tracekit.Archive)
    return [found[i].events.select(pl.len()).collect().item() for i in found]


def test_changes_give_the_same_bytes_as_on_disk(there: str, here: Path) -> None:
    first, second = store.profile_ids(here)
    assert run("archive", "label", there, first, "build=7", "commit=").exit_code == 0
    upkeep.relabel(here, first, {"build": "7", "commit": None})
    assert profiles(there) == on_disk(here)
    assert run("archive", "rename", there, second, "mine").exit_code == 0
    upkeep.rename(here, second, "mine")
    assert profiles(there) == on_disk(here)
    shown = run("archive", "compact", there)
    assert shown.exit_code == 0 and "2 profiles: " in shown.output
    for profile_id in store.profile_ids(here):
        before, after = upkeep.compact(here, profile_id)
        assert after < before
    assert profiles(there) == on_disk(here)
    assert "2 profiles sound, 0 damaged" in run("archive", "verify", there).output
    assert hidden(there) == []
    unchanged = profiles(there)
    assert run("archive", "compact", there).exit_code == 0
    assert profiles(there) == unchanged


def test_changed_profiles_stay_known_to_a_batch(server: Troubles, there: str) -> None:
    url = f"{there}-batch"
    source = NEURON / "rms_fused"
    assert run("batch", source, "-o", url, "--jobs", "1").exit_code == 0
    (stored,) = remote.profile_ids(url)
    assert run("archive", "label", url, stored, "build=7").exit_code == 0
    labelled = profiles(url)
    for url_of_entry in [o.url for o in remote.objects(f"{url}/.ledger")]:
        remote.delete([url_of_entry])
    assert "0 stored, 1 known" in run("batch", source, "-o", url, "--jobs", "1").output
    assert profiles(url) == labelled
    assert run("archive", "rename", url, stored, "mine").exit_code == 0
    assert "0 stored, 1 known" in run("batch", source, "-o", url, "--jobs", "1").output
    assert remote.profile_ids(url) == ["mine"]


@pytest.mark.parametrize("refuse", ["manifest.json", "profile="])
def test_an_interrupted_label_leaves_whole_profiles_and_is_finished(
    server: Troubles, there: str, refuse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    first, _ = remote.profile_ids(there)
    counts = event_counts(there)
    server.refuse = refuse
    with pytest.raises(ArchiveError):
        remote_upkeep.relabel(there, first, {"build": "7"})
    server.refuse = ""
    assert event_counts(there) == counts
    assert run("archive", "verify", there).exit_code == 0
    assert labels(there) == (["7", None] if refuse == "profile=" else [None, None])
    remote_upkeep.relabel(there, first, {"build": "8"})
    assert labels(there) == ["8", None]
    assert run("archive", "verify", there).exit_code == 0


@pytest.mark.parametrize("stop", ["events.parquet", "manifest.json"])
def test_a_half_copied_change_reads_the_same_and_is_finished(
    server: Troubles, there: str, here: Path, stop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    first, _ = remote.profile_ids(there)
    before = {name: tracekit.open(there).table(name).collect() for name in ("events", "chains", "links")}
    server.refuse = f"profile={first}/{stop}"
    with pytest.raises(ArchiveError):
        remote_upkeep.compact(there, first)
    server.refuse = ""
    assert hidden(there)
    for name, rows in before.items():
        assert tracekit.open(there).table(name).collect().equals(rows)
    assert "removed 1 unfinished" in run("archive", "verify", there).output
    upkeep.compact(here, first)
    assert profiles(there) == on_disk(here)


def test_an_interrupted_rename_loses_nothing(server: Troubles, there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    first, second = remote.profile_ids(there)
    server.refuse = "profile=mine/manifest"
    with pytest.raises(ArchiveError):
        remote_upkeep.rename(there, first, "mine")
    server.refuse = ""
    assert remote.profile_ids(there) == [first, second]
    with monkeypatch.context() as patch, pytest.raises(ConnectionError):
        patch.setattr(remote_upkeep, "remove", lambda *_: (_ for _ in ()).throw(ConnectionError()))
        remote_upkeep.rename(there, first, "mine")
    assert remote.profile_ids(there) == sorted(["mine", first, second])
    assert run("archive", "verify", there).exit_code == 0
    remote_upkeep.rename(there, first, "mine")
    assert remote.profile_ids(there) == sorted(["mine", second])


def test_changes_bear_a_bad_connection(server: Troubles, there: str, here: Path) -> None:
    first, second = remote.profile_ids(there)
    server.rate = 0.2
    remote_upkeep.relabel(there, first, {"build": "7"})
    remote_upkeep.compact(there, second)
    server.rate = 0.0
    upkeep.relabel(here, first, {"build": "7"})
    upkeep.compact(here, second)
    assert profiles(there) == on_disk(here)


def test_what_cannot_be_done_is_one_line(there: str) -> None:
    first, second = remote.profile_ids(there)
    for words, problem in (
        (("rename", there, first, second), "already"),
        (("rename", there, first, "../x"), "no name for a profile"),
        (("rename", there, "nope", "x"), "no profile 'nope'"),
        (("label", there, "nope", "a=b"), "no profile 'nope'"),
        (("compact", there, "nope"), "no profile 'nope'"),
    ):
        result = run("archive", *words)
        assert isinstance(result.exception, ArchiveError), words
        assert problem in str(result.exception) and "\n" not in str(result.exception)
    body = remote.filesystem().cat_file(f"{there}/profile={first}/chains.parquet")
    remote.filesystem().pipe_file(f"{there}/profile={first}/chains.parquet", body[:40])
    result = run("archive", "compact", there, first)
    assert result.exit_code == 1
    assert f"{there}/profile={first}/chains.parquet: damaged" in " ".join(result.output.split())
    assert "/tmp" not in result.output


def test_migrate_names_what_cannot_be_read_by_its_address(there: str) -> None:
    assert "2 profiles with schema 1, 0 that cannot" in run("archive", "migrate", there).output
    ids = remote.profile_ids(there)
    manifest = f"{there}/profile={ids[0]}/manifest.json"
    fs = remote.filesystem()
    facts = json.loads(fs.cat_file(manifest))
    fs.pipe_file(manifest, json.dumps({**facts, "schema_version": SCHEMA_VERSION + 1}).encode())
    result = run("archive", "migrate", there)
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert f"{there}/profile={ids[0]}: written with schema {SCHEMA_VERSION + 1} by tracekit" in said
    assert "1 profile with schema 1, 1 that cannot" in said
