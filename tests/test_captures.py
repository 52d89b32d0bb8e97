"""A tree of many captures is split by the rule that ``captures`` documents."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_discover import FETCH, PROCESS, SYSTEM, TIME, TRACE, write
from tracekit.captures import captures
from tracekit.discover import discover
from tracekit.errors import DiscoveryError


def split(root: Path) -> dict[str, list[str]]:
    """Name → inputs relative to the root, of every capture."""
    return {c.name: [p.relative_to(root).as_posix() for p in c.paths] for c in captures(root)}


def test_neuron_directory_with_its_processes_is_one(tmp_path: Path) -> None:
    write(tmp_path, {f"run{n}/i-1_pid_{p}/{TIME}/trace.json": TRACE for n in (1, 2) for p in (5, 6)})
    assert split(tmp_path) == {"run1": ["run1"], "run2": ["run2"]}
    assert split(tmp_path / "run1") == {"run1": ["."]}
    assert split(tmp_path / "run1" / "i-1_pid_5") == {"i-1_pid_5": ["."]}
    assert split(tmp_path / "run1" / "i-1_pid_5" / TIME) == {TIME: ["."]}


def test_system_traces_join_the_only_capture_beside_them(tmp_path: Path) -> None:
    for run in ("a", "b"):
        write(
            tmp_path / run,
            {
                f"capture/{PROCESS}/{TIME}/trace.json": TRACE,
                "explorer/profiles/global/N@latest/SystemProfileEvents.parquet": b"PAR1",
                "system_profile.json": SYSTEM,
                "fetch_pid_4242.json": FETCH,
            },
        )
    assert split(tmp_path) == {"a": ["a"], "b": ["b"]}


def test_system_traces_among_several_captures_are_their_own(tmp_path: Path) -> None:
    write(tmp_path, {f"{n}/{PROCESS}/{TIME}/trace.json": TRACE for n in "ab"} | {"system.json": SYSTEM})
    assert split(tmp_path) == {"a": ["a"], "b": ["b"], tmp_path.name: ["system.json"]}


def test_explorer_output_alone_is_one_capture_per_profile(tmp_path: Path) -> None:
    write(
        tmp_path,
        {f"P/profiles/global/{n}@latest/SystemProfileEvents_{i}.parquet": b"PAR1" for n in "ab" for i in (0, 1)},
    )
    assert {name: len(paths) for name, paths in split(tmp_path).items()} == {
        "P/profiles/global/a@latest": 2,
        "P/profiles/global/b@latest": 2,
    }


def test_ranks_of_one_prefix_are_one_and_other_traces_are_each_one(tmp_path: Path) -> None:
    names = [
        "step5_rank0.json",
        "step5_rank1.json",
        "step9_rank0.json",
        "step9_rank1.json",
        "alone.json",
        "h_12.34.pt.trace.json",
    ]
    write(tmp_path, dict.fromkeys(names, TRACE))
    assert split(tmp_path) == {
        "alone": ["alone.json"],
        "h_12.34": ["h_12.34.pt.trace.json"],
        "step5_rank": ["step5_rank0.json", "step5_rank1.json"],
        "step9_rank": ["step9_rank0.json", "step9_rank1.json"],
    }


def test_rank_directories_are_one(tmp_path: Path) -> None:
    write(tmp_path, {f"job{j}/rank_{r}/trace.json": TRACE for j in (1, 2) for r in (0, 1, 2)})
    assert split(tmp_path) == {
        "job1/rank": ["job1/rank_0", "job1/rank_1", "job1/rank_2"],
        "job2/rank": ["job2/rank_0", "job2/rank_1", "job2/rank_2"],
    }


def test_each_archive_is_one(tmp_path: Path) -> None:
    for name in ("a.zip", "sub/b.zip"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("trace.json", TRACE)
    write(tmp_path, {"system.json": SYSTEM})
    assert split(tmp_path) == {"a": ["a.zip"], "sub/b": ["sub/b.zip"], tmp_path.name: ["system.json"]}


def test_directory_of_a_whole_capture_under_another_name_is_one(tmp_path: Path) -> None:
    write(tmp_path, {f"{n}/{f}": c for n in "xy" for f, c in {"trace.json": TRACE, "ntrace.pb": b"\x0a\x00"}.items()})
    write(tmp_path, {"x/neff_1.neff": b"n", "x/sub/late.json": TRACE})
    assert split(tmp_path) == {"x": ["x"], "y": ["y"]}


def test_binaries_without_a_trace_are_one_per_directory(tmp_path: Path) -> None:
    write(tmp_path, {f"{n}/{f}": b"n" for n in "xy" for f in ("file.neff", "profile.ntff")})
    assert split(tmp_path) == {n: [f"{n}/file.neff", f"{n}/profile.ntff"] for n in "xy"}


def test_packed_copy_is_not_a_second_capture(tmp_path: Path) -> None:
    write(tmp_path, {"a.json": TRACE, "a.json.gz": TRACE})
    assert split(tmp_path) == {"a": ["a.json", "a.json.gz"]}


def test_what_is_no_capture_gives_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"readme.txt": "x", "a/b.py": "x", ".hidden/trace.json": TRACE, "arch/profile=1/trace.json": TRACE})
    (tmp_path / "loop").symlink_to(tmp_path)
    assert split(tmp_path) == {}
    with pytest.raises(DiscoveryError, match="no such"):
        list(captures(tmp_path / "none"))


def test_single_file_is_one(tmp_path: Path) -> None:
    write(tmp_path, {"a.json": TRACE})
    assert [(c.name, c.paths) for c in captures(tmp_path / "a.json")] == [("a", (tmp_path / "a.json",))]


def test_captures_come_while_the_tree_is_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {f"run{n:03d}/{PROCESS}/{TIME}/trace.json": TRACE for n in range(300)})
    looked = 0
    from tracekit import captures as module

    real = module._look

    def count(path: Path, root: Path) -> object:
        nonlocal looked
        looked += 1
        return real(path, root)

    monkeypatch.setattr(module, "_look", count)
    stream: Iterator[object] = captures(tmp_path)
    next(stream)
    assert looked <= 4, "the first capture waits for two directories at most"
    assert len(list(stream)) == 299
    assert looked == 301, "directories of a capture are not walked"


def test_deep_tree_is_no_trouble(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d"] * 300)
    deep.mkdir(parents=True)
    write(tmp_path, {"a.json": TRACE})
    assert list(split(tmp_path)) == ["a"]


def test_every_readable_file_is_in_exactly_one_capture(tmp_path: Path) -> None:
    write(
        tmp_path / "in",
        {
            f"runs/1/{PROCESS}/{TIME}/trace.json": TRACE,
            f"runs/2/{PROCESS}/trace.json": TRACE + " ",
            "runs/2/explorer/SystemProfileEvents.parquet": b"PAR1",
            "loose/rank0.json": TRACE + "  ",
            "loose/rank1.json": TRACE + "  ",
            "loose/x.json": TRACE + "    ",
            "sys/system.json": SYSTEM,
        },
    )
    whole = discover([tmp_path / "in"], workdir=tmp_path)
    parts = [
        a.path for c in captures(tmp_path / "in") for a in discover(c.paths, workdir=tmp_path).artifacts if a.format
    ]
    assert sorted(parts) == sorted(a.path for a in whole.artifacts if a.format)
