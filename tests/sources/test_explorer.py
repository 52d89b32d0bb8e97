from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from tests.sources.memory_sink import MemorySink, artifact
from tracekit.errors import SourceError
from tracekit.sources import explorer

T0 = 1_796_052_700_000_000_000
SESSION = "i-1_pid_7"


def row(name: str = "kbl_exec_pre", at: int = 0, length: int = 10, **columns: object) -> dict[str, object]:
    own = {
        "id": 1,
        "name": name,
        "start_ts": T0 + at,
        "end_ts": T0 + at + length,
        "duration_ns": length,
        "trace_event_source": "neuron_rt",
        "instance_id": "i-1",
        "process_id": 7,
        "thread_id": 70,
        "nc_idx": 2,
        "pcore_idx": None,
        "extra_attributes_json": "{}",
    }
    return own | columns


def framework(name: str, at: int = 0, **columns: object) -> dict[str, object]:
    origin = {"trace_event_source": "framework", "nc_idx": None, "framework_stream_id": None}
    return row(f"{name} [trace.json]", at, **(origin | columns))


def write(directory: Path, rows: list[dict[str, object]], name: str = "SystemProfileEvents.parquet") -> Path:
    path = directory / name
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(path)
    return path


def read(path: Path, **options: object) -> MemorySink:
    sink = MemorySink("explorer", **options)
    explorer.read(artifact(path), sink)
    return sink


COLUMNS = ("lane", "kind", "core_index", "physical_core", "execution_id", "model_id", "sequence_id", "moved_bytes")


@pytest.mark.parametrize(
    ("name", "attributes", "expected"),
    [
        pytest.param(
            "nc_exec_running",
            {"exec_id": 3, "model_id": "14382885777943380728", "device_core_idx": 5},
            ("hardware", "execution", 2, 5, 3, "14382885777943380728", None, None),
            id="execution",
        ),
        pytest.param(
            "nrta_execute_schedule",
            {"nrta_seq_id": 2**48 + 29},
            ("runtime", "call", 2, None, None, None, 2**48 + 29, None),
            id="submit",
        ),
        pytest.param(
            "dmem_buf_copyin", {"size": 4096}, ("runtime", "copy_in", 2, None, None, None, None, 4096), id="copy"
        ),
        pytest.param(
            "nrt_tensor_allocate", {"size": 4096}, ("runtime", "memory", 2, None, None, None, None, None), id="memory"
        ),
    ],
)
def test_an_attribute_counts_in_a_column_and_in_the_json_alike(tmp_path, name, attributes, expected):
    in_json = write(tmp_path, [row(name, extra_attributes_json=json.dumps(attributes))], "A.parquet")
    in_columns = write(tmp_path, [row(name, **attributes)], "B.parquet")
    one, other = (read(path).events_frame() for path in (in_json, in_columns))
    assert one.select(COLUMNS).rows() == [expected]
    assert one.equals(other)


def test_an_attribute_without_a_column_stays_an_attribute(tmp_path):
    extra = {"size": 4096, "usage_type": "weights", "tensor_id": "17", "hbm_idx": None}
    events = read(write(tmp_path, [row("nrt_dma_mem_alloc", extra_attributes_json=json.dumps(extra))])).events_frame()
    assert events["attrs_json"].to_list() == ['{"id":1,"size":4096,"tensor_id":17,"usage_type":"weights"}']


def test_an_id_that_does_not_fit_its_column_stays_an_attribute(tmp_path):
    extra = '{"exec_id": 18446744073709551616, "nc_idx": -1, "model_id": 14382885777943380728}'
    events = read(write(tmp_path, [row(nc_idx=None, id=None, extra_attributes_json=extra)])).events_frame()
    found = events.select("execution_id", "core_index", "model_id").row(0)
    assert found == (None, None, "14382885777943380728")
    assert json.loads(events["attrs_json"][0]) == {"exec_id": 18446744073709551616, "nc_idx": -1}


def test_framework_rows_are_read_where_the_session_has_no_trace_of_its_own(tmp_path):
    path = write(
        tmp_path,
        [
            framework("ProfilerStep#3", extra_attributes_json='{"External id": 9}'),
            framework("aten::mul", 1, extra_attributes_json='{"External id": 1}'),
            framework("aten::mul", 2, extra_attributes_json='{"External id": 1, "nrt_sequence_id": 5}'),
            framework("aten::mul", 3, framework_stream_id="0", extra_attributes_json='{"neff_cache_key": "mul--x"}'),
            framework("neuron::synchronize", 4),
            row(at=5),
        ],
    )
    events = read(path).events_frame()
    assert events.select("lane", "kind", "name", "external_id", "sequence_id", "stream_id", "model_id").rows() == [
        ("dispatch", "annotation", "ProfilerStep#3", 9, None, None, None),
        ("dispatch", "op", "aten::mul", 1, None, None, None),
        ("dispatch", "call", "aten::mul", 1, 5, None, None),
        ("stream", "call", "aten::mul", None, None, 0, "mul--x"),
        ("dispatch", "sync", "neuron::synchronize", None, None, None, None),
        ("runtime", "call", "kbl_exec_pre", None, None, None, None),
    ]


