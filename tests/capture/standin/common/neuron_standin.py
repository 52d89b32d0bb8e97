"""The simulated runtime behind both versions of the stand-in."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

INSTANCE = "i-0fedcba9876543210"
FIRST_SEQUENCE = 281474976710656
PHYSICAL_CORES = 2


@dataclass(frozen=True)
class Execution:
    """One execution of one graph; times in Unix ns."""

    name: str
    index: int
    launch_ns: int
    start_ns: int
    end_ns: int

    @property
    def model(self) -> str:
        return str(int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8], "big"))

    @property
    def cache_key(self) -> str:
        return f"{self.name}--_[4,512]:BFloat16:{hashlib.md5(self.name.encode()).hexdigest()}"


class Runtime:
    """One core; work runs in order, after the host has gone on."""

    def __init__(self) -> None:
        self.executions: list[Execution] = []
        self.record_from = 0
        self.synchronize_count = 0
        self.free_ns = 0

    def launch(self, name: str, duration_ns: int = 20_000_000) -> None:
        now = time.time_ns()
        start = max(now + 50_000, self.free_ns)
        self.free_ns = start + duration_ns
        self.executions.append(Execution(name, len(self.executions), now, start, self.free_ns))

    def synchronize(self) -> None:
        self.synchronize_count += 1
        left = self.free_ns - time.time_ns()
        if left > 0:
            time.sleep(left / 1e9)

    def finished(self, since_ns: int) -> list[Execution]:
        """What started in the window and has ended by now: the rest is lost, as on the device."""
        now = time.time_ns()
        return [e for e in self.executions if e.launch_ns >= since_ns and e.end_ns <= now]


RUNTIME = Runtime()


def session_directory(output_dir: str, *, with_time: bool) -> Path:
    directory = Path(output_dir) / f"{INSTANCE}_pid_{os.getpid()}"
    if with_time:
        directory /= str(time.time_ns())
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def write_runtime_files(directory: Path, modes: set[str], done: list[Execution], *, cache: str | None) -> None:
    """The files of the documented layout, by mode."""
    if "RUNTIME" in modes:
        (directory / "ntrace.pb").write_bytes(b"".join(_ntrace_events(done)))
        (directory / "trace_info.pb").write_bytes(_number(3, os.getpid()))
    if "CPU_UTIL" in modes:
        (directory / "cpu_util.pb").write_bytes(b"\x08\x01")
    if "HOST_MEMORY" in modes:
        (directory / "host_mem.pb").write_bytes(b"\x08\x01")
    if "DEVICE" in modes:
        body = b"NTFF" + bytes(124) if done else b""
        (directory / "profile_nc_0_session_0.ntff").write_bytes(body)
        for execution in {e.model: e for e in done}.values():
            if cache is None or "copy" in cache:
                (directory / f"neff_{execution.model}_vnc_0.neff").write_bytes(b"NEFF" + bytes(96))


def add_device_events(path: Path, done: list[Execution]) -> None:
    """Put the events of the PrivateUse1 profiler into Kineto's file."""
    trace = json.loads(path.read_bytes())
    base = int(trace.get("baseTimeNanoseconds", 0))
    thread = os.getpid()
    for execution in done:
        sequence = FIRST_SEQUENCE + execution.index
        for category, tid, start, end in (
            ("privateuse1_runtime", thread, execution.launch_ns, execution.launch_ns + 10_000),
            ("privateuse1_driver", 0, execution.launch_ns + 12_000, execution.end_ns),
        ):
            args = {"nrt_sequence_id": sequence, "neff_cache_key": execution.cache_key}
            event = {"ph": "X", "cat": category, "name": execution.name, "pid": os.getpid(), "tid": tid}
            event |= {"ts": (start - base) / 1000, "dur": (end - start) / 1000, "args": args}
            trace["traceEvents"].append(event)
    path.write_text(json.dumps(trace))


def inspect_at_exit(modes: set[str]) -> None:
    """NEURON_RT_INSPECT_ENABLE=1: layout B when the process ends, first executions skipped."""
    skip = int(os.environ.get("NEURON_RT_INSPECT_DEVICE_PROFILE_NUM_WARMUP", "0"))
    started = time.time_ns()

    def write() -> None:
        done = RUNTIME.finished(started)
        if not done:
            return
        directory = session_directory(os.environ["NEURON_RT_INSPECT_OUTPUT_DIR"], with_time=False)
        write_runtime_files(directory, {"RUNTIME"}, done, cache=None)
        profile = os.environ.get("NEURON_RT_INSPECT_DEVICE_PROFILE", "0")
        for model in sorted({e.model for e in done}) if profile in ("1", "model") else ():
            (directory / f"neff_{model}.neff").write_bytes(b"NEFF" + bytes(96))
            if sum(e.model == model for e in done) > skip:
                (directory / f"{model}_instid_0_vnc_0.ntff").write_bytes(b"NTFF" + bytes(124))

    atexit.register(write)


# --- protobuf, as far as ntrace.pb needs it ---------------------------------------------------------


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _attribute(name: str, value: object) -> bytes:
    return _bytes(12, _bytes(1, name.encode()) + _bytes(2, str(value).encode()))


def _ntrace_events(done: list[Execution]) -> list[bytes]:
    events: list[tuple[int, bytes]] = []
    tracking = 0

    def span(kind: int, start_ns: int, end_ns: int, attributes: dict[str, object], sequence: int | None) -> None:
        nonlocal tracking
        tracking += 1
        for at_ns, phase, named in ((start_ns, 1, attributes), (end_ns, 2, {})):
            body = _number(1, at_ns) + _number(4, 0) + _number(5, kind) + _number(8, os.getpid())
            body += _number(9, len(events) + 1) + b"".join(_attribute(k, v) for k, v in named.items())
            body += _number(13, phase) + _number(14, tracking)
            if sequence is not None:
                body += _number(16, sequence)
            events.append((at_ns, _bytes(1, body)))

    for execution in done:
        sequence = FIRST_SEQUENCE + execution.index
        names: dict[str, object] = {"exec_id": execution.index + 1, "model_id": execution.model}
        submit = execution.launch_ns + 14_000
        span(4, submit, submit + 4_000, {"nrta_seq_id": sequence, "model_id": execution.model}, sequence)
        span(17, submit + 5_000, submit + 9_000, names, None)
        span(19, submit + 10_000, execution.end_ns + 2_000, names, None)
        for core in range(PHYSICAL_CORES):
            span(7, execution.start_ns, execution.end_ns, {**names, "device_core_idx": core}, None)
    return [data for _, data in sorted(events, key=lambda entry: entry[0])]
