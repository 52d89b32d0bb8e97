"""What the generator knows about a made-up capture, worked out from its plan alone.

Deliberately slow and plain: cut time at every boundary, then ask of each piece what was going on.
It shares no code with tracekit, so that the two can be compared. Times are Unix nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from neuron_plan import Execution, Process, Span

COPIES = {"nrt_tensor_write": "host_to_device", "nrt_tensor_read": "device_to_host"}
CAUSES = ("collective", "copy", "model_switch", "not_dispatched", "dispatching", "runtime")


def covers(spans: Iterable[Span], at: int) -> bool:
    return any(start <= at < end for start, end in spans)


def pieces(window: Span, spans: Iterable[Span]) -> list[Span]:
    """Return ``window`` cut at every boundary of ``spans``."""
    cuts = sorted({window[0], window[1], *(b for s in spans for b in s if window[0] < b < window[1])})
    return list(pairwise(cuts))


def spans_named(process: Process, *names: str) -> list[Span]:
    return [e.span for e in process.system if e.name in names]


def copy_spans(process: Process) -> list[Span]:
    return spans_named(process, *COPIES, "dmem_buf_copyin", "dmem_buf_copyout")


def chain(execution: Execution) -> dict[str, object]:
    """Return one launched operation's chain; no wait and no hardware where the capture was cut."""
    begin, end = execution.hardware
    return {
        "op": execution.op, "external_id": execution.external_id, "nrt_sequence_id": execution.sequence_id,
        "exec_id": execution.exec_id, "model_id": str(execution.model_id), "dispatch": list(execution.dispatch),
        "submit": list(execution.submit), "wait": None if execution.cut else list(execution.wait),
        "hardware": None if execution.cut else [begin, end],
        "device_ns": None if execution.cut else end - begin, "pcores": 0 if execution.cut else 2,
    }  # fmt: skip


def cause(process: Process, following: Execution, at: int) -> str:
    """Return why the core was idle at one moment before ``following`` ran."""
    if covers(spans_named(process, "cc_running"), at):
        return "collective"
    if covers(copy_spans(process), at):
        return "copy"
    if covers(spans_named(process, "nc_model_switch"), at):
        return "model_switch"
    if at < following.dispatch[0]:
        return "not_dispatched"
    return "dispatching" if at < following.submit[0] else "runtime"


def gaps(process: Process) -> list[dict[str, object]]:
    """Return every idle interval between two executions and its exact parts."""
    found: list[dict[str, object]] = []
    ran = process.executed()
    others = [e.span for e in process.system]
    for before, after in pairwise(ran):
        window = (before.hardware[1], after.hardware[0])
        if window[0] >= window[1]:
            continue
        parts = dict.fromkeys(CAUSES, 0)
        for start, end in pieces(window, [*others, after.dispatch, after.submit]):
            parts[cause(process, after, start)] += end - start
        found.append(
            {"start_ns": window[0], "end_ns": window[1], "before": before.exec_id, "after": after.exec_id}
            | {"parts": parts}
        )
    return found


def host_spans(process: Process) -> list[Span]:
    """Return when the host worked: every operation or runtime call that is not a wait."""
    calls = [s for e in process.executions for s in (e.dispatch, e.runtime, e.submit, e.pre)]
    calls += [e.post for e in process.executed()]
    calls += [e.span for e in process.host if e.category == "cpu_op"]
    return calls + [e.span for e in process.system if e.physical_core is None]


def split(process: Process, window: Span) -> dict[str, int]:
    """Return the exclusive parts of ``window``, and what communication no execution hides."""
    names = ("window", "device_only", "host_only", "both", "neither", "exposed_collective", "exposed_copy")
    result = dict.fromkeys(names, 0)
    compute = [e.hardware for e in process.executed()]
    collective, copies = spans_named(process, "cc_running"), copy_spans(process)
    host = host_spans(process)
    for start, end in pieces(window, [*compute, *collective, *copies, *host]):
        length = end - start
        communicates = covers(collective, start)
        computes = covers(compute, start)
        device, works = computes or communicates, covers(host, start)
        result["window"] += length
        part = ("both" if works else "device_only") if device else ("host_only" if works else "neither")
        result[part] += length
        if communicates and not computes:
            result["exposed_collective"] += length
        elif covers(copies, start) and not computes:
            result["exposed_copy"] += length
    return result


def copies(process: Process) -> list[dict[str, object]]:
    """Return each transfer once, with the time of the call that describes it."""
    return [
        {"start_ns": e.span[0], "end_ns": e.span[1], "direction": COPIES[e.name], "bytes": e.args["size"]}
        for e in process.system
        if e.name in COPIES
    ]


def collectives(process: Process) -> list[dict[str, object]]:
    """Return each collective once: the union of its physical cores' parts."""
    first = process.physical_cores[0]
    return [
        {"start_ns": e.span[0], "end_ns": e.span[1], "bytes": e.args["size"]}
        for e in process.system
        if e.name == "cc_running" and e.physical_core == first
    ]


def truth(name: str, processes: list[Process]) -> dict[str, object]:
    """Return everything the generator knows about one capture."""
    found: list[dict[str, object]] = []
    for process in processes:
        steps = [e for e in process.host if e.name.startswith("ProfilerStep#")]
        ran = process.executed()
        found.append({
            "instance_id": process.instance, "process_id": process.pid, "rank": process.rank, "nc_idx": 0,
            "pcores": list(process.physical_cores), "execution_count": len(ran),
            "device_ns": sum(e.hardware[1] - e.hardware[0] for e in ran),
            "chains": [chain(e) for e in process.executions], "gaps": gaps(process),
            "copies": copies(process), "collectives": collectives(process),
            "steps": [{"name": e.name, "start_ns": e.span[0], "end_ns": e.span[1], "split": split(process, e.span)}
                      for e in steps],
        })  # fmt: skip
    return {"note": f"made up: {name}; nothing here was measured on a device", "processes": found}
