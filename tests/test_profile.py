from __future__ import annotations

import copy
from pathlib import Path

import polars as pl
import pytest

import tracekit
from tests.shared_data import SAMPLES
from tracekit.metrics import METRICS
from tracekit.profile import open_profile
from tracekit.tables import TABLES

NEURON = SAMPLES / "neuron"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tracekit.Archive:
    path = tmp_path_factory.mktemp("archive")
    for name in ("rms_naive", "rms_fused"):
        tracekit.ingest([NEURON / name / "capture"], path, profile_id=name)
    opened = tracekit.open(path)
    assert isinstance(opened, tracekit.Archive)
    return opened


def test_archive_is_a_mapping_of_profiles(archive: tracekit.Archive) -> None:
    assert list(archive) == ["rms_fused", "rms_naive"]
    assert archive["rms_naive"].id == "rms_naive"
    assert archive.get("other") is None
    assert "other" not in archive


def test_a_missing_profile_is_a_key_error_that_helps(archive: tracekit.Archive) -> None:
    with pytest.raises(KeyError) as caught:
        archive["rms_naiv"]
    assert isinstance(caught.value, tracekit.ArchiveError)
    assert "no profile 'rms_naiv'" in caught.value.problem
    assert caught.value.hint.startswith("archive.ids lists them: rms_naive")
    assert str(caught.value).startswith(str(archive.path))
    with pytest.raises(tracekit.ArchiveError, match="it is empty"):
        tracekit.Archive(archive.path / "nothing")["x"]


def test_metrics_of_an_archive_are_methods_too(archive: tracekit.Archive) -> None:
    assert archive.devices(scope="all").collect().equals(archive.metric("devices", scope="all").collect())
    assert "gaps" in dir(archive) and not hasattr(archive, "nonsense") and not hasattr(archive, "_nonsense")
    assert copy.copy(archive).ids == archive.ids
    with pytest.raises(AttributeError, match=r"an archive has no attribute, table or metric 'gap' .*did you mean gaps"):
        archive.gap  # noqa: B018
    with pytest.raises(tracekit.TracekitError, match=r"'zzz' \(metrics are steps, .*tables are events"):
        archive.zzz  # noqa: B018
    with pytest.raises(tracekit.TracekitError, match="no option colour"):
        archive.gaps(colour="red")
    with pytest.raises(tracekit.ArchiveError, match="no profiles"):
        archive.only([]).gaps()


@pytest.mark.parametrize("place", [3, None, b"runs", ["runs"]])
def test_what_is_no_path_is_said_so(place: object) -> None:
    with pytest.raises(TypeError, match=r"is no path but .*name a capture") as caught:
        tracekit.open(place)  # type: ignore[arg-type]
    assert isinstance(caught.value, tracekit.TracekitError)
    with pytest.raises(tracekit.TracekitError, match="is no path"):
        tracekit.diff(place, place)  # type: ignore[arg-type]


@pytest.mark.parametrize("table", TABLES)
def test_tables_have_the_documented_columns(archive: tracekit.Archive, table: str) -> None:
    spec = TABLES[table]
    one = getattr(archive["rms_naive"], table)
    assert dict(one.collect_schema()) == spec.schema
    spanning = getattr(archive, table).collect()
    assert spanning.columns == ["profile", *spec.names]
    assert spanning.drop("profile").height == sum(getattr(p, table).collect().height for p in archive.values())


def test_metrics_are_methods_and_span_the_archive(archive: tracekit.Archive) -> None:
    profile = archive["rms_naive"]
    for name in METRICS:
        frame = getattr(profile, name)(scope="all")
        assert isinstance(frame, pl.LazyFrame)
        assert name in dir(profile)
    devices = archive.metric("devices", scope="all").collect()
    assert dict(devices.select("profile", "busy_ns").iter_rows()) == {"rms_fused": 403_300, "rms_naive": 2_355_000}


def test_unknown_names_are_explained(archive: tracekit.Archive) -> None:
    profile = archive["rms_naive"]
    with pytest.raises(AttributeError, match="no attribute, table or metric 'nonsense'"):
        profile.nonsense  # noqa: B018
    with pytest.raises(tracekit.TracekitError, match="no metric 'nonsense'"):
        profile.metric("nonsense")
    with pytest.raises(tracekit.TracekitError, match="no option colour"):
        profile.metric("devices", colour="red")
    with pytest.raises(tracekit.TracekitError, match=r"by is never 'nope'.*cause, op, host, size"):
        profile.metric("gaps", by="nope")
    with pytest.raises(tracekit.ArchiveError, match="no table 'nonsense'"):
        profile.table("nonsense")
    with pytest.raises(tracekit.TracekitError, match="no step 99"):
        profile.metric("devices", scope=99)


def test_reprs_say_what_is_inside_and_escape_it(archive: tracekit.Archive) -> None:
    assert "2 profiles" in repr(archive)
    profile = archive["rms_naive"]
    assert "rms_naive" in repr(profile) and "6 chains" in repr(profile) and "1 session," in repr(profile)
    assert "rms_naive" in archive._repr_html_()
    profile.path = Path("<script>")
    assert "<script>" not in profile._repr_html_()


def test_opening_raw_input_goes_through_the_cache(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = tracekit.open(NEURON / "rms_fused" / "capture", cache=cache)
    written = {p: p.stat().st_mtime_ns for p in cache.rglob("*.parquet")}
    second = tracekit.open(NEURON / "rms_fused" / "capture", cache=cache)
    assert isinstance(first, tracekit.Profile) and isinstance(second, tracekit.Profile)
    assert first.path == second.path
    assert written == {p: p.stat().st_mtime_ns for p in cache.rglob("*.parquet")}


def test_one_profile_of_an_archive_must_be_named(archive: tracekit.Archive) -> None:
    with pytest.raises(tracekit.ArchiveError, match="several profiles") as caught:
        open_profile(archive.path)
    assert "rms_fused, rms_naive" in caught.value.hint
    assert open_profile(archive.path, "rms_fused").id == "rms_fused"
    with pytest.raises(tracekit.ArchiveError, match="no profile 'x'"):
        open_profile(archive.path, "x")
