"""What the readers of the Neuron runtime's system trace share: event names, attribute keys, and how rows are made.

Described in the vendor's documentation of the system trace (event types, hardware group) and in public
code that reads these files; grades are in the readers.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import polars as pl

from tracekit.sources.base import EVENT_COLUMNS, Artifact, Sink

Attributes = dict[str, object]

SYNC_POINT = "timestamp_sync_point"
"""Pairs a reading of the device clock with one of the host clock: a calibration mark, not an activity.

Only two of the four formats hold them. Readers use them (or count them) and give no row for them, so that
all formats give the same rows.
"""

EVENT_TYPES = (
    *("generic", "model_load", "post_request", "nrt_execute", "runtime_execute", "cc_load", "cc_exec_barrier"),
    *("nc_exec_running", "cc_running", "nrt_tensor_read", "nrt_tensor_write", "nrt_tensor_read_batch"),
    *("nrt_tensor_write_batch", "numerical_err", "enc_barrier_recv", "enc_barrier_send", "enc_barrier_both"),
    *("kbl_exec_pre", "kmgr_exec_core", "kbl_exec_wait", "kbl_exec_post", "model_switch", "nrt_model_submit"),
    *("async_sema_wait", "hw_notify", "timestamp_sync_point", "nc_model_switch", "nrt_tensor_allocate"),
    *("nrt_tensor_free", "tensor_block_while_exec", "dmem_buf_copyin", "dmem_buf_copyout"),
    *("dmem_buf_batch_copyin", "dmem_buf_batch_copyout", "nrt_dma_mem_alloc", "nrt_dma_mem_dealloc"),
    *("consume_tpb_status_notifications", "consume_cc_core_notifications", "consume_error_notifications"),
    *("consume_gpsimd_stdio", "hostcc_prepare", "hostcc_schedule", "hostcc_build_context", "hostcc_load"),
    *("hostcc_exec", "hostcc_wait"),
)
"""Name of each numeric event type of ``ntrace.pb``; the names of types above 35 are descriptive (grade R)."""

NRTA_SCHEDULE = "nrta_execute_schedule"
"""The asynchronous submit; without a number of its own, ``ntrace.pb`` has it as runtime_execute with nrta_seq_id."""

HARDWARE_NAMES = frozenset(
    {"nc_exec_running", "cc_running", "cc_exec_barrier", "numerical_err", "nc_model_switch", SYNC_POINT, "hw_notify"}
)
"""The hardware group; every other event is software."""

KINDS: Mapping[str, str] = {
    **dict.fromkeys(("nc_exec_running",), "execution"),
    **dict.fromkeys(("cc_running",), "collective"),
    **dict.fromkeys(("nrta_execute_schedule", "nrt_execute", "nrt_model_submit", "post_request"), "call"),
    **dict.fromkeys(("kbl_exec_pre", "kmgr_exec_core", "kbl_exec_post", "runtime_execute"), "call"),
    **dict.fromkeys(("kbl_exec_wait", "async_sema_wait", "cc_exec_barrier", "hostcc_wait"), "sync"),
    **dict.fromkeys(("enc_barrier_recv", "enc_barrier_send", "enc_barrier_both", "tensor_block_while_exec"), "sync"),
    **dict.fromkeys(("nrt_tensor_write", "nrt_tensor_write_batch", "dmem_buf_copyin"), "copy_in"),
    **dict.fromkeys(("dmem_buf_batch_copyin", "batch_copyin"), "copy_in"),
    **dict.fromkeys(("nrt_tensor_read", "nrt_tensor_read_batch", "dmem_buf_copyout"), "copy_out"),
    **dict.fromkeys(("dmem_buf_batch_copyout", "batch_copyout"), "copy_out"),
    **dict.fromkeys(("nrt_tensor_allocate", "nrt_tensor_free"), "memory"),
    **dict.fromkeys(("nrt_dma_mem_alloc", "nrt_dma_mem_dealloc"), "memory"),
    **dict.fromkeys(("model_load", "model_switch", "nc_model_switch", "cc_load"), "model"),
    **dict.fromkeys(("nrt_profile_add_node_info",), "model"),
    **dict.fromkeys(("generic", "numerical_err", "hw_notify", SYNC_POINT), "other"),
}
"""Kind of each event name; see ``kind_of`` for the names that come in families."""

CATEGORY_KINDS: Mapping[str, tuple[str, str]] = {
    "cpu_op": ("dispatch", "op"),
    "user_annotation": ("dispatch", "annotation"),
    "python_function": ("dispatch", "python"),
    "privateuse1_runtime": ("dispatch", "call"),
    "privateuse1_driver": ("stream", "call"),
}
"""Lane and kind of a framework row whose Kineto category is known."""

FRAMEWORK_SUFFIX = " [trace.json]"
"""Ends the name of a framework row, which repeats an event of the framework's own trace."""

