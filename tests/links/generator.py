"""Made-up captures with known truth: who launched what, whatever happened to the rows on the way.

A plan is played on one host thread, one runtime worker and some physical cores per session, all sessions with the
same ids. Every event remembers the execution that owns it, so that a test can tell an invented link.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import polars as pl

from tracekit import tables

START_NS = 1_796_052_700_000_000_000
FIRST_SEQUENCE = 1 << 48
OPS = ("aten::mul", "aten::mm", "aten::add", "aten::relu")
Owner = tuple[str, int]
"""Session and number of an execution in it."""


@dataclass(frozen=True)
class Plan:
    """What to make up.

    ``drop`` is the share of rows that get lost, ``skew_ns`` what the runtime's and the hardware's clock are ahead of
    the framework's. ``queue`` submits that many executions before the first one starts. ``per_model`` lets exec ids
    count per model instead of per core.
    """

    seed: int = 0
    sessions: int = 1
    cores: int = 1
    executions: int = 10
    models: int = 3
    queue: int = 1
    per_model: bool = False
    drop: float = 0.0
    cut_tail: int = 0
    skew_ns: tuple[int, int] = (0, 0)
    twins: bool = False
    external_ids: bool = True
    lanes: tuple[str, ...] = tables.LANES
    shuffle: bool = True


@dataclass
class Capture:
    """Rows of ``tables.EVENTS`` and what is true about them."""

    events: pl.DataFrame
    owners: dict[int, Owner]
    roles: dict[int, str]
    times: dict[int, tuple[int, int]]
    names: dict[Owner, str]

    @property
    def sessions(self) -> pl.DataFrame:
        named = self.events["session"].unique().sort().to_list()
        return tables.SESSIONS.rows([{"session": s, "path": s, "process_id": 4242} for s in named])

    def events_of(self, owner: Owner) -> dict[str, list[int]]:
        """Events of an execution that survived, by role."""
        found: dict[str, list[int]] = {}
        for event, other in sorted(self.owners.items()):
            if other == owner:
                found.setdefault(self.roles[event], []).append(event)
        return found


@dataclass
class _Writer:
    rows: list[dict[str, object]] = field(default_factory=list)
    owners: dict[int, Owner] = field(default_factory=dict)
    roles: dict[int, str] = field(default_factory=dict)
    names: dict[Owner, str] = field(default_factory=dict)

    def add(self, role: str, owner: Owner | None, session: str, start: int, end: int, **columns: object) -> None:
        event_id = len(self.rows) * 3 + 1
        row = {"event_id": event_id, "session": session, "is_primary": True, "start_ns": start, "end_ns": end}
        self.rows.append(row | columns)
        if owner is not None and row["is_primary"] and columns.get("is_primary", True):
            self.owners[event_id] = owner
            self.roles[event_id] = role


def neuron(plan: Plan) -> Capture:
    """Play ``plan`` on Neuron cores."""
    writer, rng = _Writer(), random.Random(plan.seed)
    for number in range(plan.sessions):
        _session(writer, plan, f"i-0123_pid_{4242 + number}", 4242, rng)
    return _capture(writer, plan, rng)


def _session(writer: _Writer, plan: Plan, session: str, process: int, rng: random.Random) -> None:
    """One process: dispatch runs ahead, each core's worker submits in order, each core runs in order."""
    counters: dict[object, int] = {}
    host = START_NS + rng.randrange(5_000)
    free = [host] * plan.cores
    planned: list[list[tuple[int, int, str, int]]] = [[] for _ in range(plan.cores)]
    for number in range(plan.executions):
        core = rng.randrange(plan.cores)
        model = rng.randrange(plan.models)
        op = OPS[model % len(OPS)]
        sequence = FIRST_SEQUENCE * (core + 1) + counters.setdefault(("seq", core), 0)
        counters["seq", core] += 1
        writer.names[session, number] = op
        _dispatch(writer, plan, (session, number), process, host, op, sequence, core)
        planned[core].append((number, host + 9_000, str(10**19 + model), sequence))
        host += 20_000 + rng.randrange(4_000)
        if rng.random() < 0.2:
            _noise(writer, session, process, host)
            host += 30_000
    for core, executions in enumerate(planned):
        _core(writer, plan, session, process, core, executions, free[core], rng)