def test_framework_rows_of_a_traced_session_are_left_out_and_counted(tmp_path):
    path = write(tmp_path, [framework("aten::mul"), row(at=1), framework("aten::mul", 2, process_id=8)])
    sink = read(path, unwanted=frozenset({(SESSION, "dispatch"), (SESSION, "stream")}))
    assert sorted(sink.events_frame().select("session", "lane").rows()) == [
        ("i-1_pid_7", "runtime"),
        ("i-1_pid_8", "dispatch"),
    ]
    assert [n["event_count"] for n in sink.notes if n["code"] == "framework_repeats"] == [1]


def test_processes_of_one_file_become_sessions_with_rising_ids(tmp_path):
    rows = [row(at=n, process_id=7 + n % 2, instance_id=f"i-{n % 3}") for n in range(60)]
    events = read(write(tmp_path, rows)).events_frame()
    assert events.height == 60
    assert set(events["session"]) == {f"i-{i}_pid_{p}" for i in range(3) for p in (7, 8)}
    assert events.filter(session="i-2_pid_8")["start_ns"].is_sorted()


def test_many_batches_give_every_row_once(tmp_path, monkeypatch):
    monkeypatch.setattr(explorer, "BATCH_ROWS", 7)
    path = write(tmp_path, [row(at=n) for n in range(50)])
    sink = read(path)
    assert sink.events_frame()["start_ns"].to_list() == [T0 + n for n in range(50)]
    assert sink.largest_batch == 7
    assert sink.read_bytes == path.stat().st_size


@pytest.mark.parametrize("dropped", ["thread_id", "nc_idx", "process_id", "instance_id", "trace_event_source", "id"])
def test_an_optional_column_may_be_missing(tmp_path, dropped):
    kept = {name: value for name, value in row("nc_exec_running").items() if name != dropped}
    events = read(write(tmp_path, [kept])).events_frame()
    assert events.select("name", "lane", "start_ns").rows() == [("nc_exec_running", "hardware", T0)]


def test_without_an_end_the_duration_counts(tmp_path):
    kept = {name: value for name, value in row(length=25).items() if name != "end_ts"}
    assert read(write(tmp_path, [kept])).events_frame()["end_ns"].to_list() == [T0 + 25]


def test_numbers_may_be_text(tmp_path):
    texts = {"start_ts": str(T0), "end_ts": str(T0 + 3), "process_id": "7", "thread_id": "70", "nc_idx": "2"}
    events = read(write(tmp_path, [row(**texts)])).events_frame()
    found = events.select("start_ns", "end_ns", "process_id", "thread_id", "core_index").row(0)
    assert found == (T0, T0 + 3, 7, 70, 2)


@pytest.mark.parametrize(
    ("dropped", "named"),
    [(("start_ts",), "start_ts"), (("name",), "name"), (("end_ts", "duration_ns"), "end_ts")],
    ids=["start", "name", "end"],
)
def test_a_missing_required_column_is_named_with_the_schema_version(tmp_path, dropped, named):
    write(tmp_path, [{"profile_schema_version": "12.0.1"}], "SystemProfileMetadata.parquet")
    path = write(tmp_path, [{name: value for name, value in row().items() if name not in dropped}])
    with pytest.raises(SourceError) as caught:
        read(path)
    assert f"no column {named} (schema version 12.0.1" in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("cut", [0, 3, 100, -1], ids=["empty", "magic", "head", "last_byte"])
def test_a_file_that_is_no_whole_parquet_file_is_an_error_with_path_and_hint(tmp_path, cut):
    path = write(tmp_path, [row()])
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(SourceError) as caught:
        read(path)
    assert caught.value.path == path
    assert "neuron-explorer view" in caught.value.hint


