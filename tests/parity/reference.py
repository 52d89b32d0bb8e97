"""``key_averages()`` of torch 2.13, recomputed from an exported Chrome trace by plain Python.

Independent of tracekit on purpose: it proves the rules written in README.md (the numbers in brackets
below are the rules there). Times are integer nanoseconds.
"""

from __future__ import annotations

import ctypes
import functools
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

# [1] Categories whose events are torch's own, on a thread of the host.
FRAMEWORK = frozenset({"cpu_op", "user_annotation", "python_function"})
# [1] Host-side categories that a device backend reports.
HOST_CALLS = frozenset(
    {
        "cuda_runtime",
        "cuda_driver",
        "xpu_runtime",
        "xpu_driver",
        "mtia_runtime",
        "glow_runtime",
        "privateuse1_runtime",
        "privateuse1_driver",
        "external_correlation",
        "overhead",
        "cuda_event",
        "mtia_counters",
        "mtia_insight",
        "collective_comm",
    }
)
# [1] Categories of device events.
DEVICE = frozenset(
    {
        "kernel",
        "gpu_memcpy",
        "gpu_memset",
        "gpu_user_annotation",
        "cuda_sync",
        "cuda_profiler_range",
        "mtia_ccp_events",
        "hpu_op",
    }
)
# [9] Device events of these types are not counted as device time of the operator that launched them.
NEVER_ATTRIBUTED = frozenset({"mtia_ccp_events", "hpu_op"})
# [2]
FILTERED = frozenset(
    {
        "[memory]",
        "[OutOfMemory]",
        "profiler::_record_function_enter",
        "profiler::_record_function_enter_new",
        "profiler::_record_function_exit",
        "aten::is_leaf",
        "aten::output_nr",
        "aten::_version",
    }
)
# [6] Ranges that torch.distributed opens for a collective; they may end on another thread.
COLLECTIVE_RANGE = re.compile(r"^(nccl|gloo|mpi|ucc|xccl):\w+$")
OVERLOADED = re.compile(r"^(?P<name>\w+(?:::\w+)+)\.(?P<overload>\w+)$")

Thread = tuple[object, object]
"""Process and thread as the file has them."""


@dataclass
class Event:
    """One event that takes part, and its place in the tree."""

    name: str
    category: str
    thread: Thread
    start_ns: int
    end_ns: int
    shapes: str
    own_id: int = 0
    linked_id: int = 0
    is_async: bool = False
    overload: str = ""
    parent: Event | None = None
    children: list[Event] = field(default_factory=list)
    kernels_ns: list[int] = field(default_factory=list)
    device_total_ns: int | None = None

    @property
    def on_device(self) -> bool:
        return self.category in DEVICE

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns

    def self_cpu_ns(self) -> int:
        """[7] Zero for asynchronous and device events."""
        if self.is_async or self.on_device:
            return 0
        return self.length_ns - sum(child.length_ns for child in self.children)

    def device_ns(self) -> int:
        """[10] Own kernels and those of all descendants; a device event's own length."""
        if self.is_async:
            return 0
        if self.on_device:
            return self.length_ns
        if self.device_total_ns is None:
            self.device_total_ns = sum(self.kernels_ns) + sum(child.device_ns() for child in self.children)
        return self.device_total_ns

    def self_device_ns(self) -> int:
        """[10] Own kernels; a device event's own length."""
        if self.is_async:
            return 0
        return self.length_ns if self.on_device else sum(self.kernels_ns)


@dataclass
class Row:
    """One row of the table."""

    calls: int = 0
    cpu_total_ns: int = 0
    self_cpu_ns: int = 0
    device_total_ns: int = 0
    self_device_ns: int = 0

    def add(self, event: Event, has_device: bool) -> None:
        self.calls += 1
        self.cpu_total_ns += 0 if event.on_device else event.length_ns
        self.self_cpu_ns += event.self_cpu_ns()
        if has_device:
            self.device_total_ns += event.device_ns()
            self.self_device_ns += event.self_device_ns()