def _dispatch(
    writer: _Writer, plan: Plan, owner: Owner, process: int, host: int, op: str, sequence: int, core: int
) -> None:
    session, number = owner
    external = number + 1 if plan.external_ids else None
    place = {"process_id": process, "thread_id": process, "source": "kineto"}
    writer.add("outer", None, session, host - 500, host + 15_500, lane="dispatch", kind="op", name="wrapper", **place)
    ids = {"external_id": external}
    writer.add("op", owner, session, host, host + 15_000, lane="dispatch", kind="op", name=op, **place, **ids)
    ids |= {"sequence_id": sequence}
    call = {"lane": "dispatch", "kind": "call", "category": "privateuse1_runtime"}
    writer.add("call", owner, session, host + 3_000, host + 12_000, name=op, **call, **place, **ids)
    stream = {"lane": "stream", "kind": "call", "stream_id": core, "category": "privateuse1_driver"}
    place["thread_id"] = core
    writer.add("stream", owner, session, host + 11_000, host + 13_000, name=op, **stream, **place, **ids)


def _noise(writer: _Writer, session: str, process: int, host: int) -> None:
    """Events that no chain may hold."""
    place = {"process_id": process, "thread_id": process}
    noise = (
        ("dispatch", "op", "aten::view", "kineto"),
        ("dispatch", "sync", "neuron::synchronize", "kineto"),
        ("runtime", "copy_out", "nrt_tensor_read", "system_json"),
        ("hardware", "sync", "cc_exec_barrier", "system_json"),
        ("hardware", "annotation", "step", "kineto"),
    )
    for lane, kind, name, source in noise:
        writer.add("noise", None, session, host, host + 9_000, lane=lane, kind=kind, name=name, source=source, **place)


def _core(
    writer: _Writer,
    plan: Plan,
    session: str,
    process: int,
    core: int,
    executions: list[tuple[int, int, str, int]],
    free: int,
    rng: random.Random,
) -> None:
    """Submit and run what one core got; with a queue, submits come before earlier executions start."""
    runtime_skew, hardware_skew = plan.skew_ns
    counters: dict[str, int] = {}
    starts: list[int] = []
    submitted = free
    for position, (number, ready, model, sequence) in enumerate(executions):
        owner = (session, number)
        place = {"process_id": process, "thread_id": 9_000 + core, "core_index": core, "source": "system_json"}
        counter = model if plan.per_model else ""
        counters[counter] = execution_id = counters.get(counter, 0) + 1
        submit = max(ready, submitted + 4_000, starts[position - plan.queue] if position >= plan.queue else 0)
        pre = max(submit + 4_500, free)
        begin = pre + 5_000 + rng.randrange(2_000)
        end = begin + 20_000 + rng.randrange(30_000)
        starts.append(end + 7_000 if plan.queue == 1 else pre)
        submitted, free = submit, end + 8_000
        call = {"lane": "runtime", "kind": "call", "model_id": model} | place
        at = runtime_skew
        name = "nrta_execute_schedule"
        span = (session, submit + at, submit + 4_000 + at)
        worker = place["thread_id"]
        call["thread_id"] = worker if plan.queue == 1 else process
        writer.add("submit", owner, *span, name=name, sequence_id=sequence, **call)
        nested = (session, submit + 500 + at, submit + 3_500 + at)
        writer.add("nested", owner, *nested, name="nrt_model_submit", **call)
        call |= {"execution_id": execution_id, "thread_id": worker}
        writer.add("pre", owner, session, pre + at, pre + 4_000 + at, name="kbl_exec_pre", **call)
        post = {"name": "kbl_exec_post", **call}
        writer.add("post", owner, session, end + 5_000 + at, end + 6_000 + at, **post)
        call["kind"] = "sync"
        writer.add("wait", owner, session, pre + 4_500 + at, end + 4_000 + at, name="kbl_exec_wait", **call)
        if position >= len(executions) - plan.cut_tail:
            continue
        _hardware(writer, plan, owner, (begin + hardware_skew, end + hardware_skew), call)


