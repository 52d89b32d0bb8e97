from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sources.memory_sink import MemorySink, artifact
from tracekit.errors import SourceError
from tracekit.sources import _json_chunks, system_json

T0 = 1_796_052_700_000_000_000
SESSION = "i-1_pid_7"


def event(name: str = "kbl_exec_pre", at: int = 0, length: int = 10, **fields: object) -> dict[str, object]:
    own = {
        "name": name,
        "timestamp": T0 + at,
        "duration": length,
        "group": "nrt-nc-002",
        "instance_id": "i-1",
        "process_id": "7",
        "thread_id": 70,
        "nc_idx": 2,
        "lnc_idx": "2",
    }
    return own | fields


def write(directory: Path, document: object, **layout: object) -> Path:
    path = directory / "system_profile.json"
    path.write_text(json.dumps(document, **layout))
    return path


def read(path: Path, **options: object) -> MemorySink:
    sink = MemorySink("system_json", **options)
    system_json.read(artifact(path), sink)
    return sink


@pytest.mark.parametrize("key", ["trace_event", "trace_events"])
def test_both_spellings_of_the_list_are_read(tmp_path, key):
    events = read(write(tmp_path, {key: [event(at=1)]})).events_frame()
    assert events.select("session", "process_id", "category", "start_ns", "end_ns", "attrs_json").rows() == [
        (SESSION, 7, "nrt-nc-002", T0 + 1, T0 + 11, None)
    ]


def test_numbers_may_be_text(tmp_path):
    fields = {
        "exec_id": "3",
        "device_core_idx": "5",
        "size": "4096",
        "tensor_id": "17",
        "nrta_seq_id": "281474976710685",
    }
    texts = event("nrt_tensor_write", thread_id="70", nc_idx="2", **fields)
    texts |= {"timestamp": str(T0), "duration": "25"}
    row = read(write(tmp_path, {"trace_event": [texts]})).events_frame().row(0, named=True)
    assert (row["start_ns"], row["end_ns"], row["process_id"], row["thread_id"]) == (T0, T0 + 25, 7, 70)
    assert (row["core_index"], row["physical_core"], row["execution_id"]) == (2, 5, 3)
    assert (row["sequence_id"], row["moved_bytes"], row["kind"]) == (281474976710685, 4096, "copy_in")
    assert row["attrs_json"] == '{"tensor_id":17}'


def test_a_different_second_spelling_of_the_core_stays_an_attribute(tmp_path):
    row = read(write(tmp_path, {"trace_event": [event(lnc_idx="9")]})).events_frame().row(0, named=True)
    assert (row["core_index"], row["attrs_json"]) == (2, '{"lnc_idx":9}')


@pytest.mark.parametrize(
    "framework",
    [
        pytest.param({"type": 99999}, id="type"),
        pytest.param({"type": "99999"}, id="type_as_text"),
        pytest.param({"group": "framework-70"}, id="group"),
        pytest.param({"name": "aten::mul [trace.json]"}, id="suffix"),
    ],
)
def test_framework_rows_are_told_apart(tmp_path, framework):
    path = write(tmp_path, {"trace_event": [event("aten::mul") | framework, event("nc_exec_running", 1)]})
    assert read(path).events_frame().select("name", "lane", "kind").rows() == [
        ("aten::mul", "dispatch", "op"),
        ("nc_exec_running", "hardware", "execution"),
    ]
    traced = read(path, unwanted=frozenset({(SESSION, "dispatch"), (SESSION, "stream")}))
    assert traced.events_frame()["name"].to_list() == ["nc_exec_running"]
    assert traced.note_codes() == ["framework_repeats"]


def test_odd_events_are_counted(tmp_path):
    odd: list[object] = [
        event(at=1, length=-4),
        {"name": "x"},
        {"timestamp": T0},
        7,
        None,
        event("timestamp_sync_point"),
    ]
    too_late = event() | {"timestamp": 2**70}
    sink = read(write(tmp_path, {"trace_event": [*odd, too_late, event("hw_notify", 2)]}))
    assert sink.events_frame().select("name", "start_ns", "end_ns").rows() == [
        ("kbl_exec_pre", T0 + 1, T0 + 1),
        ("hw_notify", T0 + 2, T0 + 12),
    ]
    assert {note["code"]: note["event_count"] for note in sink.notes} == {
        "missing_time": 5,
        "negative_duration": 1,
        "sync_points": 1,
    }