CORE_KEYS = ("nc_idx", "lnc_idx")
PHYSICAL_KEYS = ("pcore_idx", "device_core_idx")
SEQUENCE_KEYS = ("nrta_seq_id", "nrt_sequence_id")
COPIES = ("copy_in", "copy_out")
FRAMEWORK_LANES = ("dispatch", "stream")

TEXT_KEYS = frozenset({"model_id", "neff_cache_key", "model_name", "name", "instance_id"})
"""Attributes that are text even where they look like a number."""

_DETERMINISTIC = msgspec.json.Encoder(order="deterministic")
_INT64, _UINT64, _INT32 = 2**63, 2**64, 2**31


def kind_of(name: str) -> str:
    """Kind of a runtime event; names nobody has described are ``other``."""
    if name in KINDS:
        return KINDS[name]
    return "call" if name.startswith("hostcc_") else "other"


def is_known(name: str) -> bool:
    """Whether the name is one that is described; families: host collectives and notification readers."""
    return name in KINDS or name.startswith("hostcc_") or "consume_" in name


def lane_of(name: str, *, from_hardware: bool = False) -> str:
    """``hardware`` or ``runtime``; ``from_hardware`` decides for names nobody has described."""
    return "hardware" if name in HARDWARE_NAMES or (from_hardware and not is_known(name)) else "runtime"


def framework_place(name: str, attributes: Attributes) -> tuple[str, str]:
    """Lane and kind of a framework row: by its Kineto category if it has one, else by what its attributes show."""
    category = attributes.get("cat") or attributes.get("category")
    if category in CATEGORY_KINDS and category != "privateuse1_runtime":
        return CATEGORY_KINDS[str(category)]
    if attributes.get("framework_stream_id") not in (None, ""):
        return ("stream", "call")
    if "synchronize" in name:
        return ("dispatch", "sync")
    if category == "privateuse1_runtime" or any(key in attributes for key in SEQUENCE_KEYS):
        return ("dispatch", "call")
    return ("dispatch", "annotation" if name.startswith("ProfilerStep#") else "op")


def integer(value: object) -> int | None:
    """A whole number that a source may spell as text (or as a float without fraction); else None."""
    if type(value) is int:
        return value
    if isinstance(value, str):
        text = value.strip()
        return int(text) if text.lstrip("-").isdecimal() and text.isascii() and len(text) <= 20 else None
    return int(value) if isinstance(value, float) and value.is_integer() else None


def int64(value: object) -> int | None:
    """A whole number that fits Int64, or None."""
    number = integer(value)
    return number if number is not None and -_INT64 <= number < _INT64 else None