Key = tuple[str, bool, bool, str, str]
"""Name, on the device, user annotation, overload name, input shapes as ``str()`` of a list."""


def key_averages(
    trace: Path, *, by_shape: bool = False, by_overload: bool = False, has_device: bool = False
) -> dict[Key, Row]:
    """Rows of ``prof.key_averages(group_by_input_shape, group_by_overload_name)``.

    Args:
        trace: a file that ``export_chrome_trace()`` wrote.
        by_shape: group by input shapes too.
        by_overload: group by overload name too.
        has_device: a device activity was profiled (torch shows no device time otherwise).
    """
    rows: dict[Key, Row] = defaultdict(Row)
    for event in function_events(trace):
        is_annotation = event.category in ("user_annotation", "gpu_user_annotation")
        overload = event.overload if by_overload else ""
        shapes = event.shapes if by_shape else ""
        rows[(event.name, event.on_device, is_annotation, overload, shapes)].add(event, has_device)
    return dict(rows)


@functools.lru_cache(maxsize=1)
def function_events(trace: Path) -> list[Event]:
    """What ``prof.events()`` returns: in order of time, with parents, without duplicates."""
    events, memory = read(trace)
    attribute(events)
    events += uncovered_memory(events, memory)
    events.sort(key=_order)
    build_tree(events)
    return without_duplicates(events)


def read(trace: Path) -> tuple[list[Event], list[Event]]:
    """Events that take part in the order of the profiler's own list [3], and the memory events."""
    document = json.loads(trace.read_text("utf-8"), parse_float=Decimal)
    events, memory = [], []
    for entry in document["traceEvents"]:
        category = entry.get("cat", "")
        if category == "cpu_instant_event":
            memory.append(_memory_event(entry))
        elif entry["ph"] == "X" and category in FRAMEWORK | HOST_CALLS | DEVICE:
            events.append(_event(entry))
    place_calls(events)
    events = [event for event in events if event.name not in FILTERED]
    events.sort(key=lambda event: event.start_ns)
    return events, memory


def _ns(microseconds: Any) -> int:
    return int(Decimal(microseconds) * 1000)


def _event(entry: dict[str, Any]) -> Event:
    category, args = entry["cat"], entry.get("args", {})
    start_ns = _ns(entry["ts"])
    end_ns = start_ns + _ns(entry["dur"])
    if category == "gpu_user_annotation":  # [4] the file has them one nanosecond wider on each side
        start_ns, end_ns = start_ns + 1, end_ns - 1
    external = int(args.get("External id", 0))
    is_framework = category in FRAMEWORK
    name, overload = _split_overload(entry["name"], category)
    return Event(
        name=_rewritten(name),
        category=category,
        thread=(entry["pid"], entry["tid"]),
        start_ns=start_ns,
        end_ns=end_ns,
        shapes=_shapes(args.get("Input Dims", [])),
        own_id=external if is_framework else int(args.get("correlation", 0)),
        linked_id=0 if is_framework else external,
        is_async=_is_async(entry, args),
        overload=overload,
    )


def _is_async(entry: dict[str, Any], args: dict[str, Any]) -> bool:
    """[6] What the file shows of ``is_async``: unfinished ranges, and those of collectives."""
    is_collective = entry["cat"] == "user_annotation" and COLLECTIVE_RANGE.match(entry["name"])
    return args.get("finished") is False or bool(is_collective)


def _memory_event(entry: dict[str, Any]) -> Event:
    at_ns = _ns(entry["ts"])
    return Event(entry["name"], "cpu_instant_event", (entry["pid"], entry["tid"]), at_ns, at_ns, "[]")


def _split_overload(name: str, category: str) -> tuple[str, str]:
    """[12] With ``capture_overload_names`` the file holds ``aten::add.Tensor``."""
    match = OVERLOADED.match(name) if category == "cpu_op" else None
    return (match["name"], match["overload"]) if match else (name, "")


