"""The Chrome reader on traces written here: phases, kinds, exact times, damage, pieces and processes."""

from __future__ import annotations

import gzip
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.sources.memory_sink import MemorySink, artifact
from tracekit.errors import SourceError
from tracekit.sources import _chrome_plan, chrome
from tracekit.sources._chrome_categories import CATEGORIES, NAMED, place
from tracekit.sources._chrome_events import text_id
from tracekit.sources._chrome_summary import NOTES
from tracekit.tables import KINDS, LANES

Event = dict[str, Any]


def event(name: str = "op", ts: object = 1.0, dur: object = 1.0, **more: Any) -> Event:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 2, "ts": ts, "dur": dur, **more}


def read_bytes(folder: Path, data: bytes, workers: int = 0) -> MemorySink:
    path = folder / "trace.json"
    path.write_bytes(data)
    sink = MemorySink("kineto")
    chrome.read_with(artifact(path), sink, workers)
    return sink


def read_events(folder: Path, *events: Event, **header: Any) -> MemorySink:
    return read_bytes(folder, json.dumps({**header, "traceEvents": events}).encode())


def names(sink: MemorySink) -> list[str]:
    return sink.events_frame()["name"].to_list()


# --- what events become


def test_every_category_has_a_known_lane_and_kind() -> None:
    assert {lane for lane, _ in CATEGORIES.values()} <= set(LANES)
    assert {kind for _, kind in CATEGORIES.values()} <= set(KINDS)
    assert {kind for rules in NAMED.values() for _, kind in rules} <= set(KINDS)
    assert set(NAMED) <= set(CATEGORIES)


@pytest.mark.parametrize(
    ("category", "name", "expected"),
    [
        ("cpu_op", "aten::mul", ("dispatch", "op")),
        ("Operator", "aten::mul", ("dispatch", "op")),
        ("user_annotation", "ProfilerStep#3", ("dispatch", "annotation")),
        ("python_function", "torch/nn.py(1): f", ("dispatch", "python")),
        ("privateuse1_runtime", "aten::mul", ("dispatch", "call")),
        ("privateuse1_runtime", "neuron::synchronize", ("dispatch", "sync")),
        ("privateuse1_driver", "aten::mul", ("stream", "call")),
        ("cuda_runtime", "cudaLaunchKernel", ("runtime", "call")),
        ("cuda_runtime", "hipDeviceSynchronize", ("runtime", "sync")),
        ("Runtime", "cudaStreamSynchronize", ("runtime", "sync")),
        ("kernel", "gemm", ("hardware", "execution")),
        ("kernel", "ncclDevKernel_AllReduce", ("hardware", "collective")),
        ("Kernel", "NCCL", ("hardware", "execution")),
        ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", ("hardware", "copy_in")),
        ("Memcpy", "Memcpy DtoH (Device -> Pinned)", ("hardware", "copy_out")),
        ("gpu_memcpy", "Memcpy DtoD (Device -> Device)", ("hardware", "copy")),
        ("gpu_memset", "Memset (Device)", ("hardware", "memory")),
        ("mtia_ccp_events", "run", ("hardware", "execution")),
        ("mtia_ccp_events", "dma_request_3", ("hardware", "copy")),
        ("mtia_ccp_events", "event_wait", ("hardware", "sync")),
        ("cuda_sync", "Event Sync", ("hardware", "sync")),
        ("gpu_user_annotation", "step", ("hardware", "annotation")),
        ("overhead", "CUPTI", ("dispatch", "overhead")),
        ("Trace", "PyTorch Profiler (0)", ("dispatch", "window")),
        ("FEE", "f (a.py:1)", ("dispatch", "other")),
        (None, "x", ("dispatch", "other")),
    ],
)
def test_lane_and_kind_come_from_category_and_name(
    tmp_path: Path, category: str | None, name: str, expected: tuple[str, str]
) -> None:
    assert place(category, name) == expected
    given = event(name)
    if category is None:
        del given["cat"]
    else:
        given["cat"] = category
    sink = read_events(tmp_path, given, event("other"))
    assert sink.events_frame().select("lane", "kind", "category").row(0) == (*expected, category)


