"""``tracekit artifacts`` on raw input: what it prints, for people and for machines."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner, Result

from tests.shared_data import SAMPLES
from tests.test_discover import PROCESS, TIME, TRACE, needs_shared, write
from tracekit.cli.artifacts import command
from tracekit.errors import DiscoveryError
from tracekit.ingestion import ingest
from tracekit.tables import ARTIFACTS

NEURON = Path(__file__).resolve().parents[2] / ".." / "shared" / "neuron"


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(command, [str(a) for a in arguments])
    assert not result.exception, result.output
    assert "json" in arguments or all(len(line) <= 80 for line in result.output.splitlines()), result.output
    return result


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    folder = f"{PROCESS}/{TIME}"
    return write(
        tmp_path / "in",
        {
            f"{folder}/trace.json": TRACE,
            f"{folder}/neff_14382885777943380728_vnc_0.neff": b"n" * 2048,
            f"{folder}/profile_nc_0_session_0.ntff": b"n",
            f"{folder}/profile_nc_1_session_0.ntff": b"",
            "readme.txt": "x",
        },
    )


def test_pairs_problems_and_what_is_not_read_are_shown(capture: Path) -> None:
    text = run(capture).output
    assert text.startswith("5 files, 2.2 kB: 1 NEFF, 2 NTFF, 1 trace, 1 other")
    assert f"NEFF and NTFF of {PROCESS}" in text
    assert "0 bytes: nothing" in text
    rows = [line.split() for line in text.splitlines()]
    neff = next(row for row in rows if row[:1] == ["neff"])
    assert "".join(neff[1:2]).startswith("neff_14382885777943")
    assert neff[-4:] == ["0", "2.0", "kB", "core0"]
    assert "readme.txt: starts with" in text


def test_json_holds_the_whole_table(capture: Path, tmp_path: Path) -> None:
    rows = json.loads(run(capture, "--format", "json").output)
    assert list(rows[0]) == list(ARTIFACTS.names)
    neff = next(row for row in rows if row["role"] == "neff")
    assert (neff["model_hash"], neff["core_index"], neff["size_bytes"]) == ("14382885777943380728", 0, 2048)
    run(capture, "-o", tmp_path / "files.txt")
    assert "1 NEFF, 2 NTFF" in (tmp_path / "files.txt").read_text()
    run(capture, "-o", tmp_path / "files.parquet")
    assert pl.read_parquet(tmp_path / "files.parquet").height == 5


def test_cache_is_searched(tmp_path: Path) -> None:
    write(tmp_path, {"in/77001122334455_vnc_0.ntff": b"n", "cache/neff_77001122334455.neff": b"n"})
    assert "no NEFF" in run(tmp_path / "in").output
    text = run(tmp_path / "in", "--neff-cache", tmp_path / "cache").output
    assert "found in the NEFF cache" in text
    assert "1 NEFF, 1 NTFF" in text


def test_many_files_are_cut_unless_all_are_wanted(tmp_path: Path) -> None:
    write(tmp_path, {f"neff_{n}.neff": b"n" for n in range(50)} | {f"{n}.txt": "x" for n in range(30)})
    short, long = run(tmp_path).output, run(tmp_path, "--all").output
    assert "30 more; --all" in short
    assert "25 more; --all" in short
    assert all(f"neff_{n}.neff" in long for n in range(50))


def test_hostile_names_cannot_reach_the_terminal(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("\x1b[31mred\n.json", TRACE)
        archive.writestr("\x1b]0;title\x07/x.txt", "x")
        archive.writestr("[bold]name[red].neff", "x")
    text = run(tmp_path / "a.zip", "--all").output
    assert not set(text) & {"\x1b", "\x07", "\r"}
    assert "\\x1b[31mred" in text
    assert "[bold]name[red].neff" in text


def test_nothing_there_is_one_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, [str(tmp_path / "none")])
    assert isinstance(result.exception, DiscoveryError)


@needs_shared
@pytest.mark.parametrize("name", ["rms_naive", "train_2proc"])
def test_shared_capture_is_whole(name: str) -> None:
    text = run(NEURON / name).output
    assert "NEFF and NTFF of i-0123456789abcdef0_pid_4242" in text
    assert "Notes" not in text


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A capture with a cut trace, a cut NTFF and no system trace."""
    shutil.copytree(SAMPLES / "neuron" / "rms_naive" / "capture", tmp_path / "in")
    os.truncate(next((tmp_path / "in").rglob("trace.json")), 4000)
    os.truncate(next((tmp_path / "in").rglob("*.ntff")), 100)
    next((tmp_path / "in").rglob("ntrace.pb")).unlink()
    return tmp_path / "in"


def test_damage_is_named_beside_the_file(damaged: Path) -> None:
    text = run(damaged).output
    problems = {Path(r["path"]).suffix: r["problem"] for r in json.loads(run(damaged, "--format", "json").output)}
    assert problems[".json"] == "cut: it ends inside an event"
    assert problems[".ntff"] == "cut: shorter than its header of 128 bytes"
    assert problems[".neff"] is None
    lines = [line.strip() for line in text.splitlines()]
    at = next(n for n, line in enumerate(lines) if "profile_nc_0_session_0.ntff" in line)
    assert lines[at + 1].startswith("cut: shorter than its header")
    assert "no system trace (ntrace.pb, or an export of it)" in " ".join(text.split())


def test_damage_of_a_stored_profile_is_named_too(damaged: Path, tmp_path: Path) -> None:
    path = ingest([damaged], tmp_path / "archive").path
    problems = {Path(r["path"]).name: r["problem"] for r in json.loads(run(path, "--format", "json").output)}
    assert "the file ends inside an event" in problems["trace.json"]
    assert "no system trace" in " ".join(run(path).output.split())


def test_a_cut_system_trace_is_named(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "neuron" / "rms_naive" / "capture", tmp_path / "in")
    place = next((tmp_path / "in").rglob("ntrace.pb"))
    os.truncate(place, place.stat().st_size - 3)
    rows = {r["format"]: r["problem"] for r in json.loads(run(tmp_path / "in", "--format", "json").output)}
    assert str(rows["ntrace"]).startswith("cut or damaged at byte")
