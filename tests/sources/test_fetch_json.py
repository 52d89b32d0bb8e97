from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sources.memory_sink import MemorySink, artifact
from tracekit.errors import SourceError
from tracekit.sources import fetch_json

T0 = 1_796_052_700_000_000_000
DEVICE = 5_000_000_000
"""The device clock runs this far from the host clock at T0."""
Record = dict[str, object]


def mark(name: str, phase: str, at_ns: int, tracking: int, *, core: int = 0, **data: object) -> Record:
    own = {"event_type": name, "phase": phase, "nc_idx": core, "tracking_id": tracking, "thread_id": 9, "data": data}
    return own | {"timestamp_ns": at_ns}


def span(name: str, start: int, end: int, tracking: int, *, core: int = 0, **data: object) -> list[Record]:
    return [
        mark(name, "start", T0 + start, tracking, core=core, **data),
        mark(name, "stop", T0 + end, tracking, core=core),
    ]


def execution(start: int, end: int, tracking: int, *, core: int = 0, **data: object) -> list[Record]:
    """A hardware span; its times are on the device clock."""
    records = span("nc_exec_running", start - T0, end - T0, tracking, core=core, **data)
    for record in records:
        record["data"] = {**record["data"], "nc_timestamp_ns": record["timestamp_ns"]}  # type: ignore[dict-item]
    return records


def sync(device: int, host: int, *, core: int = 0, **data: object) -> Record:
    own = {"nc_timestamp_ns": device, "cpu_timestamp_ns": T0 + host}
    return mark("timestamp_sync_point", "instant", device, 10**9, core=core, **own, **data)


def read(directory: Path, records: object, **layout: object) -> MemorySink:
    path = directory / "fetch.json"
    path.write_text(json.dumps({"events": records, "data_version": 2}, **layout))
    sink = MemorySink("fetch_json")
    fetch_json.read(artifact(path, process_id=7), sink)
    return sink


def times(sink: MemorySink) -> list[tuple[object, ...]]:
    rows = sink.events_frame().select("name", "start_ns", "end_ns").rows()
    return sorted((name, start - T0, end - T0) for name, start, end in rows)


def counted(sink: MemorySink) -> dict[object, object]:
    return {note["code"]: note["event_count"] for note in sink.notes}


def test_a_start_and_a_stop_make_a_span_with_the_attributes_of_both(tmp_path):
    start, stop = span("nrt_tensor_write", 5, 9, 1, size=64, exec_id=3)
    stop["data"] = {"status": 0, "exec_id": 3}
    sink = read(tmp_path, [start, stop])
    row = sink.events_frame().row(0, named=True)
    assert (row["lane"], row["kind"], row["process_id"], row["thread_id"]) == ("runtime", "copy_in", 7, 9)
    assert (row["start_ns"], row["end_ns"], row["moved_bytes"], row["execution_id"]) == (T0 + 5, T0 + 9, 64, 3)
    assert row["attrs_json"] == '{"status":0}'
    assert sink.notes == []


def test_the_same_tracking_id_on_another_core_is_another_span(tmp_path):
    records = [*span("kbl_exec_pre", 0, 9, 1, core=0), *span("kbl_exec_pre", 2, 5, 1, core=1)]
    records.sort(key=lambda record: record["timestamp_ns"])
    assert times(read(tmp_path, records)) == [("kbl_exec_pre", 0, 9), ("kbl_exec_pre", 2, 5)]


def test_what_the_ring_buffer_overwrote_is_counted_and_gives_no_event(tmp_path):
    lost_start, kept, lost_stop = (span("kbl_exec_pre", n, n + 1, n) for n in (1, 10, 20))
    sink = read(tmp_path, [lost_start[1], *kept, lost_stop[0]])
    assert times(sink) == [("kbl_exec_pre", 10, 11)]
    assert counted(sink) == {"unpaired_events": 2}
    assert "1 kbl_exec_pre stop" in str(sink.notes[0]["message"])