@pytest.mark.parametrize(
    ("base", "ts", "expected"),
    [
        pytest.param(1790857026000000000, "5195674157883.833", 1790857026000000000 + 5195674157883833, id="relative"),
        pytest.param(None, "1712195495519689.047", 1712195495519689047, id="absolute"),
        pytest.param(None, "1712195495519689", 1712195495519689000, id="whole"),
        pytest.param(0, "0.5", 500, id="short"),
        pytest.param(0, "1e3", 1_000_000, id="exponent"),
        pytest.param(0, "0.30000000000000004", 300, id="python_float"),
        pytest.param(0, "1.0005", 1000, id="half_to_even_down"),
        pytest.param(0, "1.0015", 1002, id="half_to_even_up"),
        pytest.param(0, "-3.25", -3250, id="before_the_base"),
        pytest.param(0, '"12.125"', 12125, id="text"),
        pytest.param(5, '" 7 "', 7005, id="text_with_space"),
    ],
)
def test_times_are_exact(tmp_path: Path, base: int | None, ts: str, expected: int) -> None:
    header = "" if base is None else f'"baseTimeNanoseconds": {base},'
    text = f'{{{header} "traceEvents": [{{"ph":"X","name":"a","ts":{ts},"dur":0.001}}]}}'
    frame = read_bytes(tmp_path, text.encode()).events_frame()
    assert frame.select("start_ns", "end_ns").row(0) == (expected, expected + 1)


@pytest.mark.parametrize("size", [10, 9_000_000], ids=["short", "far"])
def test_base_time_may_stand_behind_the_events(tmp_path: Path, size: int) -> None:
    data = b'{"traceEvents":[%b,%b],"x":"%b","baseTimeNanoseconds":7}' % (
        json.dumps(event()).encode(),
        json.dumps(event("pad", pad="x" * size)).encode(),
        b"y" * 100,
    )
    plain = read_bytes(tmp_path, data)
    packed = read_bytes(tmp_path, gzip.compress(data, 1))
    assert plain.events_frame()["start_ns"].to_list() == [1007, 1007]
    assert packed.events_frame().equals(plain.events_frame())


def test_a_base_is_not_added_to_absolute_times(tmp_path: Path) -> None:
    data = b'{"traceEvents":[{"ph":"X","name":"a","ts":1712195495519689,"dur":1}],"baseTimeNanoseconds":1000}'
    sink = read_bytes(tmp_path, data)
    assert sink.events_frame()["start_ns"].item() == 1712195495519689000
    assert sink.note_codes() == ["base_ignored"]


@pytest.mark.parametrize(
    ("spelled", "base_ns"),
    [
        pytest.param("1.719853884e+18", 1_719_853_884_000_000_000, id="exponent"),
        pytest.param("1719853884123456789.0", 1_719_853_884_123_456_789, id="more-digits-than-a-float-has"),
        pytest.param('"1719853884123456789"', 1_719_853_884_123_456_789, id="text"),
        pytest.param("1.0e9", 1_000_000_000, id="early"),
        pytest.param("null", 0, id="null"),
    ],
)
@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
def test_a_base_is_any_spelling_of_a_whole_number(tmp_path: Path, spelled: str, base_ns: int, *, behind: bool) -> None:
    member, events = f'"baseTimeNanoseconds": {spelled}', '"traceEvents": [{"ph":"X","name":"a","ts":1,"dur":1}]'
    sink = read_bytes(tmp_path, f"{{{', '.join([events, member] if behind else [member, events])}}}".encode())
    assert sink.events_frame()["start_ns"].to_list() == [base_ns + 1000]
    assert not sink.notes


@pytest.mark.parametrize("spelled", ["1.5", "-7", "1e30", '"soon"', "true", "[1]"])
def test_a_base_that_is_no_time_is_noted(tmp_path: Path, spelled: str) -> None:
    text = f'{{"baseTimeNanoseconds": {spelled}, "traceEvents": [{{"ph":"X","name":"a","ts":1,"dur":1}}]}}'
    sink = read_bytes(tmp_path, text.encode())
    assert sink.events_frame()["start_ns"].to_list() == [1000]
    assert sink.note_codes() == ["base_ignored"]
    assert f"not added ({spelled} is no whole number" in str(sink.notes[0]["message"])


def test_keys_of_args_become_columns(tmp_path: Path) -> None:
    args = {"External id": 7, "correlation": 9, "device": 1, "stream": 20, "bytes": 4096, "x": [1, {"stream": 3}]}
    driver = {"nrt_sequence_id": 2**64 - 1, "neff_cache_key": "k", "exec_id": 5, "stream": 8}
    sink = read_events(
        tmp_path,
        event("Memcpy HtoD", cat="gpu_memcpy", args=args),
        event("mul", cat="privateuse1_driver", tid=4, args=driver),
        event("launch", cat="cuda_runtime", args={"External id": "12", "stream": "0x0", "bytes": "77"}),
        event("old", cat="Kernel", args={"external id": 3, "device": 0, "stream": 7}),
    )
    columns = ("stream_id", "core_index", "external_id", "correlation_id", "sequence_id", "execution_id", "model_id")
    assert sink.events_frame().select(*columns, "moved_bytes").rows() == [
        (20, 1, 7, 9, None, None, None, 4096),
        (4, None, None, None, 2**64 - 1, 5, "k", None),
        (None, None, 12, None, None, None, None, None),
        (7, 0, 3, None, None, None, None, None),
    ]
    assert json.loads(sink.events_frame()["attrs_json"][0]) == args