def test_damage_inside_a_file_keeps_what_came_before(tmp_path, monkeypatch):
    path = tmp_path / "SystemProfileEvents.parquet"
    rows = pl.DataFrame([row(at=n, name=f"kbl_exec_pre_{n}") for n in range(40_000)], infer_schema_length=None)
    rows.write_parquet(path, row_group_size=10_000, compression="zstd")
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 4096] = b"\xff" * 4096
    path.write_bytes(data)
    monkeypatch.setattr(explorer, "BATCH_ROWS", 5_000)
    sink = read(path)
    starts = sink.events_frame()["start_ns"].to_list()
    assert 0 < len(starts) < 40_000
    assert starts == [T0 + n for n in range(len(starts))]
    assert "cut_file" in sink.note_codes()


def test_odd_rows_are_kept_or_counted(tmp_path):
    path = write(
        tmp_path,
        [
            row(at=0, extra_attributes_json="{broken"),
            row(at=1, length=-5),
            row(at=2) | {"start_ts": None},
            row("timestamp_sync_point", 3),
            row("nobody_described_this", 4),
            row("nobody_described_this", 5, trace_event_source="neuron_hw"),
            row(at=6, extra_attributes_json=None),
        ],
    )
    sink = read(path)
    events = sink.events_frame()
    assert events.select("name", "lane", "kind", pl.col("start_ns") - T0, pl.col("end_ns") - T0).rows() == [
        ("kbl_exec_pre", "runtime", "call", 0, 10),
        ("kbl_exec_pre", "runtime", "call", 1, 1),
        ("nobody_described_this", "runtime", "other", 4, 14),
        ("nobody_described_this", "hardware", "other", 5, 15),
        ("kbl_exec_pre", "runtime", "call", 6, 16),
    ]
    assert json.loads(events["attrs_json"][0])["extra_attributes_json"] == "{broken"
    counted = {note["code"]: note["event_count"] for note in sink.notes}
    assert counted == {
        "sync_points": 1,
        "missing_time": 1,
        "negative_duration": 1,
        "bad_attributes": 1,
        "unknown_events": 2,
    }


def test_usage_tables_become_samples(tmp_path):
    rows = [
        {"timestamp": T0, "cpu_id": "3", "util": "12.5", "instance_id": "i-1", "process_id": 7},
        {"timestamp": T0 + 1, "cpu_id": None, "util": "50", "instance_id": "i-1", "process_id": 7},
    ]
    samples = read(write(tmp_path, rows, "CpuUsage_1.parquet")).side_frame("samples")
    assert samples.select("session", "counter", "at_ns", "value", "unit").rows() == [
        (SESSION, "CpuUsage/util/cpu_id=3", T0, 12.5, "%"),
        (SESSION, "CpuUsage/util", T0 + 1, 50.0, "%"),
    ]


def test_device_memory_becomes_bytes_per_bank_and_core(tmp_path):
    rows = [{"timestamp_ns": T0, "hbm_idx": 1, "nc_idx": 2, "tensors_bytes": 10, "io_bytes": None}]
    samples = read(write(tmp_path, rows, "SystemProfileHbmUsage.parquet")).side_frame("samples")
    assert samples.select("counter", "core_index", "value", "unit").rows() == [
        ("SystemProfileHbmUsage/tensors_bytes/hbm_idx=1", 2, 10.0, "B")
    ]


def test_a_usage_table_without_times_is_an_error_that_names_the_column(tmp_path):
    with pytest.raises(SourceError, match="no column timestamp"):
        read(write(tmp_path, [{"usage": 3}], "HostMemUsage.parquet"))


def test_metadata_goes_to_a_note(tmp_path):
    path = write(tmp_path, [{"profile_schema_version": "12.0.1", "ntff_version": 6}], "SystemProfileMetadata.parquet")
    assert [n["message"] for n in read(path).notes] == ["profile_schema_version 12.0.1, ntff_version 6"]


def notes(sink: MemorySink) -> dict[object, str]:
    return {note["code"]: str(note["message"]) for note in sink.notes}


def test_the_first_row_without_a_time_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(explorer, "BATCH_ROWS", 2)
    rows = [row(at=i) for i in range(4)] + [row() | {"start_ts": None}, row(at=5), row() | {"name": None}]
    assert "the first is row 5" in notes(read(write(tmp_path, rows)))["missing_time"]


def test_times_that_a_float_rounds_are_noted(tmp_path):
    sink = read(write(tmp_path, [row() | {"start_ts": float(T0), "end_ts": float(T0 + 1024)}]))
    assert sink.events_frame().height == 1
    assert "end_ts, start_ts" in notes(sink)["rounded_times"]


def test_a_table_without_rows_is_noted(tmp_path):
    path = tmp_path / "SystemProfileEvents.parquet"
    pl.DataFrame([row()]).clear().write_parquet(path)
    assert set(notes(read(path))) == {"no_events"}
