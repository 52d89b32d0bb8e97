"""One file to copy: the right files, sizes first, checksums inside, whole or not there."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from capture import manifest, pack
from capture.cli import cli
from capture.errors import CaptureError

FILES = {
    "trace.json": json.dumps(
        {"traceEvents": [{"ph": "X", "cat": "kernel", "args": {"neff_cache_key": "mul--_[4]:BF16:abc123"}}]}
    ).encode(),
    "ntrace.pb": b"n",
    "trace_info.pb": b"i",
    "profile_nc_0_session_0.ntff": b"t" * 1000,
    "neff_1_vnc_0.neff": b"e" * 100,
    "memory.pickle": b"p" * 50,
}


@pytest.fixture
def capture_dir(tmp_path: Path, make_manifest: Callable[..., manifest.Manifest]) -> Path:
    directory = tmp_path / "out" / "i-1_pid_1" / "123"
    directory.mkdir(parents=True)
    for name, data in FILES.items():
        (directory / name).write_bytes(data)
    manifest.write(make_manifest(), directory)
    return tmp_path / "out"


def unpack(archive: Path, into: Path) -> Path:
    """Unpack as a stranger would: zstd and tar."""
    into.mkdir()
    subprocess.run(["tar", "--zstd", "-xf", archive, "-C", into], check=True)
    return into / "out"


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.rglob("*") if path.is_file()}


def test_what_the_analysis_needs_arrives_with_checksums(capture_dir: Path, tmp_path: Path) -> None:
    archive = tmp_path / "p.tar.zst"
    pack.pack(pack.plan(capture_dir), archive)
    there = unpack(archive, tmp_path / "there")
    assert names(there) == (set(FILES) - {"memory.pickle"}) | {"capture.json", "SHA256SUMS"}
    checked = subprocess.run(["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=there, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr
    data = (there / "i-1_pid_1/123/trace.json").read_bytes()
    assert hashlib.sha256(data).hexdigest() in (there / "SHA256SUMS").read_text()


def test_everything_takes_everything(capture_dir: Path, tmp_path: Path) -> None:
    pack.pack(pack.plan(capture_dir, everything=True), tmp_path / "p.tar.zst")
    assert set(FILES) <= names(unpack(tmp_path / "p.tar.zst", tmp_path / "there"))


def add_table(directory: Path, name: str) -> None:
    tables = directory / "explorer" / "half" / "profiles" / "global" / "x@latest"
    tables.mkdir(parents=True, exist_ok=True)
    (tables / f"{name}.parquet").write_bytes(b"PAR1")


def left_out_ntffs(capture_dir: Path) -> set[str]:
    return {member.path.parent.name for member in pack.plan(capture_dir).left_out if member.role == "ntff"}


def test_only_device_tables_stand_for_the_device_traces_they_were_made_from(capture_dir: Path) -> None:
    add_table(capture_dir, "SystemProfileEvents")
    assert left_out_ntffs(capture_dir) == set(), "the device half failed"
    other = capture_dir / "i-1_pid_1" / "456"
    other.mkdir()
    (other / "profile_nc_0_session_0.ntff").write_bytes(b"t")
    add_table(other, "Instruction_0")
    assert left_out_ntffs(capture_dir) == {"456"}
    add_table(capture_dir, "Instruction")
    assert left_out_ntffs(capture_dir) == {"123", "456"}
    later = capture_dir / "i-1_pid_1" / "789"
    later.mkdir()
    (later / "profile_nc_0_session_0.ntff").write_bytes(b"t")
    os.utime(later / "profile_nc_0_session_0.ntff", (2**32, 2**32))
    assert left_out_ntffs(capture_dir) == {"123", "456"}, "captured after the export"
    assert any(member.role == "parquet" for member in pack.plan(capture_dir).members)


def make_cache(tmp_path: Path) -> Path:
    cache = tmp_path / "cache"
    for name in ("mul-abc123/graph.neff", "other-999/graph.neff"):
        (cache / name).parent.mkdir(parents=True)
        (cache / name).write_bytes(b"E")
    return cache


def cached(plan: pack.Plan) -> set[str]:
    return {member.name for member in plan.members if "/neff_cache/" in member.name}


def test_graphs_that_the_trace_names_come_from_the_cache(capture_dir: Path, tmp_path: Path) -> None:
    cache = make_cache(tmp_path)
    assert cached(pack.plan(capture_dir)) == set()
    assert cached(pack.plan(capture_dir, neff_cache=cache)) == {"out/neff_cache/mul-abc123/graph.neff"}


def test_recorded_cache_is_used_when_graphs_are_missing(
    capture_dir: Path, tmp_path: Path, make_manifest: Callable[..., manifest.Manifest]
) -> None:
    directory = capture_dir / "i-1_pid_1" / "123"
    (directory / "neff_1_vnc_0.neff").unlink()
    manifest.write(make_manifest(options={"neff_cache_dir": str(make_cache(tmp_path))}), directory)
    assert cached(pack.plan(capture_dir)) == {"out/neff_cache/mul-abc123/graph.neff"}
    (directory / "trace.json").write_text(json.dumps({"traceEvents": [{"ph": "X"}]}))
    assert len(cached(pack.plan(capture_dir))) == 2, "no key in the trace: all of the cache"


def test_links_out_of_the_directory_are_not_followed(capture_dir: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text("secret")
    (capture_dir / "trace.json").symlink_to(secret)
    (capture_dir / "link").symlink_to(tmp_path)
    members = pack.plan(capture_dir, everything=True).members
    assert all("secret" not in member.name and not member.path.is_symlink() for member in members)
    assert len(members) == len(FILES) + 1


def test_a_failed_pack_leaves_nothing(capture_dir: Path, tmp_path: Path) -> None:
    plan = pack.plan(capture_dir)
    (capture_dir / "i-1_pid_1/123/ntrace.pb").unlink()
    with pytest.raises(CaptureError):
        pack.pack(plan, tmp_path / "p.tar.zst")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("ending", [".tar.gz", ".tar"])
def test_other_endings(capture_dir: Path, tmp_path: Path, ending: str) -> None:
    archive = tmp_path / f"p{ending}"
    pack.pack(pack.plan(capture_dir), archive)
    with tarfile.open(archive) as tar:
        assert "out/SHA256SUMS" in tar.getnames()


def run(*arguments: str | Path) -> tuple[int, str]:
    """The command, with errors raised as the entry point would show them."""
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    return done.exit_code, done.output + (str(done.exception) if done.exception else "")


def test_command_shows_the_size_first_and_what_is_left_out(capture_dir: Path, tmp_path: Path) -> None:
    code, text = run("pack", capture_dir, "-o", tmp_path / "p.tar.zst")
    assert code == 0, text
    assert text.index("before compression") < text.index("p.tar.zst:")
    assert "left out: 1 other files" in text and "next, on the other machine: tracekit analyze p.tar.zst" in text
    assert max(map(len, text.splitlines())) <= 110
    code, text = run("pack", capture_dir, "-o", tmp_path / "p.tar.zst")
    assert code != 0 and "exists already" in text


def test_dry_run_writes_nothing(capture_dir: Path, tmp_path: Path) -> None:
    assert run("pack", capture_dir, "-o", tmp_path / "p.tar.zst", "--dry-run")[0] == 0
    assert not (tmp_path / "p.tar.zst").exists()


def test_a_bad_capture_is_not_packed_without_force(capture_dir: Path, tmp_path: Path) -> None:
    (capture_dir / "i-1_pid_1/123/trace.json").write_bytes(b"")
    code, text = run("pack", capture_dir, "-o", tmp_path / "p.tar.zst")
    assert code != 0 and "errors in the capture" in text and "--force" in text
    assert run("pack", capture_dir, "-o", tmp_path / "p.tar.zst", "--force")[0] == 0


@pytest.mark.parametrize("name", ["p.zip", "p"])
def test_an_unknown_ending_is_a_clear_error(capture_dir: Path, tmp_path: Path, name: str) -> None:
    code, text = run("pack", capture_dir, "-o", tmp_path / name)
    assert code != 0 and "unknown kind of archive" in text
    assert not (tmp_path / name).exists() and not (tmp_path / f"{name}.part").exists()


def test_nothing_to_pack(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="nothing to pack"):
        pack.plan(tmp_path)
    with pytest.raises(CaptureError, match="no such directory"):
        pack.plan(tmp_path / "nowhere")