def test_ids_that_do_not_fit_become_null_and_are_noted(tmp_path: Path) -> None:
    sink = read_events(
        tmp_path,
        event(args={"External id": 2**64, "correlation": 3}),
        event(cat="kernel", args={"nrt_sequence_id": 2**64, "device": -(2**70)}),
        event(cat="privateuse1_driver", args={"nrt_sequence_id": -1}),
    )
    frame = sink.events_frame()
    assert frame["external_id"].null_count() == 3
    assert frame["correlation_id"].to_list() == [3, None, None]
    assert frame["sequence_id"].null_count() == 3
    assert json.loads(frame["attrs_json"][0])["External id"] == 2**64
    assert [(n["code"], n["event_count"]) for n in sink.notes] == [("id_overflow", 4)]
    text = (tmp_path / "trace.json").read_text()
    first, second = text.index("{", text.index("[")), text.index("{", text.index("}}"))
    assert f"byte {first}: `External id`; byte {second}: `" in str(sink.notes[0]["message"])


@pytest.mark.parametrize("other", [{}, {"correlation": "17"}], ids=["all-numbers", "one-is-text"])
def test_unsigned_ids_keep_all_their_bits(tmp_path: Path, other: dict[str, object]) -> None:
    values = (2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1)
    sink = read_events(tmp_path, *(event(args={"External id": v, "correlation": v}) for v in values), event(args=other))
    frame = sink.events_frame()
    expected = [v if v < 2**63 else v - 2**64 for v in values]
    assert frame["external_id"].to_list() == [*expected, None]
    assert frame["correlation_id"].to_list() == [*expected, 17 if other else None]
    assert [json.loads(text)["correlation"] for text in frame["attrs_json"][:4]] == list(values)
    assert not sink.notes


@pytest.mark.parametrize(
    ("value", "number", "label"),
    [(7, 7, None), ("7", 7, None), (7.0, 7, None), ("Spans", text_id("Spans"), "Spans"), ("", text_id(""), "")],
)
def test_text_ids_are_numbers_or_negative_hashes(tmp_path: Path, value: object, number: int, label: str) -> None:
    sink = read_events(tmp_path, event(pid=value), event())
    assert sink.events_frame()["process_id"].to_list() == [number, 1]
    assert label is None or number < 0
    labels = [r["process_label"] for r in sink.side_frame("threads").rows(named=True) if r["process_id"] == number]
    assert labels == ([label] if label is not None else [])


def test_ids_may_be_missing(tmp_path: Path) -> None:
    sink = read_bytes(tmp_path, b'[{"ph":"X","name":"a","ts":1,"dur":1},{"ph":"X","ts":1,"dur":1,"pid":null}]')
    assert sink.events_frame().select("name", "process_id", "thread_id").rows() == [("a", None, None), ("", None, None)]


def test_fields_without_a_place_move_into_the_attributes(tmp_path: Path) -> None:
    sink = read_events(
        tmp_path, event(args={"a": 1, "tts": 2}, tts=5, cname="red"), event(id=4), event(args=[1]), event(args="x")
    )
    attrs = [json.loads(t) for t in sink.events_frame()["attrs_json"]]
    assert attrs == [{"a": 1, "tts": 2, "cname": "red"}, {"id": 4}, {"args": [1]}, {"args": "x"}]
    assert [(n["code"], n["event_count"]) for n in sink.notes] == [("args_not_object", 2)]


def test_begin_and_end_pair_by_thread_and_nest(tmp_path: Path) -> None:
    def half(ph: str, ts: float, tid: int = 1, **more: Any) -> Event:
        return {"ph": ph, "name": more.pop("name", ""), "pid": 1, "tid": tid, "ts": ts, **more}

    sink = read_events(
        tmp_path,
        half("E", 0.5),
        half("B", 1, name="outer", cat="cpu_op", args={"a": 1}),
        half("B", 2, name="inner", args={"External id": 6}),
        half("B", 2, 9, name="elsewhere"),
        half("E", 3, args={"b": 2}),
        event("between", 3.5, 1),
        half("E", 5, args={"b": 2}),
        half("B", 6, name="open"),
        half("E", 1, 9),
    )
    frame = sink.events_frame()
    assert frame.select("name", "start_ns", "end_ns", "phase").rows() == [
        ("inner", 2000, 3000, "begin_end"),
        ("between", 3500, 4500, "complete"),
        ("outer", 1000, 5000, "begin_end"),
        ("elsewhere", 2000, 2000, "begin_end"),
        ("open", 6000, 6000, "begin_end"),
    ]
    assert frame["external_id"].to_list() == [6, None, None, None, None]
    assert json.loads(frame["attrs_json"][2]) == {"a": 1, "b": 2}
    assert frame["lane"].to_list() == ["dispatch"] * 5 and frame["kind"][2] == "op"
    assert {n["code"]: n["event_count"] for n in sink.notes} == {
        "unmatched_end": 1,
        "unfinished_event": 1,
        "negative_duration": 1,
    }


