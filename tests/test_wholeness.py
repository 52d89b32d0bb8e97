"""Cut files are found by their last bytes; whole ones never are."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import polars as pl
import pytest

from tests.shared_data import CORPUS, NEURON, SAMPLES
from tests.sources.wire import text
from tracekit.discover import discover
from tracekit.sources.base import Artifact
from tracekit.wholeness import damage

TRACE = json.dumps({"traceEvents": [{"ph": "X", "name": f"a{n}", "ts": n, "dur": 1} for n in range(50)]}).encode()


def found(path: Path, role: str = "trace", reader: str | None = "kineto") -> str | None:
    return damage(Artifact(path, path.name, role, reader, size_bytes=path.stat().st_size))


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("end", [b"", b"\n\n", b"\0\0"])
def test_a_whole_trace_has_no_damage(tmp_path: Path, end: bytes) -> None:
    assert found(written(tmp_path / "t.json", TRACE + end)) is None
    assert found(written(tmp_path / "t.json.gz", gzip.compress(TRACE))) is None


def test_an_open_array_is_legal(tmp_path: Path) -> None:
    assert found(written(tmp_path / "t.json", b'[\n{"ph":"X","ts":1},\n{"ph":"X","ts":2},\n')) is None


def test_a_cut_trace_is_named(tmp_path: Path) -> None:
    assert found(written(tmp_path / "t.json", TRACE[:-20])) == "cut: it ends inside an event"
    packed = gzip.compress(TRACE)
    assert found(written(tmp_path / "t.json.gz", packed[:-12])) == "cut: the compressed data ends too soon"
    broken = packed[:20] + b"\xff" * 8 + packed[28:]
    assert "broken" in str(found(written(tmp_path / "u.json.gz", broken)))


def test_a_cut_table_is_named(tmp_path: Path) -> None:
    path = tmp_path / "SystemProfileEvents.parquet"
    pl.DataFrame({"a": [1]}).write_parquet(path)
    assert found(path, "system", "explorer") is None
    written(path, path.read_bytes()[:-6])
    assert found(path, "system", "explorer") == "cut: it has no Parquet footer"


def test_a_cut_system_trace_is_named_with_its_place(tmp_path: Path) -> None:
    whole = text(1, b"x" * 10) * 3
    assert found(written(tmp_path / "ntrace.pb", whole), "system", "ntrace") is None
    assert found(written(tmp_path / "ntrace.pb", whole[:-1]), "system", "ntrace") == "cut or damaged at byte 24"


def test_a_device_profile_shorter_than_its_header_is_named(tmp_path: Path) -> None:
    assert found(written(tmp_path / "a.ntff", b"x" * 128), "ntff", None) is None
    assert "128 bytes" in str(found(written(tmp_path / "a.ntff", b"x" * 127), "ntff", None))


WHOLE = [SAMPLES / "neuron", SAMPLES / "cpu", *(p for p in (NEURON, CORPUS) if p.exists())]


@pytest.mark.parametrize("path", WHOLE, ids=lambda p: p.name)
def test_nothing_is_wrong_with_whole_captures(path: Path, tmp_path: Path) -> None:
    assert [(a.label, damage(a)) for a in discover([path], workdir=tmp_path).artifacts if damage(a)] == []