def test_usage_becomes_samples(tmp_path):
    document = {
        "trace_event": [],
        "mem_usage": [{"timestamp": str(T0), "usage": "10", "percent_usage": 0.5, "instance_id": "i-1"}],
        "cpu_util": [{"timestamp": T0, "cpu_id": n, "util": 5 * n, "instance_id": "i-1"} for n in range(2)],
        "device_mem_usage": [{"hbm_idx": 0, "total_bytes": 7}],
    }
    sink = read(write(tmp_path, document))
    samples = sink.side_frame("samples").select("counter", "at_ns", "value", "unit").rows()
    assert sorted(samples) == [
        ("cpu_util/util/cpu_id=0", T0, 0.0, "%"),
        ("cpu_util/util/cpu_id=1", T0, 5.0, "%"),
        ("mem_usage/percent_usage", T0, 0.5, "%"),
        ("mem_usage/usage", T0, 10.0, "B"),
    ]
    assert [(n["code"], n["event_count"]) for n in sink.notes] == [("missing_time", 1)]


def test_a_cut_file_keeps_its_whole_events_and_says_where_it_ends(tmp_path):
    path = write(tmp_path, {"trace_event": [event(at=n) for n in range(100)], "cpu_util": []})
    text = path.read_bytes()
    path.write_bytes(text[: len(text) // 2])
    sink = read(path)
    starts = sink.events_frame()["start_ns"].to_list()
    assert 40 < len(starts) < 60
    assert starts == [T0 + n for n in range(len(starts))]
    assert sink.note_codes() == ["cut_file"]


def test_a_damaged_event_costs_only_itself(tmp_path):
    path = write(tmp_path, {"trace_event": [event(at=n) for n in range(100)], "system_profile_metadata": {"v": 6}})
    path.write_bytes(path.read_bytes().replace(str(T0 + 50).encode(), b'17"96'))
    sink = read(path)
    assert sink.events_frame()["start_ns"].to_list() == [T0 + n for n in range(100) if n != 50]
    assert {n["code"]: n["event_count"] for n in sink.notes} == {"profile_metadata": None, "bad_events": 1}


def test_memory_is_bounded_by_the_chunk(tmp_path, monkeypatch):
    monkeypatch.setattr(_json_chunks, "CHUNK_BYTES", 1 << 13)
    path = write(tmp_path, {"trace_event": [event(at=n) for n in range(5_000)]})
    sink = read(path)
    assert sink.events_frame()["start_ns"].to_list() == [T0 + n for n in range(5_000)]
    assert sink.largest_batch < 2 * (1 << 13) / 100
    assert sink.read_bytes == path.stat().st_size


@pytest.mark.parametrize("text", ["", "hello"], ids=["empty", "no_json"])
def test_what_is_no_json_is_an_error(tmp_path, text):
    path = tmp_path / "system_profile.json"
    path.write_text(text)
    with pytest.raises(SourceError) as caught:
        read(path)
    assert caught.value.path == path
    assert caught.value.hint


def test_json_of_another_kind_is_noted(tmp_path):
    assert read(write(tmp_path, {"traceEvents": [{"ph": "X"}]})).note_codes() == ["no_events"]


def test_one_odd_first_element_costs_only_itself(tmp_path):
    sink = read(write(tmp_path, {"trace_event": [None, event(), event(at=20)]}))
    assert len(sink.events_frame()) == 2
    assert [n["event_count"] for n in sink.notes if n["code"] == "missing_time"] == [1]


def test_an_event_list_that_is_no_list_is_noted(tmp_path):
    sink = read(write(tmp_path, {"trace_event": None, "other": 1}))
    assert sink.note_codes() == ["no_events"]


def test_the_place_of_the_first_odd_event_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(_json_chunks, "CHUNK_BYTES", 64)
    sink = read(write(tmp_path, {"trace_event": [event(), event(at=9), {"name": "x"}, event(at=20), 5]}))
    assert [n["message"] for n in sink.notes] == [
        "2 events without a name or a time are skipped, the first behind 2 others"
    ]
