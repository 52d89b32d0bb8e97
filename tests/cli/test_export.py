"""``tracekit export`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.command import assert_fits, assert_one_line, tracekit
from tests.shared_data import SAMPLES
from tracekit.cli.export import FORMATS
from tracekit.export import EXPORTS

TRACE = SAMPLES / "cpu" / "rms_fused"
CAPTURE = SAMPLES / "neuron" / "train_small"


def test_the_help_names_every_format() -> None:
    assert list(FORMATS) == list(EXPORTS)
    shown = tracekit("export", "--help")
    assert_fits(shown.stdout)
    assert all(f"  {name} " in shown.stdout for name in EXPORTS)


def test_it_writes_the_file_and_says_how_large(cache: Path, tmp_path: Path) -> None:
    done = tracekit("export", TRACE, "--cache", cache, "--to", "chrome", "-o", tmp_path / "run.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{tmp_path / 'run.json'}: ")
    assert done.stdout.strip().endswith("kB")
    assert json.loads((tmp_path / "run.json").read_text())["traceEvents"]


def test_a_profile_of_several_processes_says_what_it_drew(cache: Path, tmp_path: Path) -> None:
    done = tracekit("export", CAPTURE, "--cache", cache, "--to", "perfetto", "-o", tmp_path / "run.pftrace")
    assert done.returncode == 0, done.stderr
    assert "arrows" in done.stdout
    assert (tmp_path / "run.pftrace").stat().st_size > 10_000


def test_an_export_does_not_overwrite_other_files(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert_one_line(tracekit("export", TRACE, "--cache", cache, "--to", "csv", "-o", tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_no_format_is_wrong_usage(tmp_path: Path) -> None:
    assert tracekit("export", TRACE, "-o", tmp_path / "x").returncode == 2


def test_input_that_cannot_be_read_is_one_line(cache: Path, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    assert_one_line(tracekit("export", nothing, "--cache", cache, "--to", "csv", "-o", tmp_path / "out"))


def test_a_target_that_cannot_be_written_is_one_line(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    target = tmp_path / "file" / "below.sqlite"
    assert_one_line(tracekit("export", TRACE, "--cache", cache, "--to", "sqlite", "-o", target))