def _hardware(writer: _Writer, plan: Plan, owner: Owner, span: tuple[int, int], columns: dict[str, object]) -> None:
    """Both physical cores of one execution, and its twin in the framework's trace."""
    work = columns | {"lane": "hardware", "kind": "execution", "name": "nc_exec_running"}
    core = int(str(columns["core_index"]))
    for part, shift in ((0, 0), (1, 300)):
        place = {"physical_core": core * 2 + part}
        writer.add(f"hw{part}", owner, owner[0], span[0] + shift, span[1] - shift, **work | place)
    if plan.twins:
        twin = {"lane": "hardware", "kind": "execution", "name": "kernel", "source": "kineto", "is_primary": False}
        writer.add("twin", owner, owner[0], *span, correlation_id=owner[1] + 1, **twin)


def _capture(writer: _Writer, plan: Plan, rng: random.Random) -> Capture:
    lost = {role: {o for o in writer.names if rng.random() < plan.drop} for role in sorted(set(writer.roles.values()))}
    lost["nested"] = lost.get("submit", set())
    rows = [
        r
        for r in writer.rows
        if r["lane"] in plan.lanes
        and writer.owners.get(int(str(r["event_id"])))
        not in lost.get(writer.roles.get(int(str(r["event_id"])), ""), ())
    ]
    if plan.shuffle:
        rng.shuffle(rows)
    kept = {int(str(r["event_id"])) for r in rows}
    times = {int(str(r["event_id"])): (int(str(r["start_ns"])), int(str(r["end_ns"]))) for r in rows}
    owners = {e: o for e, o in writer.owners.items() if e in kept}
    return Capture(tables.EVENTS.rows(rows), owners, writer.roles, times, writer.names)


def gpu(plan: Plan, *, graph: int = 0, nested: bool = True) -> Capture:
    """Play ``plan`` on one GPU per session: a runtime call per execution, ``graph`` kernels for every fifth."""
    writer, rng = _Writer(), random.Random(plan.seed)
    for part in range(plan.sessions):
        session, host, free = f"rank{part}", START_NS + rng.randrange(1_000), START_NS
        for number in range(plan.executions):
            owner = (session, number)
            op = OPS[rng.randrange(len(OPS))]
            writer.names[owner] = op
            ids = {"external_id": number + 1 if plan.external_ids else None, "correlation_id": number + 101}
            place = {"process_id": 77, "thread_id": 77 + rng.randrange(2), "source": "kineto"}
            dispatch = {"lane": "dispatch", "kind": "op", **place}
            if nested:
                writer.add("outer", None, session, host - 200, host + 9_200, name="wrapper", **dispatch)
            own = {"external_id": ids["external_id"]}
            writer.add("op", owner, session, host, host + 9_000, name=op, **dispatch, **own)
            call = {"lane": "runtime", "kind": "call", "name": "cudaLaunchKernel", **place, **ids}
            writer.add("call", owner, session, host + 2_000, host + 6_000, **call)
            for _ in range(graph if graph and number % 5 == 0 else 1):
                begin = max(host + 7_000, free) + rng.randrange(500)
                free = begin + 4_000
                work = {"lane": "hardware", "kind": "execution", "name": "kernel", "source": "kineto", **ids}
                device = {"process_id": 0, "thread_id": 7, "stream_id": 7, "core_index": 0}
                skewed = (begin + plan.skew_ns[1], free + plan.skew_ns[1])
                writer.add("hw0", owner, session, *skewed, **work, **device)
            host += 12_000
    return _capture(writer, plan, rng)


def without(plan: Plan, **changes: object) -> Plan:
    """``plan`` with some fields changed."""
    return replace(plan, **changes)  # type: ignore[arg-type]