def test_a_tracking_id_used_again_does_not_join_two_spans(tmp_path):
    first, second = span("kbl_exec_pre", 0, 5, 1), span("kbl_exec_pre", 10, 15, 1)
    assert times(read(tmp_path, [*first, *second])) == [("kbl_exec_pre", 0, 5), ("kbl_exec_pre", 10, 15)]
    lost = read(tmp_path, [first[0], *second])
    assert times(lost) == [("kbl_exec_pre", 10, 15)]
    assert counted(lost) == {"unpaired_events": 1}


def test_another_event_with_the_same_tracking_id_is_not_its_other_end(tmp_path):
    sink = read(tmp_path, [span("kbl_exec_pre", 0, 5, 1)[0], span("kbl_exec_post", 0, 5, 1)[1]])
    assert times(sink) == []
    assert counted(sink) == {"unpaired_events": 2}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), lengths=st.lists(st.integers(0, 50), min_size=1, max_size=12))
def test_the_order_in_the_file_does_not_matter(tmp_path, seed, lengths):
    records: list[Record] = [sync(DEVICE, 0)]
    for number, length in enumerate(lengths):
        records += span("kbl_exec_pre", number * 7, number * 7 + length, number)
        records += execution(DEVICE + number * 9, DEVICE + number * 9 + length, 1000 + number)
    random.Random(seed).shuffle(records)
    sink = read(tmp_path, records)
    assert times(sink) == sorted(
        [("kbl_exec_pre", n * 7, n * 7 + length) for n, length in enumerate(lengths)]
        + [("nc_exec_running", n * 9, n * 9 + length) for n, length in enumerate(lengths)]
    )
    assert "unpaired_events" not in counted(sink)


def test_hardware_is_placed_by_the_sync_point_of_its_own_execution(tmp_path):
    records = [
        *execution(DEVICE + 100, DEVICE + 150, 1, exec_id=1),
        sync(DEVICE + 100, 0, exec_id=9),
        sync(DEVICE + 900, 890, exec_id=1),
    ]
    sink = read(tmp_path, records)
    assert times(sink) == [("nc_exec_running", 90, 140)]
    attributes = json.loads(sink.events_frame()["attrs_json"][0])
    assert (attributes["nc_timestamp_ns"], attributes["stop_nc_timestamp_ns"]) == (DEVICE + 100, DEVICE + 150)
    assert counted(sink) == {"clock_sync": 2}
    assert "90 ns" in str(sink.notes[0]["message"])


def test_without_its_own_sync_point_the_nearest_of_the_core_is_used(tmp_path):
    records = [
        *execution(DEVICE + 100, DEVICE + 150, 1, exec_id=1),
        sync(DEVICE + 90, 0, exec_id=8),
        sync(DEVICE + 500, 7, exec_id=9),
        sync(DEVICE + 100, 5000, core=1, exec_id=1),
    ]
    sink = read(tmp_path, records)
    assert times(sink) == [("nc_exec_running", 10, 60)]
    assert counted(sink)["clock_sync_nearest"] == 1


def test_a_sync_point_of_one_physical_core_is_only_for_that(tmp_path):
    records = [
        *execution(DEVICE + 100, DEVICE + 150, 1, exec_id=1, device_core_idx=4),
        *execution(DEVICE + 200, DEVICE + 250, 2, exec_id=1, device_core_idx=5),
        sync(DEVICE + 100, 0, exec_id=1, device_core_idx=4),
        sync(DEVICE + 200, 3, exec_id=1, device_core_idx=5),
    ]
    assert times(read(tmp_path, records)) == [("nc_exec_running", 0, 50), ("nc_exec_running", 3, 53)]


def test_hardware_of_a_core_without_sync_point_is_left_out_and_counted(tmp_path):
    records = [*execution(DEVICE, DEVICE + 5, 1, core=1), sync(DEVICE, 0, core=0), *span("kbl_exec_pre", 0, 1, 2)]
    sink = read(tmp_path, records)
    assert times(sink) == [("kbl_exec_pre", 0, 1)]
    assert counted(sink) == {"clock_sync": 1, "no_sync_point": 1}


