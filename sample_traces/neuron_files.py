"""Write a made-up capture in the documented formats.

trace.json is Kineto's Chrome trace (microseconds with three decimals, relative to
``baseTimeNanoseconds``); ntrace.pb follows the hypothesised protobuf layout, its hardware events on a
device clock of their own; explorer/ holds the tables Neuron Explorer would export for the same run.
NEFF and NTFF files are placeholders: only their names are as documented.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from neuron_plan import START_NS, Args, Execution, HostEvent, Process, SystemEvent

HOST_NAME = "made-up-sample"
NOTE = "Made up by sample_traces/make_neuron.py: nothing here was measured on a device."
STREAM = 0
KINETO_BASE_STEP_NS = 7_889_238 * 10**9
BASE_NS = START_NS // KINETO_BASE_STEP_NS * KINETO_BASE_STEP_NS
DEVICE_CLOCK_AHEAD_NS = 3_141_592_653
EVENT_TYPES = {
    "model_load": 1, "nc_exec_running": 7, "cc_running": 8, "nrt_tensor_read": 9, "nrt_tensor_write": 10,
    "kbl_exec_pre": 17, "kbl_exec_wait": 19, "kbl_exec_post": 20, "nrt_model_submit": 22,
    "timestamp_sync_point": 25, "nc_model_switch": 26, "dmem_buf_copyin": 30, "dmem_buf_copyout": 31,
    "nrta_execute_schedule": 4,
}  # fmt: skip
"""Numbers of ntrace.pb's event types. No public source names one for nrta_execute_schedule: it shares
runtime_execute's."""


def cache_key(execution: Execution) -> str:
    """Return a NEFF cache key: operation, input signature, digest."""
    shape = ",".join(str(n) for n in execution.dims[0])
    digest = f"{execution.model_id:032x}"
    return f"{execution.op.removeprefix('aten::')}--_[{shape}]:BFloat16:S(C)_i1:{digest}"


def framework_events(process: Process) -> list[HostEvent]:
    """Return every event of trace.json, sorted by start; the stream stands for the thread of driver events."""
    events = list(process.host)
    for e in process.executions:
        ids: Args = {"External id": e.external_id}
        launch: Args = {**ids, "nrt_sequence_id": e.sequence_id}
        shapes: Args = {"Input Dims": e.dims, "Input type": ["c10::BFloat16"] * len(e.dims)}
        end = process.end_ns() if e.cut else e.wait[1] + 1_500
        driver = (e.submit[0] - 600, end)
        events += [
            HostEvent("cpu_op", e.op, e.thread, e.dispatch, {**ids, **shapes}),
            HostEvent("privateuse1_runtime", e.op, e.thread, e.runtime, launch),
            HostEvent("privateuse1_driver", e.op, STREAM, driver, {**launch, "neff_cache_key": cache_key(e)}),
        ]
    return sorted(events, key=lambda e: (e.span[0], -e.span[1]))


