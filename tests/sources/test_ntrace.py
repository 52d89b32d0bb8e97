from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sources import neuron_captures as captures
from tests.sources import wire
from tests.sources.memory_sink import MemorySink, artifact
from tracekit.errors import SourceError
from tracekit.sources import ntrace
from tracekit.sources._neuron_events import EVENT_TYPES

T0 = 1_796_052_700_000_000_000
DEVICE = 5_000_000_000
START, STOP, INSTANT = 1, 2, 3
KIND = {name: number for number, name in enumerate(EVENT_TYPES)}
FUZZ = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def span(name: str, start: int, end: int, tracking: int, **options: object) -> list[bytes]:
    first = wire.event(KIND[name], START, T0 + start, tracking, **options)
    core = options.get("core", 0)
    return [first, wire.event(KIND[name], STOP, T0 + end, tracking, core=core)]


def write(directory: Path, events: Iterable[bytes], *, field: int = 1, before: bytes = b"") -> Path:
    path = directory / "ntrace.pb"
    path.write_bytes(before + b"".join(wire.text(field, body) for body in events))
    return path


def read(path: Path) -> MemorySink:
    sink = MemorySink("ntrace")
    ntrace.read(artifact(path, process_id=7), sink)
    return sink


def times(sink: MemorySink) -> list[tuple[object, ...]]:
    rows = sink.events_frame().select("name", "start_ns", "end_ns").rows()
    return sorted((name, start - T0, end - T0) for name, start, end in rows)


def spans(count: int) -> list[bytes]:
    return [body for n in range(count) for body in span("kbl_exec_pre", n, n + 1, n + 1)]


@pytest.mark.parametrize("field", [1, 2, 7, 3000])
def test_the_events_are_found_whatever_their_field_number(tmp_path, field):
    strings = b"".join(wire.text(9, wire.text(2, wire.number(1, n) + wire.text(2, b"text"))) for n in range(50))
    sink = read(write(tmp_path, spans(20), field=field, before=strings + wire.number(4, 3)))
    assert times(sink) == [("kbl_exec_pre", n, n + 1) for n in range(20)]
    assert sink.note_codes() == ["ntrace_grade_r", "ntrace_other_fields"]


def test_fields_and_map_become_columns_and_attributes(tmp_path):
    attributes = {"exec_id": 3, "model_id": "14382885777943380728", "size": 64, "tensor_id": 5, "text": "a-1"}
    more = wire.number(9, 77) + wire.number(16, 2**48 + 29) + wire.text(6, b"hint")
    events = span("nrt_tensor_write", 5, 9, 1, core=2, attributes=attributes, more=more)
    row = read(write(tmp_path, events)).events_frame().row(0, named=True)
    assert (row["lane"], row["kind"], row["core_index"], row["process_id"], row["thread_id"]) == (
        *("runtime", "copy_in", 2, 7, 9),
    )
    assert (row["execution_id"], row["model_id"], row["moved_bytes"]) == (3, "14382885777943380728", 64)
    assert row["sequence_id"] == 2**48 + 29
    assert row["attrs_json"] == '{"hint":"hint","id":77,"tensor_id":5,"text":"a-1"}'


@pytest.mark.parametrize("field", [15, 16])
def test_runtime_execute_with_a_sequence_id_is_the_asynchronous_submit(tmp_path, field):
    submit = span("runtime_execute", 1, 2, 1, more=wire.number(field, 2**48))
    plain = span("runtime_execute", 3, 4, 2)
    assert times(read(write(tmp_path, [*submit, *plain]))) == [
        ("nrta_execute_schedule", 1, 2),
        ("runtime_execute", 3, 4),
    ]


def test_hardware_is_placed_by_sync_points(tmp_path):
    device = {"exec_id": 1, "device_core_idx": 4, "nc_timestamp_ns": DEVICE + 10}
    events = [
        *spans(5),
        wire.event(KIND["nc_exec_running"], START, DEVICE + 10, 90, attributes=device),
        wire.event(KIND["nc_exec_running"], STOP, DEVICE + 30, 90, attributes={"nc_timestamp_ns": DEVICE + 30}),
        wire.event(
            KIND["timestamp_sync_point"],
            INSTANT,
            DEVICE,
            91,
            attributes={"exec_id": 1, "nc_timestamp_ns": DEVICE, "cpu_timestamp_ns": T0 + 100},
        ),
    ]
    sink = read(write(tmp_path, events))
    hardware = sink.events_frame().filter(lane="hardware")
    assert hardware.select("start_ns", "end_ns", "physical_core").rows() == [(T0 + 110, T0 + 130, 4)]