@dataclass
class Batch:
    """Events of a piece of a file, as parallel lists; attributes hold everything that is not another field."""

    names: list[str] = field(default_factory=list)
    start_ns: list[int] = field(default_factory=list)
    end_ns: list[int] = field(default_factory=list)
    attributes: list[Attributes] = field(default_factory=list)
    instance_ids: list[str | None] = field(default_factory=list)
    process_ids: list[int | None] = field(default_factory=list)
    lanes: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.names)

    def add(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        attributes: Attributes,
        *,
        process: tuple[str | None, int | None] = (None, None),
        place: tuple[str, str] | None = None,
    ) -> None:
        """Add one event; ``process`` is (instance, process id), ``place`` (lane, kind) where the name does not tell."""
        lane, kind = place or (lane_of(name), kind_of(name))
        self.names.append(name)
        self.start_ns.append(start_ns)
        self.end_ns.append(end_ns)
        self.attributes.append(attributes)
        self.instance_ids.append(process[0])
        self.process_ids.append(process[1])
        self.lanes.append(lane)
        self.kinds.append(kind)

    def frame(self) -> pl.DataFrame:
        """``EVENT_COLUMNS`` without ``event_id``, and ``instance_id``; takes the attributes apart."""
        promoted = list(map(_promote, self.attributes, self.lanes, self.kinds))
        columns = {
            "name": pl.Series(self.names, dtype=pl.String),
            "start_ns": pl.Series(self.start_ns, dtype=pl.Int64),
            "end_ns": pl.Series(self.end_ns, dtype=pl.Int64),
            "lane": pl.Series(self.lanes, dtype=pl.String),
            "kind": pl.Series(self.kinds, dtype=pl.String),
            "instance_id": pl.Series(self.instance_ids, dtype=pl.String),
            "process_id": pl.Series(self.process_ids, dtype=pl.Int64),
        }
        values = list(zip(*promoted, strict=True)) or [()] * len(_PROMOTED)
        for (name, dtype), column in zip(_PROMOTED.items(), values, strict=True):
            columns[name] = pl.Series(column, dtype=dtype)
        return pl.DataFrame(columns)


_PROMOTED: Mapping[str, pl.DataType] = {
    "core_index": pl.Int32(),
    "physical_core": pl.Int32(),
    "thread_id": pl.Int64(),
    "stream_id": pl.Int64(),
    "execution_id": pl.Int64(),
    "external_id": pl.Int64(),
    "sequence_id": pl.UInt64(),
    "moved_bytes": pl.Int64(),
    "model_id": pl.String(),
    "category": pl.String(),
    "attrs_json": pl.String(),
}
"""Columns that come out of attributes, in the order ``_promote`` gives them."""


def _promote(attributes: Attributes, lane: str, kind: str) -> tuple[object, ...]:
    """Values of ``_PROMOTED`` for one event; what got a column leaves ``attributes``."""
    framework = lane in FRAMEWORK_LANES
    model = attributes.pop("model_id", None) or (attributes.get("neff_cache_key") if framework else None)
    return (
        _take(attributes, CORE_KEYS, _INT32),
        _take(attributes, PHYSICAL_KEYS, _INT32),
        _take(attributes, ("thread_id",), _INT64),
        _take(attributes, ("framework_stream_id",), _INT64) if framework else None,
        _take(attributes, ("exec_id",), _INT64),
        _take(attributes, ("External id",), _INT64) if framework else None,
        _take(attributes, SEQUENCE_KEYS, _UINT64),
        _take(attributes, ("size",), _INT64) if kind in COPIES else None,
        _text(model),
        _text(attributes.pop("group", None)),
        _attributes_json(attributes),
    )


def _take(attributes: Attributes, keys: Sequence[str], limit: int) -> int | None:
    """The first number ≥ 0 and < ``limit`` under ``keys``; keys that repeat it leave too, others stay."""
    found: int | None = None
    for key in keys:
        if key not in attributes:
            continue
        number = integer(attributes[key])
        if number is not None and 0 <= number < limit and (found is None or found == number):
            found = number
            del attributes[key]
    return found


def _text(value: object) -> str | None:
    """Text of an id; an empty one is absent."""
    return None if value is None or value == "" else str(value)


