"""What is found in directories, archives and single files, and which process it belongs to."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import random
import shutil
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit import tables
from tracekit.captures import captures
from tracekit.discover import Discovery, discover
from tracekit.errors import DiscoveryError
from tracekit.recognise import by_content, printable
from tracekit.sources.base import Artifact
from tracekit.unpack import Limits

SHARED = Path(__file__).resolve().parents[1] / ".." / "shared"
NEURON = SHARED / "neuron"
needs_shared = pytest.mark.skipif(not NEURON.is_dir(), reason="shared captures are not here")

EVENT = '{"ph": "X", "cat": "cpu_op", "name": "aten::mul", "pid": 77, "tid": 77, "ts": 1.000, "dur": 2.000}'
TRACE = f'{{"schemaVersion": 1, "traceEvents": [{EVENT}]}}'
SYSTEM = '{"trace_event": [{"name": "nc_exec_running", "timestamp": 1, "duration": 2, "process_id": "4242"}]}'
FETCH = '{"events": [{"event_type": "kbl_exec_pre", "phase": "start", "timestamp_ns": 5}], "data_version": 2}'
PROCESS = "i-0abc_pid_4242"
TIME = "1796052700000000000"


def write(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def find(*paths: Path, cache: Sequence[Path] = (), limits: Limits | None = None) -> Discovery:
    """Discover with a working directory beside the first input."""
    workdir = paths[0].parent / f"work-{random.randrange(10**12)}"
    workdir.mkdir()
    return discover(paths, workdir=workdir, neff_cache=cache, limits=limits or Limits())


def by_label(found: Discovery) -> dict[str, Artifact]:
    return {a.label: a for a in found.artifacts}


def codes(found: Discovery) -> set[str]:
    return set(found.notes["code"].to_list())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


# ---- what a file is -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        pytest.param("trace.json", TRACE, ("trace", "kineto"), id="kineto"),
        pytest.param("x.json.gz", gzip.compress(TRACE.encode()), ("trace", "kineto"), id="gzip"),
        pytest.param("x.json", gzip.compress(TRACE.encode()), ("trace", "kineto"), id="gzip-without-ending"),
        pytest.param("noending", TRACE, ("trace", "kineto"), id="no-ending"),
        pytest.param("x.pb", TRACE, ("trace", "kineto"), id="wrong-ending"),
        pytest.param("x.json", f"[{EVENT}]", ("trace", "kineto"), id="bare-array"),
        pytest.param("x.json", f"\ufeff  \r\n[\r\n{EVENT},", ("trace", "kineto"), id="bom-crlf-cut-array"),
        pytest.param("x.json", '{"schemaVersion": 1, "devicePr', ("trace", "kineto"), id="cut-in-the-preamble"),
        pytest.param(
            "x.json", f'{{"meta": {{"traceEvents": 3}}, "traceEvents": [{EVENT}]}}', ("trace", "kineto"), id="nested"
        ),
        pytest.param("trace.json", "{}", ("trace", "kineto"), id="empty-object-named-trace"),
        pytest.param("x.json", f"{EVENT}\n{EVENT}", ("trace", "kineto"), id="one-event-per-line"),
        pytest.param("system.json", SYSTEM, ("system", "system_json"), id="system"),
        pytest.param("trace.json", SYSTEM, ("system", "system_json"), id="system-named-trace"),
        pytest.param(
            "x.json", SYSTEM.replace("trace_event", "trace_events"), ("system", "system_json"), id="old-system"
        ),
        pytest.param(
            "x.json", '{"mem_usage": [], "trace_event": []}', ("system", "system_json"), id="system-memory-first"
        ),
        pytest.param(
            "x.json", SYSTEM.replace("[", "\0"), ("system", "system_json"), id="system-with-zeros-for-its-bracket"
        ),
        pytest.param("fetch.json", FETCH, ("system", "fetch_json"), id="fetch"),
        pytest.param(
            "x.json", '{"data_version": 2, "events": []}', ("system", "fetch_json"), id="fetch-without-events"
        ),
        pytest.param("ntrace.pb", b"\x0a\x00", ("system", "ntrace"), id="ntrace"),
        pytest.param("trace_info.pb", b"\x18\x01", ("system", None), id="trace-info"),
        pytest.param("cpu_util.pb", b"\x18\x01", ("host", None), id="cpu"),
        pytest.param("host_mem.pb", b"\x18\x01", ("host", None), id="memory"),
        pytest.param("SystemProfileEvents_3.parquet", b"PAR1", ("system", "explorer"), id="system-table"),
        pytest.param("DeviceProfileList.parquet", b"PAR1", ("system", "explorer"), id="device-list"),
        pytest.param("Instruction_0.parquet", b"PAR1", ("device_table", None), id="device-table"),
        pytest.param("memory_snapshot.pickle", b"\x80\x04", ("memory_snapshot", None), id="snapshot"),
        pytest.param("s.json", '{"segments": [], "device_traces": []}', ("memory_snapshot", None), id="snapshot-json"),
        pytest.param(
            "capture.json", '{"schema_version": 1, "tool": {}, "status": "complete"}', ("manifest", None), id="manifest"
        ),
        pytest.param("capture.json", TRACE, ("trace", "kineto"), id="trace-named-like-a-manifest"),
    ],
)
def test_file_is_recognised(root: Path, name: str, content: str | bytes, expected: tuple[str, str | None]) -> None:
    write(root, {name: content, "other/trace.json": TRACE + "\n"})
    found = by_label(find(root))[name]
    assert (found.role, found.format) == expected
    assert found.size_bytes == (root / name).stat().st_size


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        pytest.param("notes.txt", "hello", "starts with", id="text"),
        pytest.param("x.json", '{"a": 1, "b": [2]}', "top-level keys: a, b", id="other-json"),
        pytest.param("x.json", "[1, 2]", "array", id="other-array"),
        pytest.param("reader.py", 'phases = {\'ph\'}\nx = \'"ph": "X", "ts": 1\'', "starts with", id="source-code"),
        pytest.param("x.parquet", b"PAR1garbagePAR1", "Parquet", id="damaged-parquet"),
        pytest.param("model.pt", b"PK\x03\x04 checkpoint", ".pt file", id="checkpoint"),
        pytest.param("weights.pkl", b"\x80\x04cos\nsystem\n", "never loaded", id="pickle"),
        pytest.param("x.json", TRACE.encode("utf-16"), "UTF-16", id="utf-16"),
        pytest.param("x.json", TRACE.encode("utf-32"), "-f UTF-32", id="utf-32"),
        pytest.param("x.json", b"\0\0\xfe\xff" + TRACE.encode("utf-32-be"), "-f UTF-32", id="utf-32-be"),
        pytest.param("x.json.gz", b"\x1f\x8b\x08\x00rubbish", "damaged gzip", id="damaged-gzip"),
        pytest.param("empty", "", "0 bytes", id="empty"),
    ],
)
def test_what_is_not_read_is_listed_with_its_reason(root: Path, name: str, content: str | bytes, reason: str) -> None:
    write(root, {name: content, "sub/trace.json": TRACE})
    found = find(root)
    assert reason in dict(found.ignored)[name]
    assert by_label(found)[name].role == "other"
    assert by_label(found)[name].format is None


def test_system_table_under_another_name_is_known_by_its_columns(root: Path) -> None:
    frame = pl.DataFrame({"name": ["a"], "start_ts": [1], "trace_event_source": ["neuron_rt"]})
    frame.write_parquet(root / "part-000.parquet")
    pl.DataFrame({"x": [1]}).write_parquet(root / "other.parquet")
    found = find(root)
    assert by_label(found)["part-000.parquet"].format == "explorer"
    assert dict(found.ignored)["other.parquet"].startswith("Parquet, but")


def test_events_behind_a_long_preamble_are_found(root: Path) -> None:
    preamble = json.dumps({"metadata": {"words": ["x" * 50] * 20_000}})[:-1]
    write(root, {"a.json": f'{preamble}, "traceEvents": [{EVENT}]}}', "b.json": f'{preamble}, "trace_event": []}}'})
    (root / "c.json.gz").write_bytes(gzip.compress((root / "a.json").read_bytes()))
    found = by_label(find(root))
    assert [found[n].format for n in ("a.json", "b.json", "c.json.gz")] == ["kineto", "system_json", "kineto"]


@pytest.mark.parametrize(
    ("ending", "pack"), [("zst", zstandard.compress), ("bz2", bz2.compress), ("xz", lzma.compress)]
)
def test_trace_of_other_packing_is_unpacked_for_its_reader(root: Path, ending: str, pack: object) -> None:
    packed = pack(TRACE.encode())  # type: ignore[operator]
    write(root, {f"rank3.json.{ending}": packed})
    (artifact,) = find(root / f"rank3.json.{ending}").artifacts
    assert (artifact.format, artifact.session, artifact.rank) == ("kineto", "rank3", 3)
    assert artifact.label == f"rank3.json.{ending}"
    assert artifact.path.read_text() == TRACE


@settings(max_examples=200)
@given(st.binary(max_size=600), st.sampled_from(["trace.json", "x.json.gz", "x", "a.tar", "b.zip", "c.parquet"]))
def test_any_head_is_something(head: bytes, name: str) -> None:
    kind = by_content(head, name)
    assert kind.role in tables.ROLES
    assert kind.format or kind.reason or kind.problem or kind.is_archive or kind.role != "other"


@given(st.text(st.characters(), max_size=50))
def test_shown_text_is_printable_and_plain_text_is_kept(text: str) -> None:
    assert printable(text).isprintable()
    if text.isprintable():
        assert printable(text) == text


# ---- sessions -------------------------------------------------------------------------------------------------------


def test_layout_a_is_one_session_per_process(root: Path) -> None:
    files = {f"{PROCESS}/{TIME}/{n}": TRACE for n in ("trace.json",)} | {
        f"{PROCESS}/{TIME}/ntrace.pb": b"\x0a\x00",
        f"{PROCESS}/{TIME}/neff_11_vnc_0.neff": b"neff",
        f"{PROCESS}/{TIME}/profile_nc_0_session_0.ntff": b"ntff",
        f"i-0abc_pid_4243/{TIME}/trace.json": TRACE,
    }
    found = find(write(root, files))
    assert [(s.session, s.path, s.instance_id, s.process_id) for s in found.sessions] == [
        (PROCESS, f"{PROCESS}/{TIME}", "i-0abc", 4242),
        ("i-0abc_pid_4243", f"i-0abc_pid_4243/{TIME}", "i-0abc", 4243),
    ]
    assert {a.session for a in found.artifacts if "4242" in a.label} == {PROCESS}
    assert found.notes.is_empty()


def test_several_captures_of_one_process_are_several_sessions(root: Path) -> None:
    files = {f"{PROCESS}/{time}/trace.json": TRACE for time in ("100000", "200000")} | {f"{PROCESS}/neff_1.neff": b"n"}
    found = find(write(root, files))
    assert [s.session for s in found.sessions] == [f"{PROCESS}/100000", f"{PROCESS}/200000"]
    assert by_label(found)[f"{PROCESS}/neff_1.neff"].session is None


def test_layout_b_has_no_time_level(root: Path) -> None:
    files: dict[str, str | bytes] = {
        f"out/{PROCESS}/neff_5219.neff": b"n",
        f"out/{PROCESS}/5219_instid_0_vnc_0.ntff": b"n",
        f"out/{PROCESS}/ntrace.pb": b"\x0a\x00",
    }
    found = find(write(root, files))
    assert [(s.session, s.path) for s in found.sessions] == [(PROCESS, f"out/{PROCESS}")]
    assert {a.pair_id for a in found.artifacts if a.role != "system"} == {f"{PROCESS}:5219"}


@pytest.mark.parametrize("given_path", [PROCESS, f"{PROCESS}/{TIME}", f"{PROCESS}/{TIME}/trace.json"])
def test_process_is_known_from_inside_its_directory(root: Path, given_path: str) -> None:
    write(root, {f"{PROCESS}/{TIME}/trace.json": TRACE})
    found = find(root / given_path)
    assert [(s.session, s.instance_id, s.process_id) for s in found.sessions] == [(PROCESS, "i-0abc", 4242)]
    assert found.name == PROCESS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param(
            "trn-1_4711.1718000000000.pt.trace.json",
            ("trn-1_4711.1718000000000", 4711, None, "trn-1"),
            id="tensorboard",
        ),
        pytest.param(
            "trn-1_4711.1718000000000.pt.trace.json.gz", ("trn-1_4711.1718000000000", 4711, None, "trn-1"), id="tb-gz"
        ),
        pytest.param("rank12_step.pt.trace.json", ("rank12_step", 77, 12, None), id="rank"),
        pytest.param("iteration_5_rank-3.json.gz", ("iteration_5_rank-3", 77, 3, None), id="rank-dash"),
        pytest.param("neuron_framework_trace_rank_4.json", ("neuron_framework_trace_rank_4", 77, 4, None), id="neuron"),
        pytest.param("frank5.json", ("frank5", 77, None, None), id="not-a-rank"),
        pytest.param("my trace.json", ("my trace", 77, None, None), id="loose"),
    ],
)
def test_loose_trace_is_named_by_its_file(root: Path, name: str, expected: tuple[object, ...]) -> None:
    content = TRACE.encode()
    write(root, {name: gzip.compress(content) if name.endswith("gz") else content})
    for path in (root, root / name):
        (session,) = find(path).sessions
        assert (session.session, session.process_id, session.rank, session.host_name) == expected
        assert session.path == name


def test_names_that_collide_get_their_directories(root: Path) -> None:
    found = find(
        write(root, {"a/rank_0/trace.json": TRACE, "a/rank_1/trace.json": TRACE, "b/rank_1/trace.json": TRACE + " "})
    )
    assert [(s.session, s.rank) for s in found.sessions] == [
        ("a/rank_1/trace", 1),
        ("b/rank_1/trace", 1),
        ("rank_0/trace", 0),
    ]


def test_names_that_collide_in_one_directory_are_numbered(root: Path) -> None:
    found = find(write(root, {"a.json": TRACE, "a.pt.trace.json": TRACE + " ", "a.trace": TRACE + "  "}))
    assert [s.session for s in found.sessions] == ["a", "a~2", "a~3"]


def test_packed_copy_beside_the_trace_is_not_read_twice(root: Path) -> None:
    found = find(write(root, {"trace.json": TRACE, "trace.json.gz": gzip.compress(TRACE.encode())}))
    assert [a.format for a in found.artifacts] == ["kineto", None]
    assert codes(found) == {"duplicate_file"}
    write(root, {"trace.json": ""})
    again = find(root)
    assert [a.format for a in again.artifacts] == [None, "kineto"]


@pytest.mark.parametrize(
    ("files", "read"),
    [
        pytest.param(("trace.json", "trace_copy.json"), ["trace.json"], id="another-name"),
        pytest.param((f"old/{PROCESS}/{TIME}/trace.json", "a.json"), [f"old/{PROCESS}/{TIME}/trace.json"], id="loose"),
        pytest.param(("a/trace.json", "b/trace.json"), ["a/trace.json"], id="another-directory"),
        pytest.param(("rank0.json", "rank1.json"), ["rank0.json", "rank1.json"], id="ranks"),
        pytest.param(("run_pid_1.json", "run_pid_2.json"), ["run_pid_1.json", "run_pid_2.json"], id="processes"),
    ],
)
def test_copy_of_a_file_is_not_read_twice(root: Path, files: tuple[str, str], read: list[str]) -> None:
    found = find(write(root, dict.fromkeys(files, TRACE)))
    assert [a.label for a in found.artifacts if a.format] == read
    assert ("duplicate_file" in codes(found)) == (len(read) == 1)
    assert len(found.sessions) == len(read)


@pytest.mark.parametrize("names", [("a.json", "b.json"), ("explorer/a.json", "explorer2/a.json")])
def test_copy_of_a_system_trace_is_not_read_twice(root: Path, names: tuple[str, str]) -> None:
    found = find(
        write(root, {**dict.fromkeys(names, SYSTEM), "c.json": SYSTEM.replace('"timestamp": 1', '"timestamp": 3')})
    )
    assert [a.format for a in found.artifacts if a.label in names] == ["system_json", None]
    assert by_label(found)["c.json"].format == "system_json"


def test_second_trace_of_a_process_is_a_session_of_its_own(root: Path) -> None:
    found = find(write(root, {f"{PROCESS}/{TIME}/trace.json": TRACE, f"{PROCESS}/{TIME}/late.json": TRACE + " "}))
    assert [s.session for s in found.sessions] == [PROCESS, f"{PROCESS}/late"]
    assert by_label(found)[f"{PROCESS}/{TIME}/trace.json"].session == PROCESS


def test_system_files_beside_a_loose_trace_belong_to_it(root: Path) -> None:
    found = by_label(
        find(
            write(root, {"run.json": TRACE, "ntrace.pb": b"\x0a\x00", "fetch_pid_77.json": FETCH, "neff_1.neff": b"n"})
        )
    )
    assert {found[n].session for n in ("ntrace.pb", "fetch_pid_77.json", "neff_1.neff")} == {"run"}


def test_file_of_another_process_does_not_belong_to_the_trace_beside_it(root: Path) -> None:
    artifact = by_label(find(write(root, {"run.json": TRACE, "fetch_pid_78.json": FETCH})))["fetch_pid_78.json"]
    assert (artifact.session, artifact.process_id) == (None, 78)


def test_manifest_gives_its_facts_and_notes_to_the_session(root: Path) -> None:
    manifest = {
        "schema_version": 1,
        "tool": {"name": "tracekit-capture"},
        "status": "incomplete",
        "reason": "stopped early",
        "host": {"instance_type": "trn2.48xlarge", "instance_id": "other"},
        "process": {"pid": 1, "rank": 3, "world_size": 8},
        "versions": {"torch": "2.9"},
        "labels": {"commit": "abc"},
        "notes": [{"severity": "note", "code": "dropped_option", "message": "with_flops was dropped", "hint": ""}],
    }
    folder = f"{PROCESS}/{TIME}"
    found = find(write(root, {f"{folder}/trace.json": TRACE, f"{folder}/capture.json": json.dumps(manifest)}))
    (session,) = found.sessions
    assert (session.instance_id, session.process_id) == ("i-0abc", 4242), "the directory's word counts"
    assert (session.rank, session.world_size, session.instance_type) == (3, 8, "trn2.48xlarge")
    assert json.loads(session.versions_json or "") == {"torch": "2.9"}
    assert json.loads(session.labels_json or "") == {"commit": "abc"}
    assert found.notes.select("session", "severity", "code").rows() == [
        (PROCESS, "warning", "capture_incomplete"),
        (PROCESS, "info", "dropped_option"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        '{"schema_version": 99, "tool": 5, "status": [], "host": "x"}',
        '{"schema_version": 1, "tool": {}, "status": ',
        "0",
    ],
)
def test_odd_manifest_never_hurts_the_trace(root: Path, text: str) -> None:
    found = find(write(root, {f"{PROCESS}/{TIME}/trace.json": TRACE, f"{PROCESS}/{TIME}/capture.json": text}))
    assert [s.session for s in found.sessions] == [PROCESS]
    assert by_label(found)[f"{PROCESS}/{TIME}/trace.json"].format == "kineto"


def test_one_capture_as_directory_and_tarball_is_read_once(root: Path) -> None:
    write(root, {f"{PROCESS}/{TIME}/trace.json": TRACE, f"{PROCESS}/{TIME}/neff_1.neff": b"n"})
    with tarfile.open(root / "backup.tar.gz", "w:gz") as tar:
        tar.add(root / PROCESS, PROCESS)
    found = find(root)
    assert [s.session for s in found.sessions] == [PROCESS]
    assert [a.label for a in found.artifacts if a.format] == [f"{PROCESS}/{TIME}/trace.json"]
    assert "duplicate_file" in codes(found)


def test_different_captures_with_one_name_are_kept_apart(root: Path) -> None:
    found = find(
        write(root, {f"a/{PROCESS}/{TIME}/trace.json": TRACE, f"b/{PROCESS}/{TIME}/trace.json": TRACE + "   "})
    )
    assert [s.session for s in found.sessions] == [f"a/{PROCESS}/{PROCESS}", f"b/{PROCESS}/{PROCESS}"]


# ---- artifacts ------------------------------------------------------------------------------------------------------


def test_only_binaries_is_a_profile_that_says_how_to_get_more(root: Path) -> None:
    found = find(write(root, {"file.neff": b"n", "profile_rank_1.ntff": b"n"}))
    assert [(a.role, a.rank, a.pair_id) for a in found.artifacts] == [("neff", None, ".:file"), ("ntff", 1, ".:file")]
    assert codes(found) == {"artifacts_only"}
    assert "torch.profiler" in (found.notes["hint"][0] or "")


def test_neff_cache_fills_in_what_the_capture_lacks(root: Path, tmp_path: Path) -> None:
    model_hash = "14382885777943380728"
    write(root, {f"{PROCESS}/{model_hash}_instid_0_vnc_0.ntff": b"n", f"{PROCESS}/ntrace.pb": b"\x0a\x00"})
    cache = write(
        tmp_path / "cache", {f"MODULE_{model_hash}+ab/model.neff": b"neff", "MODULE_1+ab/model.neff": b"neff"}
    )
    found = find(root, cache=[cache, tmp_path / "none"])
    neff = by_label(found)[f"neff-cache/cache/MODULE_{model_hash}+ab/model.neff"]
    assert (neff.model_hash, neff.size_bytes, neff.pair_id) == (model_hash, 4, f"{PROCESS}:{model_hash}")
    assert codes(found) == {"neff_from_cache", "no_neff_cache"}
    assert codes(find(root)) == {"no_neff"}


def test_thousands_of_neffs_are_never_opened(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files: dict[str, str | bytes] = {f"{PROCESS}/{TIME}/neff_{n}_vnc_0.neff": b"n" for n in range(2_000)}
    write(root, files | {f"{PROCESS}/{TIME}/profile_nc_0_session_0.ntff": b"n", f"{PROCESS}/{TIME}/trace.json": TRACE})
    opened: list[str] = []
    real_open = Path.open

    def spy(self: Path, *args: object, **options: object) -> object:
        opened.append(self.name)
        return real_open(self, *args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", spy)
    found = find(root)
    assert opened == ["trace.json"]
    assert len({a.pair_id for a in found.artifacts if a.role == "neff"}) == 1


# ---- archives -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["tar", "tar.gz", "tar.zst", "zip", "tgz", "download"])
def test_archive_is_like_the_directory_in_it(root: Path, tmp_path: Path, ending: str) -> None:
    write(
        root,
        {
            f"{PROCESS}/{TIME}/trace.json": TRACE,
            f"{PROCESS}/{TIME}/ntrace.pb": b"\x0a\x00",
            f"{PROCESS}/{TIME}/neff_1_vnc_0.neff": b"n" * 5000,
            f"{PROCESS}/{TIME}/profile_nc_0_session_0.ntff": b"",
            "rank7.json.gz": gzip.compress(TRACE.encode()),
            "notes.txt": "hello",
        },
    )
    archive = tmp_path / f"run.{ending}"
    out = io.BytesIO()
    if ending == "zip":
        with zipfile.ZipFile(out, "w") as packed:
            for path in sorted(root.rglob("*")):
                packed.write(path, path.relative_to(root).as_posix())
    else:
        with tarfile.open(fileobj=out, mode="w") as tar:
            tar.add(root, ".")
    packers = {"tar.gz": gzip.compress, "tgz": gzip.compress, "tar.zst": zstandard.compress}
    archive.write_bytes(packers.get(ending, bytes)(out.getvalue()))
    plain, packed_found = find(root), find(archive)

    def facts(found: Discovery) -> list[tuple[object, ...]]:
        return [
            (a.label, a.role, a.format, a.session, a.process_id, a.rank, a.size_bytes, a.pair_id, a.problem)
            for a in found.artifacts
        ]

    assert facts(packed_found) == facts(plain)
    assert packed_found.sessions == plain.sessions
    assert packed_found.ignored == plain.ignored
    assert by_label(packed_found)[f"{PROCESS}/{TIME}/trace.json"].path.read_text() == TRACE
    assert by_label(packed_found)[f"{PROCESS}/{TIME}/neff_1_vnc_0.neff"].path == archive, "listed, not unpacked"
    assert packed_found.name == ("run.download" if ending == "download" else "run")


def test_archives_in_a_directory_are_opened_but_not_archives_in_archives(root: Path) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("deep.json", TRACE)
    with zipfile.ZipFile(root / "outer.zip", "w") as archive:
        archive.writestr("rank0.json", TRACE)
        archive.writestr("inner.zip", inner.getvalue())
    found = find(root)
    assert [a.label for a in found.artifacts] == ["outer.zip/rank0.json"]
    assert codes(found) == {"nested_archive"}
    assert "outer.zip/inner.zip" in dict(found.ignored)


def test_device_table_in_an_archive_says_that_it_cannot_be_queried(root: Path) -> None:
    with zipfile.ZipFile(root / "a.zip", "w") as archive:
        archive.writestr("trace.json", TRACE)
        archive.writestr("Instruction_0.parquet", b"PAR1")
    table = by_label(find(root / "a.zip"))["Instruction_0.parquet"]
    assert table.role == "device_table"
    assert "unpack it" in (table.problem or "")


def test_unsafe_archive_is_refused_alone_but_only_noted_among_others(root: Path) -> None:
    with zipfile.ZipFile(root / "evil.zip", "w") as archive:
        archive.writestr("../../evil.json", TRACE)
    with pytest.raises(DiscoveryError, match="unsafe"):
        find(root / "evil.zip")
    write(root, {"trace.json": TRACE})
    found = find(root)
    assert [a.label for a in found.artifacts] == ["trace.json"]
    assert codes(found) == {"archive_refused"}
    assert not list(root.parent.glob("**/evil.json"))


def test_cut_archive_gives_its_start_and_a_note(root: Path) -> None:
    rng = random.Random(1)
    noise = json.dumps([rng.random() for _ in range(20_000)])
    with tarfile.open(root / "a.tar.gz", "w:gz") as tar:
        for name, text in (("rank0.json", TRACE), ("rank1.json", TRACE[:-2] + "," + noise[1:] + "}")):
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    whole = (root / "a.tar.gz").read_bytes()
    (root / "a.tar.gz").write_bytes(whole[: len(whole) // 2])
    found = find(root / "a.tar.gz")
    assert [a.format for a in found.artifacts] == ["kineto", "kineto"]
    assert "cut_archive" in codes(found)
    assert found.artifacts[1].problem


# ---- hostile and broken surroundings --------------------------------------------------------------------------------


def test_hostile_names_are_shown_escaped_and_still_read(root: Path) -> None:
    names = [
        b"new\nline.json",
        b"\x1b[31mred.json",
        b"quo'te\".json",
        b"bad\xff\xfeutf8.json",
        "right\u202eleft.json".encode(),
    ]
    for number, name in enumerate(names):
        path = Path(os.fsdecode(os.path.join(os.fsencode(root), name)))  # noqa: PTH118
        path.write_text(TRACE + " " * number)
    found = find(root)
    assert len([a for a in found.artifacts if a.format == "kineto"]) == 5
    for text in [a.label for a in found.artifacts] + [s.session for s in found.sessions]:
        assert text.isprintable()
        text.encode()
    assert "new\\x0aline.json" in by_label(found)
    assert "bad\\xff\\xfeutf8.json" in by_label(found)


def test_links_never_loop_and_never_count_twice(root: Path, tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", {"far.json": TRACE, "dir/x.json": TRACE})
    write(root, {"a/trace.json": TRACE})
    (root / "loop").symlink_to(root)
    (root / "self").symlink_to("self")
    (root / "again.json").symlink_to(root / "a" / "trace.json")
    (root / "far.json").symlink_to(outside / "far.json")
    (root / "fardir").symlink_to(outside)
    (root / "nowhere.json").symlink_to(tmp_path / "none")
    found = find(root)
    assert [a.label for a in found.artifacts] == ["a/trace.json", "far.json"]
    reasons = dict(found.ignored)
    assert set(reasons) == {"again.json", "fardir", "loop", "nowhere.json", "self"}
    assert "name that directory" in reasons["fardir"]
    link = tmp_path / "input-link"
    link.symlink_to(root)
    assert [a.label for a in find(link).artifacts] == ["a/trace.json", "far.json"]


def test_pipe_is_not_opened(root: Path) -> None:
    os.mkfifo(root / "trace.json")
    write(root, {"b.json": TRACE})
    assert dict(find(root).ignored) == {"trace.json": "not a plain file"}
    with pytest.raises(DiscoveryError, match="neither a file nor a directory"):
        find(root / "trace.json")


def test_unreadable_parts_are_noted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, {"a.json": TRACE, "locked/x.json": TRACE, "b.json": TRACE})
    real_scan, real_open = os.scandir, Path.open

    def scan(path: object) -> object:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return real_scan(path)  # type: ignore[call-overload]

    def opened(self: Path, *args: object, **options: object) -> object:
        if self.name == "b.json":
            raise PermissionError(13, "Permission denied")
        return real_open(self, *args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "scandir", scan)
    monkeypatch.setattr(Path, "open", opened)
    found = find(root)
    assert dict(found.ignored) == {
        "locked": "cannot be read: Permission denied",
        "b.json": "cannot be read: Permission denied",
    }
    assert codes(found) == {"unreadable_directory"}
    with pytest.raises(DiscoveryError, match="Permission denied"):
        find(root / "b.json")
    with pytest.raises(DiscoveryError, match="Permission denied"):
        find(root / "locked")


def test_stored_profiles_and_hidden_directories_are_passed_over(root: Path) -> None:
    found = find(write(root, {"t.json": TRACE, "runs/profile=x/manifest.json": "{}", ".git/t.json": TRACE}))
    assert [a.label for a in found.artifacts] == ["t.json"]
    assert dict(found.ignored) == {"runs/profile=x": "a profile that tracekit stored", ".git": "hidden directory"}


@pytest.mark.parametrize(
    ("files", "given_path", "message"),
    [
        pytest.param({}, "none", "no such file", id="missing"),
        pytest.param({}, ".", "empty", id="empty-directory"),
        pytest.param({"a.txt": "hello"}, "a.txt", "not recognised: starts with 'hello'", id="text-file"),
        pytest.param({"a.txt": "hello", "b.md": "x"}, ".", "no trace among 2 files", id="no-trace"),
        pytest.param({"trace.json": ""}, "trace.json", "0 bytes", id="empty-trace"),
        pytest.param({"trace.json": ""}, ".", "trace.json: 0 bytes", id="empty-trace-in-directory"),
        pytest.param({"trace.json": "not json"}, "trace.json", "not JSON", id="not-json"),
        pytest.param({"x.json": '{"a": 1}'}, "x.json", "top-level keys: a", id="other-json"),
        pytest.param(
            {"capture.json": '{"schema_version": 1, "tool": {}, "status": "running"}'},
            ".",
            "found only manifest",
            id="killed",
        ),
        pytest.param({"a.zip": b"PK\x05\x06" + bytes(18)}, "a.zip", "empty", id="empty-zip"),
        pytest.param({"a.tar": b"junk" * 500}, "a.tar", "not a readable archive", id="broken-tar"),
    ],
)
def test_nothing_useful_is_one_clear_line(
    root: Path, files: dict[str, str | bytes], given_path: str, message: str
) -> None:
    write(root, files)
    with pytest.raises(DiscoveryError, match=message) as caught:
        find(root / given_path)
    assert "\n" not in str(caught.value)
    assert caught.value.hint or "no such" in message


def test_several_inputs_are_one_profile(root: Path) -> None:
    write(root, {"a/rank0.json": TRACE, "b/rank1.json": TRACE, "b/c/rank2.json": TRACE})
    found = find(root / "a" / "rank0.json", root / "b", root / "b" / "c", root / "a" / "rank0.json")
    assert found.root == root
    assert found.name == "in"
    assert [a.label for a in found.artifacts] == ["a/rank0.json", "b/c/rank2.json", "b/rank1.json"]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                f"{PROCESS}/{TIME}/trace.json",
                f"{PROCESS}/{TIME}/ntrace.pb",
                f"{PROCESS}/2000/trace.json",
                f"x/{PROCESS}/trace.json",
                "rank0.json",
                "y/rank0.json",
                "rank0.json.gz",
                "fetch_pid_4242.json",
                f"{PROCESS}/{TIME}/neff_1.neff",
                f"{PROCESS}/1_vnc_0.ntff",
                "capture.json",
                f"{PROCESS}/capture.json",
            ]
        ),
        min_size=1,
        unique=True,
    )
)
def test_every_file_is_accounted_for_and_every_session_is_known(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    root = tmp_path_factory.mktemp("d") / "in"
    content = {"gz": gzip.compress(TRACE.encode()), "pb": b"\x0a\x00", "neff": b"n", "ntff": b"n"}
    manifest = '{"schema_version": 1, "tool": {}, "status": "complete"}'
    for name in names:
        special = manifest if "capture" in name else FETCH if "fetch" in name else TRACE
        write(root, {name: content.get(name.rsplit(".")[-1], special)})
    try:
        found, again = find(root), find(root)
    except DiscoveryError:
        assert all("capture.json" in name for name in names)
        return
    assert sorted(a.label for a in found.artifacts) == sorted(names)
    known = {s.session for s in found.sessions}
    assert len(known) == len(found.sessions)
    assert {a.session for a in found.artifacts} - {None} <= known
    readable = [a.session for a in found.artifacts if a.format == "kineto"]
    assert len(readable) == len(set(readable)), "two traces in one session"
    assert None not in readable
    assert (found.sessions, found.ignored) == (again.sessions, again.ignored)
    assert found.notes.equals(again.notes)
    shutil.rmtree(root.parent)


# ---- shared captures ------------------------------------------------------------------------------------------------


@needs_shared
@pytest.mark.parametrize("name", ["rms_naive", "rms_fused", "rms_compiled"])
def test_shared_capture_is_one_session(name: str, tmp_path: Path) -> None:
    found = discover([NEURON / name], workdir=tmp_path)
    assert [s.session for s in found.sessions] == ["i-0123456789abcdef0_pid_4242"]
    formats = {a.format: a.session for a in found.artifacts if a.format}
    assert set(formats) == {"kineto", "ntrace", "fetch_json", "system_json", "explorer"}
    assert {formats[f] for f in ("kineto", "ntrace", "fetch_json")} == {"i-0123456789abcdef0_pid_4242"}
    assert {formats["explorer"], formats["system_json"]} == {None}
    assert dict(found.ignored).keys() == {"truth.json"}
    assert all(a.pair_id and not a.problem for a in found.artifacts if a.role in ("neff", "ntff"))


@needs_shared
def test_shared_tree_splits_into_its_captures() -> None:
    assert [c.name for c in captures(NEURON)] == ["rms_compiled", "rms_fused", "rms_naive", "train_2proc"]


@needs_shared
def test_every_corpus_file_is_a_trace(tmp_path: Path) -> None:
    expected = json.loads((SHARED / "corpus" / "expected.json").read_text())
    found = discover([SHARED / "corpus"], workdir=tmp_path)
    assert len([a for a in found.artifacts if a.format == "kineto"]) == len(found.sessions) == 22
    assert {a.label for a in found.artifacts if a.format} == {key.removeprefix("./") for key in expected}