def _shapes(dims: list[Any]) -> str:
    """[11] A list of tensors counts as one empty shape."""
    return str([[] if any(isinstance(d, list) for d in dim) else dim for dim in dims])


def _rewritten(name: str) -> str:
    """[12] Demangled, and all profiler steps as one."""
    if len(name) > 1:
        name = _demangle(name)
    return "ProfilerStep*" if name.startswith("ProfilerStep#") else name


def _demangler() -> Callable[[str], str]:
    library = ctypes.CDLL("libstdc++.so.6")
    demangle, free = library.__cxa_demangle, ctypes.CDLL(None).free
    demangle.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

    def demangled(name: str) -> str:
        status = ctypes.c_int()
        text = demangle(name.encode(), None, None, ctypes.byref(status))
        if status.value != 0 or not text:
            return name
        plain = ctypes.string_at(text).decode("utf-8", "replace")
        free(text)
        return plain

    return demangled


_demangle = _demangler()


def place_calls(events: list[Event]) -> None:
    """[5] A call of the device backend is on the thread of its linked operator, whatever ``tid`` says.

    Without a link torch takes the thread that stopped the profiler, which the file does not name. It is
    the one of the profiler steps; without steps the main thread, whose id is the process id.
    """
    framework = sorted((event for event in events if event.category in FRAMEWORK), key=lambda e: e.start_ns)
    threads = {event.own_id: event.thread for event in framework if event.own_id > 0}
    steps = [event.thread for event in framework if event.name == "ProfilerStep*"]
    mains = [event.thread for event in framework if event.thread[0] == event.thread[1]]
    stopper = next(iter(steps or mains or [event.thread for event in framework]), ("", ""))
    for event in events:
        if event.category in HOST_CALLS:
            event.thread = threads.get(event.linked_id, stopper)


def attribute(events: list[Event]) -> None:
    """[8], [9] Give each framework event the device work that it launched."""
    launched: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event.linked_id > 0:
            launched[event.linked_id].append(event)
    for event in events:
        if event.linked_id > 0 or event.on_device or event.is_async:
            continue
        for work in launched.get(event.own_id, ()):
            if not work.on_device:
                work.thread = event.thread
            elif work.category not in NEVER_ATTRIBUTED:
                event.kernels_ns.append(work.length_ns)


def uncovered_memory(events: list[Event], memory: list[Event]) -> Iterator[Event]:
    """[13] Memory events that lie in no host event, of whatever thread, and all out-of-memory events."""
    host = [event for event in events if not event.on_device]
    for instant in memory:
        if instant.name != "[memory]" or not any(event.start_ns <= instant.start_ns <= event.end_ns for event in host):
            yield instant


def _order(event: Event) -> tuple[int, int]:
    return event.start_ns, -event.end_ns


def build_tree(events: Iterable[Event]) -> None:
    """[6] Parent by time on each thread; an event that only overlaps ends its predecessor's reign."""
    threads: dict[Thread, list[Event]] = defaultdict(list)
    for event in events:
        if not event.on_device and not event.is_async:
            threads[event.thread].append(event)
    for track in threads.values():
        open_events: list[Event] = []
        for event in track:
            while open_events:
                parent = open_events[-1]
                if event.start_ns >= parent.end_ns or event.end_ns > parent.end_ns:
                    open_events.pop()
                    continue
                event.parent = parent
                parent.children.append(event)
                break
            open_events.append(event)


def without_duplicates(events: list[Event]) -> list[Event]:
    """[7] An only child of its parent's name vanishes; its children and *its* device work pass to the parent."""
    while True:
        gone = set()
        for event in events:
            parent = event.parent
            if parent is None or parent.name != event.name or len(parent.children) != 1:
                continue
            parent.children = event.children
            parent.kernels_ns = event.kernels_ns
            for child in event.children:
                child.parent = parent
            gone.add(id(event))
        if not gone:
            return events
        events = [event for event in events if id(event) not in gone]