def test_asynchronous_events_pair_by_category_and_id(tmp_path: Path) -> None:
    def part(ph: str, ts: float, key: object, name: str = "n") -> Event:
        return {"ph": ph, "cat": "c", "name": name, "id": key, "pid": 1, "tid": 1, "ts": ts}

    sink = read_events(
        tmp_path, part("b", 1, 5), part("b", 2, "x"), part("n", 3, 5, "dot"), part("e", 4, 5), part("e", 6, "x")
    )
    assert sink.events_frame().select("name", "start_ns", "end_ns", "phase").rows() == [
        ("dot", 3000, 3000, "async"),
        ("n", 1000, 4000, "async"),
        ("n", 2000, 6000, "async"),
    ]
    assert sink.notes == []


def test_instants_counters_and_memory_become_samples(tmp_path: Path) -> None:
    memory = {"Total Allocated": 100, "Total Reserved": 200, "Device Type": 1, "Device Id": 3, "Bytes": -5, "Addr": 9}
    sink = read_events(
        tmp_path,
        {
            "ph": "i",
            "cat": "cpu_instant_event",
            "s": "t",
            "name": "[memory]",
            "pid": 1,
            "tid": 2,
            "ts": 4,
            "args": memory,
        },
        {"ph": "C", "name": "load", "pid": 1, "ts": 5, "args": {"a": 1.5, "b": "2", "note": "x"}},
        {"ph": "C", "name": "load", "id": 7, "pid": 1, "ts": 6, "args": {"a": 3}},
        {"ph": "C", "name": "none", "pid": 1, "ts": 7, "args": {}},
    )
    samples = sink.side_frame("samples").select("counter", "core_index", "at_ns", "value", "unit").rows()
    assert samples == [
        ("[memory]/Total Allocated", 3, 4000, 100.0, "B"),
        ("[memory]/Total Reserved", 3, 4000, 200.0, "B"),
        ("load/a", None, 5000, 1.5, None),
        ("load/b", None, 5000, 2.0, None),
        ("load[7]/a", None, 6000, 3.0, None),
    ] or sorted(samples) == sorted(samples[2:] + samples[:2])
    assert sink.events_frame().select("phase", "kind", "start_ns", "end_ns").rows() == [
        ("instant", "other", 4000, 4000)
    ]
    assert sink.note_codes() == ["counter_without_value"]


def test_metadata_names_processes_and_threads(tmp_path: Path) -> None:
    def meta(what: str, tid: int, **args: Any) -> Event:
        return {"ph": "M", "name": what, "pid": 8, "tid": tid, "ts": 1, "args": args}

    sink = read_events(
        tmp_path,
        meta("process_name", 0, name="python"),
        meta("process_labels", 0, labels="CPU"),
        meta("process_sort_index", 0, sort_index=5),
        meta("thread_name", 3, name="main"),
        meta("thread_sort_index", 3, sort_index="9"),
        meta("trace_config", 3, x=1),
        event(),
    )
    rows = sink.side_frame("threads").drop("session", "process_label", "thread_label").rows()
    assert rows == [(8, None, "python", "CPU", None, 5, None), (8, 3, None, None, "main", None, 9)]
    assert sink.note_codes() == ["metadata_ignored"]


def test_numbers_that_do_not_fit_anywhere_are_left_out(tmp_path: Path) -> None:
    memory = {"Total Allocated": 1e400, "Total Reserved": 5, "Device Type": 1, "Device Id": 2**70}
    sink = read_events(
        tmp_path,
        {"ph": "M", "name": "thread_sort_index", "pid": 1, "tid": 2, "args": {"sort_index": 2**70}},
        {"ph": "C", "name": "c", "pid": 2**80, "ts": 1, "args": {"a": 2**2000, "b": 10**400, "c": 1}},
        {"ph": "i", "name": "[memory]", "pid": 1, "tid": 2, "ts": 4, "args": memory},
        {"ph": "s", "id": 2**90, "pid": -(2**63), "tid": 2**63 - 1, "ts": 1, "bp": "x"},
        event(pid=-(2**63), tid=2**64),
    )
    assert names(sink) == ["[memory]", "op"]
    assert set(sink.side_frame("samples")["core_index"]) == {None}
    assert len(sink.side_frame("flows")) == 1