def microseconds(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def chrome_event(process: Process, event: HostEvent) -> str:
    """Return one complete event as Kineto prints it."""
    start, end = event.span
    return (
        f'  {{\n    "ph": "X", "cat": "{event.category}", "name": {json.dumps(event.name)}, '
        f'"pid": {process.pid}, "tid": {event.thread},\n'
        f'    "ts": {microseconds(start - BASE_NS)}, "dur": {microseconds(end - start)},\n'
        f'    "args": {json.dumps(event.args)}\n  }}'
    )


def write_chrome(process: Process, world_size: int, path: Path) -> None:
    """Write trace.json."""
    head: Args = {"schemaVersion": 1, "deviceProperties": [], "record_shapes": 1, "host_name": HOST_NAME}
    if world_size > 1:
        head["distributedInfo"] = {"backend": "neuron", "rank": process.rank, "world_size": world_size}
    head |= {"note": NOTE, "displayTimeUnit": "ms", "baseTimeNanoseconds": BASE_NS}
    name = (
        f'  {{\n    "ph": "M", "name": "process_name", "ts": {microseconds(START_NS - BASE_NS)}, '
        f'"pid": {process.pid}, "tid": 0,\n    "args": {{"name": "python (made up)"}}\n  }}'
    )
    events = [name, *(chrome_event(process, e) for e in framework_events(process))]
    lines = [f'  "{key}": {json.dumps(value)},' for key, value in head.items()]
    text = "{\n" + "\n".join(lines) + '\n  "traceEvents": [\n' + ",\n".join(events)
    path.write_text(text + '\n  ],\n  "traceName": "trace.json"\n}\n', encoding="utf-8")


def system_events(process: Process) -> list[SystemEvent]:
    """Return the runtime's and the hardware's events, sorted by start; spans without an end end at -1."""
    events = list(process.system)
    thread = process.pid + 7
    for e in process.executions:
        model: Args = {"model_id": str(e.model_id)}
        ids: Args = {"exec_id": e.exec_id, **model}
        submitted = {"nrta_seq_id": e.sequence_id, **model}
        events += [
            SystemEvent("nrta_execute_schedule", e.submit, thread, None, submitted),
            SystemEvent("nrt_model_submit", (e.submit[0] + 1_000, e.submit[1] - 500), thread, None, model),
            SystemEvent("kbl_exec_pre", e.pre, thread, None, ids),
        ]
        if e.cut:
            if e.wait[0] < process.end_ns():
                events.append(SystemEvent("kbl_exec_wait", (e.wait[0], -1), thread + 2, None, ids))
            continue
        events += [
            SystemEvent("kbl_exec_wait", e.wait, thread + 2, None, ids),
            SystemEvent("kbl_exec_post", e.post, thread + 2, None, ids),
        ]
        begin, end = e.hardware
        parts = ((begin, end - 200), (begin + 300, end))
        for core, part in zip(process.physical_cores, parts, strict=True):
            events.append(SystemEvent("nc_exec_running", part, thread, core, {**ids, "device_core_idx": core}))
    return sorted(events, key=lambda e: (e.span[0], -e.span[1]))


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(tag: int, value: int) -> bytes:
    """Encode a protobuf varint field."""
    return varint(tag << 3) + varint(value)


def block(tag: int, value: bytes) -> bytes:
    """Encode a length-delimited protobuf field."""
    return varint(tag << 3 | 2) + varint(len(value)) + value


def ntrace_event(event: SystemEvent, at: int, phase: int, tracking: int, data: Args) -> bytes:
    """Encode one ``ntrace_event``: phase 1 starts a span, 2 stops it, 3 is an instant."""
    fields = number(1, at) + number(4, 0) + number(5, EVENT_TYPES[event.name])
    fields += number(8, event.thread) + number(9, 4 * tracking + phase)
    for key, value in data.items():
        fields += block(12, block(1, key.encode()) + block(2, str(value).encode()))
    fields += number(13, phase) + number(14, tracking)
    sequence = event.args.get("nrta_seq_id")
    return fields + number(16, sequence) if isinstance(sequence, int) else fields


def ntrace_records(process: Process) -> Iterator[tuple[int, bytes]]:
    """Yield (time of writing, encoded event): hardware on the device clock, one sync point per execution."""
    for index, event in enumerate(system_events(process), start=1):
        on_device = event.physical_core is not None
        shift = DEVICE_CLOCK_AHEAD_NS if on_device else 0
        for phase, at in ((1, event.span[0]), (2, event.span[1])):
            if at < 0:
                continue
            data = dict(event.args) if phase == 1 else {}
            if on_device:
                core: Args = {"device_core_idx": event.physical_core} if phase == 1 else {}
                data |= {**core, "nc_timestamp_ns": at + shift}
            yield at, ntrace_event(event, at + shift, phase, index, data)
        if event.name == "kbl_exec_post":
            at, marker = event.span[0], 10**9 + index
            point = SystemEvent("timestamp_sync_point", event.span, event.thread)
            data = {"exec_id": event.args["exec_id"], "cpu_timestamp_ns": at}
            data["nc_timestamp_ns"] = at + DEVICE_CLOCK_AHEAD_NS
            yield at, ntrace_event(point, at + DEVICE_CLOCK_AHEAD_NS, 3, marker, data)


def write_process(process: Process, world_size: int, label: str, capture: Path) -> None:
    """Write one process's directory: traces, protobufs, placeholders, manifest."""
    folder = capture / f"{process.instance}_pid_{process.pid}" / str(START_NS)
    folder.mkdir(parents=True, exist_ok=True)
    write_chrome(process, world_size, folder / "trace.json")
    records = sorted(ntrace_records(process), key=lambda r: r[0])
    (folder / "ntrace.pb").write_bytes(b"".join(block(1, record) for _, record in records))
    (folder / "trace_info.pb").write_bytes(block(1, HOST_NAME.encode()) + number(3, process.pid))
    for model_id in process.models.values():
        graph = bytes(1024) + f"{NOTE} A real NEFF is a compiled graph.\n".encode()
        (folder / f"neff_{model_id}_vnc_0.neff").write_bytes(graph)
    (folder / "profile_nc_0_session_0.ntff").write_bytes(bytes(128) + NOTE.encode() + b"\n")
    text = json.dumps(manifest(process, world_size, label), indent=2)
    (folder / "capture.json").write_text(text + "\n", encoding="utf-8")


def manifest(process: Process, world_size: int, label: str) -> Args:
    """Return capture.json: the sections of a real one that a made-up capture can fill."""
    note = {"severity": "note", "code": "made_up", "message": NOTE, "hint": "use it to try tracekit, not as a result"}
    return {
        "schema_version": 1, "note": NOTE, "tool": {"name": "sample_traces/make_neuron.py", "version": "1"},
        "status": "complete" if not any(e.cut for e in process.executions) else "incomplete",
        "reason": None if not any(e.cut for e in process.executions) else "stopped without synchronising",
        "device": {"kind": "neuron", "logical_core_size": 2, "core_count": 1},
        "process": {"pid": process.pid, "rank": process.rank, "world_size": world_size},
        "labels": {"sample": label, "made_up": "yes"}, "notes": [note],
    }  # fmt: skip


EXPLORER = pa.schema(
    [(n, pa.int64()) for n in ("id",)]
    + [("name", pa.string())]
    + [(n, pa.int64()) for n in ("start_ts", "end_ts", "duration_ns")]
    + [("trace_event_source", pa.string()), ("instance_id", pa.string())]
    + [(n, pa.int64()) for n in ("process_id", "thread_id", "nc_idx", "pcore_idx", "worker_gid")]
    + [("flow_id", pa.list_(pa.string())), ("framework_stream_id", pa.string())]
    + [("extra_attributes_json", pa.string())]
)


def flow_ids(args: Args, sequence_of: dict[object, int]) -> list[str] | None:
    """Return the ids that tie an event to its neighbours: sequence number, then execution number."""
    sequence = args.get("nrta_seq_id") or args.get("nrt_sequence_id") or sequence_of.get(args.get("exec_id"))
    ids = [str(i) for i in (sequence, args.get("exec_id")) if i is not None]
    return ids or None


def explorer_rows(process: Process) -> list[Args]:
    """Return ``SystemProfileEvents`` of one process; what never ended is not exported."""
    sequence_of: dict[object, int] = {e.exec_id: e.sequence_id for e in process.executions}
    common: Args = {"instance_id": process.instance, "process_id": process.pid}
    rows: list[Args] = []
    for event in framework_events(process):
        driver = event.category == "privateuse1_driver"
        rows.append({
            **common, "name": f"{event.name} [trace.json]", "trace_event_source": "framework",
            "start_ts": event.span[0], "end_ts": event.span[1], "thread_id": event.thread,
            "flow_id": flow_ids(event.args, sequence_of), "framework_stream_id": str(STREAM) if driver else None,
            "extra_attributes_json": json.dumps(event.args),
        })  # fmt: skip
    for e in system_events(process):
        if e.span[1] < 0:
            continue
        hardware = e.physical_core is not None
        rows.append({
            **common, "name": e.name, "trace_event_source": "neuron_hw" if hardware else "neuron_rt",
            "start_ts": e.span[0], "end_ts": e.span[1], "thread_id": e.thread, "nc_idx": 0,
            "pcore_idx": e.physical_core, "worker_gid": process.rank, "flow_id": flow_ids(e.args, sequence_of),
            "framework_stream_id": None, "extra_attributes_json": json.dumps(e.args),
        })  # fmt: skip
    return rows


def write_explorer(processes: list[Process], folder: Path) -> None:
    """Write the system tables of Neuron Explorer's Parquet export."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = sorted((r for p in processes for r in explorer_rows(p)), key=lambda r: (r["start_ts"], r["process_id"]))
    for index, row in enumerate(rows, start=1):
        row["id"] = index
        row["duration_ns"] = int(str(row["end_ts"])) - int(str(row["start_ts"]))
    table = pa.Table.from_pylist([{n: r.get(n) for n in EXPLORER.names} for r in rows], schema=EXPLORER)
    pq.write_table(table, folder / "SystemProfileEvents.parquet", compression="zstd")
    metadata = {
        "first_ts_ns": [str(START_NS)], "last_ts_ns": [str(max(p.end_ns() for p in processes))],
        "ntff_version": [6], "hbm_capacity_bytes": [25_769_803_776],
    }  # fmt: skip
    pq.write_table(pa.table(metadata), folder / "SystemProfileMetadata.parquet", compression="zstd")