def _attributes_json(attributes: Attributes) -> str | None:
    """Compact JSON with sorted keys; numbers that a format spells as text become numbers, absent ones go."""
    if not attributes:
        return None
    kept = {key: _plain(key, value) for key, value in attributes.items() if value is not None}
    if not kept:
        return None
    try:
        return _DETERMINISTIC.encode(kept).decode()
    except (OverflowError, TypeError, ValueError):
        return json.dumps(kept, sort_keys=True, separators=(",", ":"), default=str)


def _plain(key: str, value: object) -> object:
    if not isinstance(value, str) or key in TEXT_KEYS:
        return value
    number = integer(value)
    return number if number is not None and str(number) == value and -_INT64 <= number < _UINT64 else value


class FrameworkRows:
    """Which framework rows are wanted: those of sessions without a trace of their own; counts the others."""

    def __init__(self, artifact: Artifact, sink: Sink) -> None:
        self._artifact = artifact
        self._sink = sink
        self._wanted: dict[tuple[str | None, int | None], bool] = {}
        self.skipped = 0

    def wanted(self, instance_id: str | None, process_id: int | None) -> bool:
        """Whether any framework lane of a process is wanted."""
        key = (instance_id, process_id)
        if key not in self._wanted:
            session = self._artifact.session if process_id is None else self._sink.session_of(instance_id, process_id)
            self._wanted[key] = session is None or any(self._sink.wants(session, lane) for lane in FRAMEWORK_LANES)
        return self._wanted[key]

    def note(self) -> None:
        """Say how many rows were left out."""
        if self.skipped:
            message = f"{self.skipped} framework rows repeat the session's own trace and are not read"
            self._sink.note("info", "framework_repeats", message, event_count=self.skipped)


class Emitter:
    """Gives batches to the sink, process by process, with rising event ids; remembers what to note.

    A file may describe several processes; rows of one that name it go to ``sink.session_of``, others to
    the artifact's own session. Event ids number the rows in the order they are given.
    """

    def __init__(self, sink: Sink, *, process_id: int | None = None) -> None:
        self._sink = sink
        self._process_id = process_id
        self._next_id = 0
        self._unknown: Counter[str] = Counter()
        self.given = 0

    def give(self, batch: Batch) -> None:
        """Pass a batch on; framework rows only where they are wanted."""
        if not len(batch):
            return
        self._unknown.update(
            name
            for name, lane in zip(batch.names, batch.lanes, strict=True)
            if lane not in FRAMEWORK_LANES and not is_known(name)
        )
        for part in batch.frame().partition_by("instance_id", "process_id", maintain_order=True):
            self._give_process(part)

    def _give_process(self, frame: pl.DataFrame) -> None:
        instance_id, process_id = frame["instance_id"][0], frame["process_id"][0]
        session = None
        if process_id is not None:
            session = self._sink.session_of(instance_id, process_id)
            unwanted = [lane for lane in FRAMEWORK_LANES if not self._sink.wants(session, lane)]
            frame = frame.filter(~pl.col("lane").is_in(unwanted))
        elif self._process_id is not None:
            frame = frame.with_columns(process_id=pl.lit(self._process_id, dtype=pl.Int64))
        ids = pl.int_range(self._next_id, self._next_id + frame.height, dtype=pl.Int64, eager=True)
        rows = frame.with_columns(event_id=ids).select([name for name in EVENT_COLUMNS if name in _GIVEN])
        self._sink.events(rows, session=session)
        self._next_id += frame.height
        self.given += frame.height

    def finish(self) -> None:
        """Note event names that are not described."""
        if self._unknown:
            names = ", ".join(name for name, _ in self._unknown.most_common(8))
            self._sink.note(
                "info",
                "unknown_events",
                f"{len(self._unknown)} event name(s) are not described and are kept as kind 'other': {names}",
                event_count=self._unknown.total(),
            )


_GIVEN = frozenset(("event_id", "name", "start_ns", "end_ns", "lane", "kind", "process_id", *_PROMOTED))