def test_flows_keep_their_ids_as_text(tmp_path: Path) -> None:
    def flow(ph: str, key: object, **more: Any) -> Event:
        return {"ph": ph, "cat": "ac2g", "name": "ac2g", "id": key, "pid": 1, "tid": 2, "ts": 1, **more}

    sink = read_events(tmp_path, flow("s", 5), flow("t", "a\\b"), flow("f", 2**70, bp="e"), flow("f", "0x5", bp="x"))
    assert sink.side_frame("flows").select("flow_id", "phase", "binds_enclosing").rows() == [
        ("5", "start", None),
        ("a\\b", "step", None),
        (str(2**70), "end", True),
        ("0x5", "end", False),
    ]


def test_header_gives_facts_about_the_session(tmp_path: Path) -> None:
    header = {"host_name": "h", "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8}, "with_stack": 1}
    sink = read_events(tmp_path, event(cat="kernel"), **header)
    facts = sink.session_facts["session"]
    assert (facts["rank"], facts["world_size"], facts["host_name"], facts["device"]) == (3, 8, "h", "cuda")
    assert json.loads(str(facts["capture_json"])) == header


@pytest.mark.parametrize(
    ("category", "header", "device"),
    [
        ("cpu_op", {}, "cpu"),
        ("kernel", {}, "cuda"),
        ("kernel", {"deviceProperties": [{"name": "AMD Instinct MI300X"}]}, "rocm"),
        ("cuda_runtime", {"hip_runtime_version": 6}, "rocm"),
        ("privateuse1_driver", {}, "neuron"),
        ("mtia_ccp_events", {}, "mtia"),
        ("xpu_runtime", {}, "xpu"),
    ],
)
def test_device_is_known_from_categories_and_header(
    tmp_path: Path, category: str, header: dict[str, Any], device: str
) -> None:
    assert read_events(tmp_path, event(cat=category), **header).session_facts["session"]["device"] == device


# --- layout


def _pretty(events: list[Event]) -> bytes:
    return json.dumps({"schemaVersion": 1, "traceEvents": events}, indent=2).encode()


LAYOUTS: dict[str, Callable[[list[Event]], bytes]] = {
    "default": lambda events: json.dumps({"traceEvents": events}).encode(),
    "minified": lambda events: json.dumps({"traceEvents": events}, separators=(",", ":")).encode(),
    "pretty": _pretty,
    "crlf": lambda events: _pretty(events).replace(b"\n", b"\r\n"),
    "bom": lambda events: b"\xef\xbb\xbf" + _pretty(events),
    "lines": lambda events: b'{"traceEvents": [\n' + b",\n".join(json.dumps(e).encode() for e in events) + b"\n]}",
    "bare": lambda events: json.dumps(events).encode(),
    "bare_open": lambda events: json.dumps(events).encode()[:-1],
    "bare_open_comma": lambda events: json.dumps(events).encode()[:-1] + b",\n",
    "trailing_comma": lambda events: json.dumps({"traceEvents": events}).encode()[:-2] + b",]}",
    "nested": lambda events: json.dumps({"traceEvents": {"x": 1, "traceEvents": events}}).encode(),
    "nested_in_array": lambda events: json.dumps({"traceEvents": [events[0], {"traceEvents": events[1:]}]}).encode(),
    "two_arrays": lambda events: (
        b'{"traceEvents":%b,"x":[{}],"traceEvents":%b}'
        % (
            json.dumps(events[:1]).encode(),
            json.dumps(events[1:]).encode(),
        )
    ),
    "header_behind": lambda events: json.dumps({"traceEvents": events, "a": [{"b": "}]"}], "c": {}}).encode(),
    "escaped_names": lambda events: json.dumps({"meta": 'x "traceEvents": [', "traceEvents": events}).encode(),
    "array_of_arrays": lambda events: json.dumps({"traceEvents": [events[:2], events[2:]]}).encode(),
}
NASTY = ['a"},{"b', "]", "}", "\\", '"', "},\n  {", "é ∑ 𝄞", '{"ph": "X"}', "\t", "[", "x" * 300]


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_layout_and_odd_names_change_nothing(tmp_path: Path, layout: str) -> None:
    events = [
        event(name, i, args={"v": name, "n": [{"ph": name}, {"ph": "X"}], "External id": i})
        for i, name in enumerate(NASTY)
    ]
    sink = read_bytes(tmp_path, LAYOUTS[layout](events))
    assert names(sink) == NASTY
    frame = sink.events_frame()
    assert [json.loads(t) for t in frame["attrs_json"]] == [e["args"] for e in events]
    assert frame["external_id"].to_list() == list(range(len(NASTY)))
    assert set(sink.note_codes()) <= {"open_array"}
    assert ("open_array" in sink.note_codes()) == layout.startswith("bare_open")


def test_duplicate_keys_are_read_as_json_does(tmp_path: Path) -> None:
    sink = read_bytes(
        tmp_path, b'[{"ph":"X","name":"a","name":"b","ts":1,"ts":2,"dur":1,"args":{"External id":1,"External id":2}}]'
    )
    assert sink.events_frame().select("name", "start_ns", "external_id").row(0) == ("b", 2000, 2)


# --- damage


def damaged(folder: Path, element: bytes) -> MemorySink:
    """A trace with one damaged element between two sound events."""
    parts = [json.dumps(event("first")).encode(), element, json.dumps(event("last")).encode()]
    return read_bytes(folder, b'{"traceEvents": [' + b",".join(parts) + b"]}")


@pytest.mark.parametrize(
    ("element", "code"),
    [
        (b'{"ph":"X","name":"x","ts":1,"dur":1', "damaged_event"),
        (b'{"ph":"X","name":"x,"ts":1,"dur":1}', "damaged_event"),
        (b'{"ph":"X","name":"x","ts":1,"dur":1}}', "damaged_event"),
        (b'{"ph":"X" "name":"x","ts":1,"dur":1}', "damaged_event"),
        (b'{"ph":"X","name":"x","ts":0x1,"dur":1}', "damaged_event"),
        (b'"ph":"X","name":"x","ts":1,"dur":1}', "damaged_event"),
        (b'{"name":"x","ts":1,"dur":1}', "no_phase"),
        (b"null", "not_an_event"),
        (b"17", "not_an_event"),
        (b'"x"', "not_an_event"),
        (b'{"ph":"X","name":"x","dur":1}', "missing_time"),
        (b'{"ph":"X","name":"x","ts":null,"dur":1}', "missing_time"),
        (b'{"ph":"X","name":"x","ts":"soon","dur":1}', "missing_time"),
        (b'{"ph":"X","name":"x","ts":NaN,"dur":1}', "missing_time"),
        (b'{"ph":"X","name":"x","ts":1e300,"dur":1}', "missing_time"),
        (b'{"ph":"X","name":"x","ts":99999999999999999,"dur":1}', "time_out_of_range"),
        (b'{"ph":"N","name":"x","ts":1}', "unsupported_phase"),
        (b'{"ph":"s","name":"x","ts":1}', "flow_without_id"),
    ],
)
def test_what_is_lost_is_noted_and_the_rest_is_read(tmp_path: Path, element: bytes, code: str) -> None:
    sink = damaged(tmp_path, element)
    kept = names(sink)
    assert kept[0] == "first" and kept[-1] == "last"
    assert "x" not in kept or (code == "damaged_event" and element.endswith(b"}}"))
    lost = [n for n in sink.notes if n["code"] == code]
    assert [n["event_count"] for n in lost] == [1]
    assert "byte " in str(lost[0]["message"])


@pytest.mark.parametrize(
    ("element", "name", "attrs"),
    [
        (b'{"ph":"X","name":"a\xffb","ts":1,"dur":1}', "a\ufffdb", None),
        (b'{"ph":"X","name":"a\x01\nb","ts":1,"dur":1}', "a\x01\nb", None),
        (b'{"ph":"X","name":"a\\qb","ts":1,"dur":1}', "a\\qb", None),
        (b'{"ph":"X","name":"a\\ud800b","ts":1,"dur":1}', "a\ufffdb", None),
        (b'{"ph":"X","name":"\\ud834\\udd1e\\ud834","ts":1,"dur":1}', "𝄞\ufffd", None),
        (
            b'{"ph":"X","name":"a","ts":1,"dur":1,"args":{"x":NaN,"y":-Infinity,"z":"NaN"}}',
            "a",
            {"x": None, "y": None, "z": "NaN"},
        ),
        (b'{"ph":"X","name":"a","ts":1,"dur":1,"args":{"x":"\xff","y":[1,],}}', "a", {"x": "\ufffd", "y": [1]}),
        (b'{"ph":"X","name":"a","ts":1,"dur":1,"args":{"x":"a\x02"}}', "a", {"x": "a\x02"}),
    ],
)
def test_what_can_be_mended_is(tmp_path: Path, element: bytes, name: str, attrs: object) -> None:
    sink = damaged(tmp_path, element)
    assert names(sink) == ["first", name, "last"]
    text = sink.events_frame()["attrs_json"][1]
    assert (None if text is None else json.loads(text)) == attrs
    assert [(n["code"], n["event_count"]) for n in sink.notes] == [("repaired_event", 1)]


@pytest.mark.parametrize(
    ("element", "code", "length_ns"),
    [
        (b'{"ph":"X","name":"x","ts":1}', "missing_duration", 0),
        (b'{"ph":"X","name":"x","ts":1,"dur":null}', "missing_duration", 0),
        (b'{"ph":"X","name":"x","ts":1,"dur":-5}', "negative_duration", 0),
        (b'{"ph":"X","name":"x","ts":1,"dur":0}', None, 0),
        (b'{"ph":"X","name":"x","ts":0,"dur":"2.5"}', None, 2500),
    ],
)
def test_odd_durations(tmp_path: Path, element: bytes, code: str | None, length_ns: int) -> None:
    sink = damaged(tmp_path, element)
    row = sink.events_frame().row(1, named=True)
    assert (row["name"], row["end_ns"] - row["start_ns"]) == ("x", length_ns)
    assert [(n["code"], n["event_count"]) for n in sink.notes] == ([(code, 1)] if code else [])


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"hello", "not JSON"),
        (b"\x7fELF\x00\x01", "not JSON"),
        (b"{}", "no `traceEvents`"),
        (b'{"a": 1}', "no `traceEvents`"),
        (b'{"a": 1, "traceEv', "before any event"),
        (b'{"traceEvents": 5}', "no `traceEvents`"),
        (b'{"traceEvents": [', "no intact event"),
        (b'{"traceEvents": [{"ph": "X", "na', "no intact event"),
        (b"[1, 2, 3]", "no intact event"),
        (b"\x1f\x8b", "cut"),
        (b"\x1f\x8b\x08\x00garbage", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_error(tmp_path: Path, data: bytes, problem: str) -> None:
    with pytest.raises(SourceError, match=problem):
        read_bytes(tmp_path, data)


def test_an_empty_array_is_a_trace_without_events(tmp_path: Path) -> None:
    sink = read_bytes(tmp_path, b'{"schemaVersion": 1, "traceEvents": []}')
    assert sink.events_frame().is_empty()
    assert sink.note_codes() == ["no_events"]


def test_paths_that_are_no_readable_file(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be read: Is a directory"):
        chrome.read(artifact(tmp_path), MemorySink("kineto"))
    gone = artifact(tmp_path)
    object.__setattr__(gone, "path", tmp_path / "gone.json")
    with pytest.raises(SourceError, match="No such file"):
        chrome.read(gone, MemorySink("kineto"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_no_permission(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b"[]")
    path.chmod(0)
    try:
        with pytest.raises(SourceError, match="Permission denied"):
            chrome.read(artifact(path), MemorySink("kineto"))
    finally:
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)


def test_many_threads_of_one_event(tmp_path: Path) -> None:
    count = 100_000
    body = ",".join(f'{{"ph":"X","name":"a","pid":1,"tid":{i},"ts":{i},"dur":1}}' for i in range(count))
    frame = read_bytes(tmp_path, f"[{body}]".encode()).events_frame()
    assert frame["thread_id"].n_unique() == count


def test_every_note_has_words_of_its_own() -> None:
    assert len({wording.text for wording in NOTES.values()}) >= len(NOTES) - 1


# --- pieces and processes


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_chrome_plan, "PIECE", 10_000)
    monkeypatch.setattr(chrome, "_SMALL", 20_000)


def _long_trace(layout: str) -> tuple[list[Event], bytes]:
    events = [
        event(
            NASTY[i % len(NASTY)] + str(i),
            i,
            args={"n": [{"ph": "X", "a": 1}, {"ph": "X"}] * (i % 40), "External id": i},
        )
        for i in range(400)
    ]
    events[33]["pid"] = "text"
    events[77]["extra"] = 1
    return events, LAYOUTS[layout](events)


ODD_EVENTS: list[tuple[Event, str]] = [
    (event(dur=-1), "negative_duration"),
    ({"ph": "s", "name": "x", "ts": 1, "pid": 1, "tid": 1}, "flow_without_id"),
    ({"ph": "C", "name": "x", "ts": 1, "pid": 1, "args": {"a": "text"}}, "counter_without_value"),
    ({"ph": "M", "name": "process_uptime", "pid": 1, "tid": 1, "args": {"a": 1}}, "metadata_ignored"),
    ({"ph": "N", "name": "x", "ts": 1, "pid": 1, "tid": 1}, "unsupported_phase"),
    ({"ph": "E", "name": "x", "ts": 1, "pid": 7, "tid": 7}, "unmatched_end"),
    ({"ph": "B", "name": "x", "ts": 1, "pid": 8, "tid": 8}, "unfinished_event"),
    ({"ph": "X", "name": "x", "pid": 1, "tid": 1, "dur": 1}, "missing_time"),
]


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("layout", ["default", "minified", "pretty", "lines"])
@pytest.mark.parametrize(("odd", "code"), ODD_EVENTS, ids=[code for _, code in ODD_EVENTS])
def test_notes_name_the_byte_at_which_an_event_begins(tmp_path: Path, odd: Event, code: str, layout: str) -> None:
    events, _ = _long_trace(layout)
    events.insert(250, odd | {"args": {"mark": "text", **odd.get("args", {})}})
    data = LAYOUTS[layout](events)
    start = data.rindex(b'"ph"', 0, data.index(b'"mark"'))
    start = data.rindex(b"{", 0, start)
    noted = [n for n in read_bytes(tmp_path, data).notes if n["code"] == code]
    assert [n["event_count"] for n in noted] == [1]
    assert f"(byte {start}: " in str(noted[0]["message"])


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(
    ("layout", "workers"),
    [("default", 0), ("minified", 2), ("pretty", 1), ("lines", 0), ("bare_open", 0), ("header_behind", 0)],
)
def test_rows_and_ids_do_not_depend_on_workers_or_compression(tmp_path: Path, layout: str, workers: int) -> None:
    events, data = _long_trace(layout)
    alone = read_bytes(tmp_path, data)
    frame = alone.events_frame()
    assert frame["name"].to_list() == [e["name"] for e in events]
    for stored in (data, gzip.compress(data, 0), gzip.compress(data, 9)):
        other = read_bytes(tmp_path, stored, workers)
        assert other.events_frame().equals(frame)
        assert other.side_frame("threads").equals(alone.side_frame("threads"))
        assert other.notes == alone.notes
        assert other.counts == alone.counts
        assert other.read_bytes == len(stored)


@pytest.mark.usefixtures("small_pieces")
def test_an_event_longer_than_a_piece_is_whole(tmp_path: Path) -> None:
    events = [event("a"), event("long", args={"x": ['"}, {"ph": "X"'] * 2000}), event("b")]
    events += [event(str(i)) for i in range(100)]
    sink = read_bytes(tmp_path, LAYOUTS["default"](events))
    assert names(sink) == [e["name"] for e in events]
    assert len(json.loads(sink.events_frame()["attrs_json"][1])["x"]) == 2000
    assert sink.notes == []


@pytest.mark.usefixtures("small_pieces")
def test_a_dead_worker_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events, data = _long_trace("pretty")
    monkeypatch.setattr("tracekit.sources._chrome_worker._CODE", "raise SystemExit(3)")
    sink = read_bytes(tmp_path, data, 2)
    assert names(sink) == [e["name"] for e in events]


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("executable", ["", None, "/nonexistent/python"])
def test_without_an_interpreter_this_process_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executable: str | None
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    assert len(read_bytes(tmp_path, _long_trace("pretty")[1], 2).events_frame()) == 400


@pytest.mark.usefixtures("small_pieces")
def test_many_damaged_events_are_each_counted(tmp_path: Path) -> None:
    sound = [json.dumps(event(str(i), i)).encode() for i in range(6_000)]
    data = b"[" + b",".join(text[:-1] if i % 2 else text for i, text in enumerate(sound)) + b"]"
    sink = read_bytes(tmp_path, data)
    assert names(sink) == [str(i) for i in range(0, 6_000, 2)]
    assert sum(int(str(n["event_count"])) for n in sink.notes) == 3_000


def test_workers_start_from_a_program_without_a_main_guard(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(_long_trace("pretty")[1])
    program = tmp_path / "program.py"
    program.write_text(
        "from pathlib import Path\n"
        "from tests.sources.memory_sink import MemorySink, artifact\n"
        "from tracekit.sources import _chrome_plan, chrome\n"
        "_chrome_plan.PIECE, chrome._SMALL = 10_000, 20_000\n"
        "sink = MemorySink('kineto')\n"
        f"chrome.read_with(artifact(Path({str(path)!r})), sink, 2)\n"
        "print(len(sink.events_frame()))\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(root)},
        check=False,
    )
    assert (done.stdout, done.stderr) == ("400\n", "")


def test_a_daemonic_process_starts_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Daemon:
        daemon = True

    monkeypatch.setattr(chrome.multiprocessing, "current_process", Daemon)
    assert chrome.worker_count() == 0


def test_large_numbers_of_decimals_keep_their_text(tmp_path: Path) -> None:
    sink = read_bytes(tmp_path, b'[{"ph":"X","name":"a","ts":1,"dur":1,"args":{"x":0.1234567890123456789}}]')
    text = sink.events_frame()["attrs_json"].item()
    assert json.loads(text, parse_float=Decimal) == {"x": Decimal("0.1234567890123456789")}
    assert isinstance(sink.events_frame(), pl.DataFrame)


def test_a_changed_event_of_a_tiny_trace_is_named_by_its_own_byte(tmp_path: Path) -> None:
    events = [event(str(i)) for i in range(5)]
    events[2]["dur"] = -1
    data = json.dumps({"traceEvents": events}).encode()
    at = [match.start() for match in re.finditer(rb'\{"ph"', data)][2]
    (note,) = read_bytes(tmp_path, data).notes
    assert f"byte {at}: `dur` is negative" in str(note["message"])
