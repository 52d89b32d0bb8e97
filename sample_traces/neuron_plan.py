"""A made-up Neuron device: what ran when, on the host, in the runtime and on the cores.

Nothing here was measured. ``Process`` plays one process with one logical core (two physical cores,
LNC=2): a host that dispatches, a runtime queue of a given depth and a device that executes in order.
Every time is an integer number of nanoseconds since the Unix epoch.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

START_NS = 1_767_225_600_000_000_000
"""Midnight UTC of 2026-01-01: when every made-up capture begins."""
FIRST_SEQUENCE = 1 << 48
"""Sequence numbers name their queue in the high bits; queue 1 starts here."""

Span = tuple[int, int]
Args = dict[str, object]


@dataclass
class Execution:
    """One launched operation and, unless the capture was cut, its execution on the device."""

    op: str
    thread: int
    external_id: int
    sequence_id: int
    exec_id: int
    model_id: int
    dims: list[list[int]]
    dispatch: Span
    runtime: Span
    submit: Span
    pre: Span
    wait: Span
    post: Span
    hardware: Span
    cut: bool = False


@dataclass
class HostEvent:
    """One event of trace.json that launches nothing."""

    category: str
    name: str
    thread: int
    span: Span
    args: Args = field(default_factory=dict)


@dataclass
class SystemEvent:
    """One event of the system trace that is not a stage of an execution."""

    name: str
    span: Span
    thread: int
    physical_core: int | None = None
    args: Args = field(default_factory=dict)


class Process:
    """One process that owns logical core 0 (of its own numbering) and two physical cores."""

    def __init__(self, pid: int, rank: int, *, depth: int, seed: int, slow_percent: int = 0) -> None:
        self.pid, self.rank, self.depth, self.slow_percent = pid, rank, depth, slow_percent
        self.instance = "i-0sample00madeup00"
        self.physical_cores = (2 * rank, 2 * rank + 1)
        self.thread = pid
        self.random = random.Random(seed)
        self.host_ns = START_NS
        self.device_free_ns = self.device_ready_ns = START_NS
        self.models: dict[str, int] = {}
        self.executions: list[Execution] = []
        self.host: list[HostEvent] = []
        self.system: list[SystemEvent] = []
        self.next_external_id = 1

    def model_of(self, op: str) -> int:
        """Return the NEFF of an operation: beyond 2^63, as real hashes are."""
        return self.models.setdefault(op, 14_000_000_000_000_000_000 + 104_729 * (len(self.models) + 1) + self.pid)

    def external(self) -> int:
        self.next_external_id += 1
        return self.next_external_id - 1

    def host_op(self, name: str, span: Span, category: str = "cpu_op", args: Args | None = None) -> None:
        """Add a host event without a launch."""
        extra: Args = {"External id": self.external()} if category == "cpu_op" else {}
        self.host.append(HostEvent(category, name, self.thread, span, extra | (args or {})))

    def launch(
        self, op: str, device_ns: int, dims: list[list[int]] | None = None, wrapper: str | None = None
    ) -> Execution:
        """Dispatch an operation; the runtime submits it as soon as the queue has room."""
        lead = 1_500 if wrapper else 0
        start = self.host_ns + lead
        length = 18_000 + self.random.randrange(9_000)
        runtime = (start + length // 3, start + length - 2_100)
        number = len(self.executions)
        room = self.executions[number - self.depth].post[1] if number >= self.depth else 0
        submitted = max(runtime[0] + 8_000, room + 4_000)
        submit = (submitted, submitted + 4_000)
        pre = (submit[1] + 500, submit[1] + 5_000)
        begin = max(pre[1] + 6_000, self.device_free_ns + 2_600, self.device_ready_ns + 1_200)
        end = begin + device_ns + device_ns * self.slow_percent // 100
        waiting = max(pre[1] + 400, self.executions[-1].post[1] + 200) if number else pre[1] + 400
        wait = (waiting, max(end, waiting) + 6_000)
        execution = Execution(
            op, self.thread, self.external(), FIRST_SEQUENCE + number, number + 1, self.model_of(op),
            dims or [[4, 512]], (start, start + length), runtime, submit, pre, wait,
            (wait[1] + 500, wait[1] + 3_000), (begin, end),
        )  # fmt: skip
        self.executions.append(execution)
        self.device_free_ns = end
        if wrapper:
            self.host_op(wrapper, (self.host_ns, execution.dispatch[1] + 1_000))
        self.host_ns = execution.dispatch[1] + (3_000 if wrapper else 2_000)
        return execution

    def copy_in(self, moved_bytes: int) -> None:
        """Write to the device: a tensor write and, below it, the copy of the same bytes."""
        start, length = self.host_ns, 6_000 + moved_bytes // 8
        copy = (start + 5_000, start + 5_000 + length)
        self._copy(("aten::copy_", "nrt_tensor_write", "dmem_buf_copyin"), start, copy, moved_bytes)

    def read_scalar(self) -> None:
        """Read one float32 back, as ``item()`` does: the host waits for the device first."""
        start = self.host_ns
        ready = max(start + 6_000, self.executions[-1].post[1])
        copy = (ready + 2_000, ready + 9_000)
        self.host_op("aten::item", (start, copy[1] + 5_000))
        self.host_ns = start + 1_000
        self._copy(("aten::_local_scalar_dense", "nrt_tensor_read", "dmem_buf_copyout"), start + 1_000, copy, 4)

    def _copy(self, names: tuple[str, str, str], start: int, copy: Span, moved_bytes: int) -> None:
        operation, call, transfer = names
        self.host_op(operation, (start, copy[1] + 3_000), args={"Input Dims": [[], []]})
        args: Args = {"size": moved_bytes, "tensor_id": 7_000 + len(self.system)}
        self.system.append(SystemEvent(call, (copy[0] - 1_000, copy[1] + 1_000), self.thread, None, args))
        self.system.append(SystemEvent(transfer, copy, self.thread, None, args))
        self.device_ready_ns = copy[1] + 1_000
        self.host_ns = copy[1] + 6_000

    def compile_and_load(self, ops: list[str]) -> None:
        """Spend the first step's extra time: one compilation, then a load per model."""
        start = self.host_ns
        self.host_op("_compile.compile_inner (dynamo_timed)", (start, start + 42_000_000), "user_annotation")
        self.host_ns = start + 42_050_000
        for op in ops:
            span = (self.host_ns, self.host_ns + 1_310_000 + self.random.randrange(90_000))
            args: Args = {"model_id": str(self.model_of(op)), "model_name": f"{op}.neff"}
            self.system.append(SystemEvent("model_load", span, self.thread, None, args))
            self.host_ns = span[1] + 20_000

    def switch_model(self) -> None:
        """Let the core change its model after what it runs now."""
        start = max(self.device_free_ns, self.device_ready_ns) + 3_000
        self.system.append(
            SystemEvent("nc_model_switch", (start, start + 34_000), self.pid + 7, self.physical_cores[0])
        )
        self.device_ready_ns = start + 34_000

    def collective_start(self) -> int:
        """Return when this core's part of a collective begins: shortly before its last execution ends."""
        return self.device_free_ns - 40_000

    def collective(self, span: Span, moved_bytes: int) -> None:
        """Add an all-reduce of float32 gradients on both physical cores."""
        start = self.host_ns
        args: Args = {
            "Collective name": "allreduce", "In msg nelems": moved_bytes // 4, "Out msg nelems": moved_bytes // 4,
            "dtype": "Float", "Group size": 2, "Process Group Name": "0",
        }  # fmt: skip
        self.host_op("c10d::allreduce_", (start, start + 14_000))
        self.host_op("record_param_comms", (start + 2_000, start + 12_000), args=args)
        self.host_ns = start + 16_000
        last = self.executions[-1]
        for core, shift in zip(self.physical_cores, (0, 250), strict=True):
            data: Args = {"exec_id": last.exec_id, "model_id": str(last.model_id), "size": moved_bytes}
            self.system.append(SystemEvent("cc_running", (span[0] + shift, span[1]), self.pid + 7, core, data))
        self.device_ready_ns = span[1]

    def synchronize(self) -> None:
        """Block the host until everything submitted has finished."""
        end = max(self.host_ns, self.executions[-1].post[1]) + 4_000
        self.host_op("neuron::synchronize", (self.host_ns, end), "privateuse1_runtime")
        self.host_ns = end + 2_000

    def step(self, number: int, start: int) -> None:
        """Close a profiler step that began at ``start``."""
        self.host_op(f"ProfilerStep#{number}", (start, self.host_ns), "user_annotation")
        self.host_ns += 30_000

    def stop_without_synchronizing(self, after: Execution) -> None:
        """End the capture while the device still works: ``after`` is the last execution it holds."""
        self.host_ns = max(self.host_ns, after.post[1] + 20_000)
        for execution in self.executions:
            execution.cut = execution.post[1] > self.host_ns

    def executed(self) -> list[Execution]:
        """Return the executions the capture holds, in order of the device."""
        return [e for e in self.executions if not e.cut]

    def end_ns(self) -> int:
        """Return when this process's capture ends."""
        return self.host_ns