def test_a_missing_core_means_zero_unless_the_writer_spells_zeros(tmp_path):
    silent = [*span("kbl_exec_pre", 0, 1, 1, core=None), *span("kbl_exec_pre", 2, 3, 2, core=1)]
    assert read(write(tmp_path, silent)).events_frame()["core_index"].to_list() == [0, 1]
    spelled = [*span("kbl_exec_pre", 0, 1, 1, core=None), *span("kbl_exec_pre", 2, 3, 2, core=0)]
    assert read(write(tmp_path, spelled)).events_frame()["core_index"].to_list() == [None, 0]


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        pytest.param([wire.event(400, START, T0, n) for n in range(20)], "no repeated field", id="unknown_types"),
        pytest.param([wire.event(17, 9, T0, n) for n in range(20)], "no repeated field", id="unknown_phases"),
        pytest.param([wire.event(17, 1 + n % 2, 5, 1 + n // 2) for n in range(20)], "host times", id="not_unix_time"),
        pytest.param([wire.event(17, START, T0 + n, n + 1) for n in range(20)], "paired", id="unpaired"),
        pytest.param([wire.text(1, b"2026"), wire.text(2, b"x")], "no repeated field", id="no_events"),
    ],
)
def test_a_file_that_does_not_fit_is_not_used_and_names_the_vendors_command(tmp_path, events, reason):
    path = write(tmp_path, events)
    sink = read(path)
    assert sink.event_frames == []
    [note] = sink.notes
    assert (note["severity"], note["code"]) == ("warning", "ntrace_not_understood")
    assert reason in str(note["message"])
    assert "neuron-explorer view -d" in str(note["hint"])
    assert sink.read_bytes == path.stat().st_size


def test_a_few_odd_events_are_counted_and_the_others_used(tmp_path):
    odd = [wire.event(17, START, 5, 999), wire.text(5, b"wrong type"), wire.event(60, INSTANT, T0 + 7, 998)]
    sink = read(write(tmp_path, [*spans(50), *odd]))
    assert times(sink) == sorted([*(("kbl_exec_pre", n, n + 1) for n in range(50)), ("event_type_60", 7, 7)])
    assert {n["code"]: n["event_count"] for n in sink.notes if n["code"] in ("bad_events", "unknown_events")} == {
        "bad_events": 2,
        "unknown_events": 1,
    }


def test_a_cut_file_keeps_its_whole_events(tmp_path):
    path = write(tmp_path, spans(50))
    path.write_bytes(path.read_bytes()[:-3])
    sink = read(path)
    assert times(sink) == [("kbl_exec_pre", n, n + 1) for n in range(49)]
    assert {"cut_file", "unpaired_events"} <= set(sink.note_codes())


def test_batches_do_not_change_the_rows(tmp_path, monkeypatch):
    path = write(tmp_path, spans(100))
    whole = read(path).events_frame()
    monkeypatch.setattr(ntrace, "BATCH_EVENTS", 7)
    sink = read(path)
    assert sink.events_frame().equals(whole)
    assert sink.read_bytes == path.stat().st_size


def test_an_empty_file_is_an_error(tmp_path):
    path = write(tmp_path, [])
    with pytest.raises(SourceError, match="0 bytes"):
        read(path)


@FUZZ
@given(data=st.binary(min_size=1, max_size=400))
def test_random_bytes_give_no_events(tmp_path, data):
    path = tmp_path / "ntrace.pb"
    path.write_bytes(data)
    sink = read(path)
    assert sink.event_frames == []
    assert sink.note_codes() == ["ntrace_not_understood"]


@captures.requires_captures
@FUZZ
@given(cut=st.floats(0, 1), flips=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=5))
def test_a_damaged_trace_is_survived_and_what_is_left_is_plausible(tmp_path, cut, flips):
    [source] = captures.files("rms_naive", "ntrace")
    data = bytearray(source.read_bytes())
    del data[max(1, int(cut * len(data))) :]
    for at, byte in flips:
        data[min(int(at * len(data)), len(data) - 1)] = byte
    path = tmp_path / "ntrace.pb"
    path.write_bytes(data)
    sink = read(path)
    events = sink.events_frame()
    assert sink.notes
    if not events.is_empty():
        assert "ntrace_grade_r" in sink.note_codes()
        assert (events.filter(lane="runtime")["start_ns"] > T0 - 10**18).all()