def test_hardware_without_device_time_is_taken_as_host_time_and_noted(tmp_path):
    sink = read(tmp_path, [mark("hw_notify", "instant", T0 + 3, 1)])
    assert times(sink) == [("hw_notify", 3, 3)]
    assert counted(sink) == {"no_device_time": 1}


def test_numeric_types_and_phases_are_understood(tmp_path):
    start, stop = span("kbl_exec_pre", 1, 2, 1)
    start |= {"event_type": 17, "phase": 1}
    stop |= {"event_type": 17, "phase": 2}
    assert times(read(tmp_path, [start, stop])) == [("kbl_exec_pre", 1, 2)]


def test_odd_records_are_counted(tmp_path):
    records = [*span("kbl_exec_pre", 5, 1, 1), mark("kbl_exec_pre", "maybe", T0, 2), {"phase": "start"}, 3, None]
    sink = read(tmp_path, records)
    assert times(sink) == [("kbl_exec_pre", 5, 5)]
    assert counted(sink) == {"negative_duration": 1, "unknown_phase": 1, "missing_time": 3}


def test_a_file_read_twice_reports_its_bytes_once(tmp_path):
    sink = read(tmp_path, [r for n in range(3000) for r in span("kbl_exec_pre", n, n + 1, n)], indent=1)
    assert sink.read_bytes == (tmp_path / "fetch.json").stat().st_size
    assert len(times(sink)) == 3000


JUNK = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just({}) | st.just([1])


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(
        st.tuples(
            st.integers(0, 4),
            st.sampled_from(["event_type", "phase", "nc_idx", "tracking_id", "thread_id", "data", "timestamp_ns"]),
            JUNK,
        ),
        max_size=4,
    ),
    inner=st.dictionaries(
        st.sampled_from(["nc_timestamp_ns", "cpu_timestamp_ns", "exec_id", "model_id", "size"]), JUNK, max_size=3
    ),
)
def test_any_value_in_any_field_is_survived(tmp_path, changes, inner):
    records = [*execution(DEVICE, DEVICE + 5, 1, exec_id=1), sync(DEVICE, 0), *span("nrt_tensor_read", 0, 1, 2)]
    records[3]["data"] = inner
    for row, field, value in changes:
        records[row][field] = value
    read(tmp_path, records)


@pytest.mark.parametrize("text", ["", "hello"], ids=["empty", "no_json"])
def test_what_is_no_json_is_an_error(tmp_path, text):
    path = tmp_path / "fetch.json"
    path.write_text(text)
    with pytest.raises(SourceError) as caught:
        fetch_json.read(artifact(path), MemorySink("fetch_json"))
    assert caught.value.path == path


def test_json_of_another_kind_is_noted(tmp_path):
    path = tmp_path / "fetch.json"
    path.write_text('{"trace_event": [{"name": "x"}]}')
    sink = MemorySink("fetch_json")
    fetch_json.read(artifact(path), sink)
    assert sink.note_codes() == ["no_events"]


def test_the_place_of_the_first_odd_record_is_told(tmp_path):
    sink = read(tmp_path, [*span("kbl_exec_pre", 1, 5, 1), None, *span("kbl_exec_pre", 6, 7, 2), 3])
    assert [n["message"] for n in sink.notes] == [
        "2 events without a type or a time are skipped, the first behind 2 others"
    ]


@pytest.mark.parametrize(("points", "told"), [(1, "drift of its clock is not known"), (2, "drift by 7 ns at most")])
def test_drift_is_told_only_if_two_points_show_it(tmp_path, points, told):
    marks = [sync(DEVICE, 0), sync(DEVICE + 1000, 1007)][:points]
    sink = read(tmp_path, [*marks, *execution(DEVICE + 10, DEVICE + 20, 1)])
    assert told in str(next(n["message"] for n in sink.notes if n["code"] == "clock_sync"))
