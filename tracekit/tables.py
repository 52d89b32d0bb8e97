"""Every stored table: columns, types, units, docs and keys, in one place.

``docs/tables.md``, the Parquet field metadata, the checks of every reader and
the SQL catalogue all come from here. Time is Int64 nanoseconds since the Unix
epoch, intervals are half-open ``[start_ns, end_ns)``, absent is null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import polars as pl
import pyarrow as pa

from tracekit import vocabulary
from tracekit.errors import SchemaError

SCHEMA_VERSION = 1
"""Version of the stored layout; an archive records the one it was written with."""

LANES = vocabulary.LANES
"""The four lanes of a Neuron system profile, from the framework down to the device."""

KINDS = vocabulary.KINDS
"""What an event is."""

SOURCE_NAMES = vocabulary.SOURCE_NAMES
"""Formats that give events and samples, named as in ``sources.SOURCES``."""

PHASES = ("complete", "instant", "begin_end", "async")
"""How a Chrome trace spelled the event (``X``, ``i``/``I``, ``B``+``E``, ``b``+``e``/``n``)."""

FLOW_PHASES = ("start", "step", "end")
METHODS = ("id", "flow", "enclosure", "order")
"""How a link was found, from certain to likely."""

SEVERITIES = ("info", "warning", "error")
ROLES = ("neff", "ntff", "trace", "system", "host", "device_table", "manifest", "memory_snapshot", "other")

Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)


@dataclass(frozen=True)
class Column:
    """One column of a stored table."""

    name: str
    dtype: pl.DataType
    doc: str
    nullable: bool = False
    unit: str | None = None
    values: tuple[str, ...] = ()
    """The only values a text column may hold; empty means any."""


@dataclass(frozen=True)
class Table:
    """A stored table; ``key`` names the columns that identify a row and that rows are sorted by."""

    name: str
    doc: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    _by_name: Mapping[str, Column] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {column.name: column for column in self.columns})

    def __getitem__(self, name: str) -> Column:
        return self._by_name[name]

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in stored order."""
        return tuple(column.name for column in self.columns)

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """Column name → polars dtype, in stored order."""
        return {column.name: column.dtype for column in self.columns}

    def empty(self) -> pl.DataFrame:
        """A frame of this table without rows."""
        return pl.DataFrame(schema=self.schema)

    def rows(self, rows: Sequence[Mapping[str, object]]) -> pl.DataFrame:
        """A frame of this table from Python rows; columns that a row leaves out are null.

        Raises:
            SchemaError: if a row has an unknown column or lacks a required one.
        """
        for row in rows:
            unknown = set(row) - set(self.names)
            if unknown:
                raise SchemaError(f"table {self.name}: unknown column(s) {', '.join(sorted(unknown))}")
        return self.conform(pl.DataFrame(rows, schema_overrides=self.schema)) if rows else self.empty()

    def conform(self, frame: Frame) -> Frame:
        """Put ``frame`` into this table's columns, order and types.

        A missing nullable column becomes null; columns the table does not have
        are dropped.

        Raises:
            SchemaError: if a required column is missing, or (for a DataFrame) holds
                nulls, or if a column cannot be cast; the message names the columns.
        """
        schema = frame.collect_schema()
        missing = [c.name for c in self.columns if not c.nullable and c.name not in schema]
        if missing:
            raise SchemaError(f"table {self.name}: missing column(s) {', '.join(missing)}")
        exprs = [
            _conformed(c, schema[c.name]) if c.name in schema else pl.lit(None, dtype=c.dtype).alias(c.name)
            for c in self.columns
        ]
        try:
            out = frame.select(exprs)
        except pl.exceptions.PolarsError as error:
            raise SchemaError(f"table {self.name}: {self._uncastable(schema)} ({error})") from error
        if isinstance(out, pl.DataFrame):
            self._check_nulls(out)
        return out

    def _check_nulls(self, frame: pl.DataFrame) -> None:
        bad = [c.name for c in self.columns if not c.nullable and frame[c.name].null_count()]
        if bad:
            raise SchemaError(f"table {self.name}: null in required column(s) {', '.join(bad)}")

    def _uncastable(self, schema: Mapping[str, pl.DataType]) -> str:
        odd = [
            f"{c.name} is {schema[c.name]}, not {c.dtype}"
            for c in self.columns
            if c.name in schema and schema[c.name] != c.dtype
        ]
        return "cannot convert " + ("; ".join(odd) or "a column")

    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema that is written to Parquet, with ``doc`` and ``unit`` as field metadata."""
        fields = []
        for column in self.columns:
            metadata = {"doc": column.doc} | ({"unit": column.unit} if column.unit else {})
            fields.append(pa.field(column.name, _arrow_type(column.dtype), column.nullable, metadata))
        return pa.schema(fields, metadata={"doc": self.doc, "tracekit_schema_version": str(SCHEMA_VERSION)})


def _conformed(column: Column, dtype: pl.DataType) -> pl.Expr:
    """The column cast to its type; text with a fixed set of values is checked against it."""
    if not column.values or isinstance(dtype, pl.Enum):
        return pl.col(column.name).cast(column.dtype)
    return pl.col(column.name).cast(pl.Enum(list(column.values))).cast(pl.String)


def _arrow_type(dtype: pl.DataType) -> pa.DataType:
    simple: dict[pl.DataType, pa.DataType] = {
        pl.Int64(): pa.int64(),
        pl.Int32(): pa.int32(),
        pl.UInt64(): pa.uint64(),
        pl.Float64(): pa.float64(),
        pl.Boolean(): pa.bool_(),
        pl.String(): pa.large_string(),
        pl.List(pl.Int64()): pa.large_list(pa.int64()),
    }
    return simple[dtype]


def _choice(name: str, values: tuple[str, ...], doc: str, *, nullable: bool = False) -> Column:
    return Column(name, pl.String(), doc, nullable, values=values)


_SESSION = Column("session", pl.String(), "Capture of one process; key of `sessions`.")
_INT, _ID, _TEXT = pl.Int64(), pl.UInt64(), pl.String()

EVENTS = Table(
    name="events",
    doc="Everything that has a start and an end (instants have both equal), one row per event of every source.",
    key=("event_id",),
    columns=(
        Column(
            "event_id",
            _INT,
            "Unique in the profile. `event_id >> 40` is the ordinal of the source file in the manifest, the "
            "low 40 bits rise with the position in it.",
        ),
        _SESSION,
        _choice("lane", LANES, "Layer the event belongs to, from the framework down to the device."),
        _choice("kind", KINDS, "What the event is."),
        _choice("source", SOURCE_NAMES, "Format that told it first; a Chrome export that is read back keeps it."),
        Column(
            "is_primary",
            pl.Boolean(),
            "False where a better source describes the same lane of this session; metrics use primary events only.",
        ),
        _choice("phase", PHASES, "How a Chrome trace spelled it; null from other sources.", nullable=True),
        Column("name", _TEXT, "Name as the source gives it."),
        Column("category", _TEXT, "Category or group as the source gives it.", nullable=True),
        Column(
            "process_id",
            _INT,
            "Process that recorded it; for GPU activity the device index that Kineto writes as pid.",
            True,
        ),
        Column("thread_id", _INT, "Thread (or device queue); text ids are negative hashes, see `threads`.", True),
        Column("stream_id", _INT, "Device stream or queue.", nullable=True),
        Column(
            "core_index",
            pl.Int32(),
            "Logical NeuronCore (or GPU) index in the process; null off device.",
            True,
        ),
        Column("physical_core", pl.Int32(), "Physical NeuronCore.", nullable=True),
        Column("start_ns", _INT, "Start.", unit="ns"),
        Column("end_ns", _INT, "End, ≥ start.", unit="ns"),
        Column(
            "external_id",
            _INT,
            "`External id`: joins an operator and what it launched. Of 2^63 and above, the id less 2^64.",
            nullable=True,
        ),
        Column(
            "correlation_id",
            _INT,
            "`correlation`: joins a runtime call and its device activity. Of 2^63 and above, the id less 2^64.",
            True,
        ),
        Column("sequence_id", _ID, "`nrt_sequence_id` / `nrta_seq_id`: joins framework and Neuron runtime.", True),
        Column("execution_id", _INT, "`exec_id`: counts executions per process, core and model.", nullable=True),
        Column(
            "model_id",
            _TEXT,
            "NEFF the execution runs: decimal hash, or the cache key the framework names.",
            True,
        ),
        Column("moved_bytes", _INT, "Bytes that a transfer moved.", nullable=True, unit="B"),
        Column("attrs_json", _TEXT, "All attributes of the source, as a JSON object.", nullable=True),
    ),
)

SESSIONS = Table(
    name="sessions",
    doc="One row per captured process.",
    key=("session",),
    columns=(
        Column("session", _TEXT, "Name of the capture: `<instance>_pid_<pid>`, or the trace file's stem."),
        Column("instance_id", _TEXT, "Machine, as the capture names it.", nullable=True),
        Column("process_id", _INT, "Operating-system process.", nullable=True),
        Column("rank", pl.Int32(), "Rank in the distributed job.", nullable=True),
        Column("world_size", pl.Int32(), "Number of ranks of the job.", nullable=True),
        Column("device", _TEXT, "neuron, cuda, rocm, xpu, mtia or cpu, as far as the files show.", nullable=True),
        Column("first_ns", _INT, "First start of any event.", nullable=True, unit="ns"),
        Column("last_ns", _INT, "Last end of any event.", nullable=True, unit="ns"),
        Column("path", _TEXT, "Directory or file, relative to the profile's root."),
        Column("host_name", _TEXT, "Host name in the trace or the manifest.", nullable=True),
        Column("instance_type", _TEXT, "Machine type, e.g. trn2.48xlarge.", nullable=True),
        Column("clock_method", _TEXT, "How this session's clock was aligned: reference, collectives, none.", True),
        Column(
            "clock_offset_ns",
            _INT,
            "Add to this session's times to be on the profile's common clock.",
            True,
            "ns",
        ),
        Column("clock_residual_ns", _INT, "Largest disagreement left after alignment.", nullable=True, unit="ns"),
        Column(
            "versions_json",
            _TEXT,
            "Versions of framework, runtime, driver and tools, as a JSON object.",
            True,
        ),
        Column("labels_json", _TEXT, "The user's labels, as a JSON object of text.", nullable=True),
        Column("capture_json", _TEXT, "The capture manifest or the trace's own header, as JSON.", nullable=True),
    ),
)

THREADS = Table(
    name="threads",
    doc="Names of processes and threads (Chrome metadata events), one row per (process, thread).",
    key=("session", "process_id", "thread_id"),
    columns=(
        _SESSION,
        Column("process_id", _INT, "As in `events`.", nullable=True),
        Column("thread_id", _INT, "As in `events`; null for facts of the whole process.", nullable=True),
        Column("process_label", _TEXT, "Text of a process id that is not a number.", nullable=True),
        Column("thread_label", _TEXT, "Text of a thread id that is not a number.", nullable=True),
        Column("process_name", _TEXT, "`process_name`.", nullable=True),
        Column("process_labels", _TEXT, "`process_labels`.", nullable=True),
        Column("thread_name", _TEXT, "`thread_name`.", nullable=True),
        Column("process_sort_index", _INT, "`process_sort_index`.", nullable=True),
        Column("thread_sort_index", _INT, "`thread_sort_index`.", nullable=True),
    ),
)

FLOWS = Table(
    name="flows",
    doc="Flow events as they stand in the trace (arrows between events). Those from a launch to its device work are "
    "`links` too, where no id tells the same; others, such as `fwdbwd`, stand here alone.",
    key=("session", "category", "flow_id", "at_ns"),
    columns=(
        _SESSION,
        Column("flow_id", _TEXT, "`id`, as text."),
        Column("category", _TEXT, "`cat`: ac2g, fwdbwd, …", nullable=True),
        Column("name", _TEXT, "Name.", nullable=True),
        _choice("phase", FLOW_PHASES, "start (`s`), step (`t`) or end (`f`)."),
        Column("process_id", _INT, "As in `events`.", nullable=True),
        Column("thread_id", _INT, "As in `events`.", nullable=True),
        Column("at_ns", _INT, "Time of the end of the arrow.", unit="ns"),
        Column(
            "binds_enclosing",
            pl.Boolean(),
            "`bp` is `e`: the arrow ends at the enclosing event, not the next.",
            True,
        ),
    ),
)

ARTIFACTS = Table(
    name="artifacts",
    doc="Every file that discovery found, recognised or not.",
    key=("path",),
    columns=(
        Column("session", _TEXT, "Session it belongs to; null when shared or unknown.", nullable=True),
        Column("path", _TEXT, "Relative to the profile's root."),
        _choice("role", ROLES, "What the file is."),
        Column("format", _TEXT, "Reader in `SOURCES`, or null if nothing reads it.", nullable=True),
        Column("model_hash", _TEXT, "Decimal 64-bit hash that NEFF and NTFF share, as text.", nullable=True),
        Column("core_index", pl.Int32(), "Logical core in the file name.", nullable=True),
        Column("rank", pl.Int32(), "Rank in the file name.", nullable=True),
        Column("size_bytes", _INT, "Size.", unit="B"),
        Column("pair_id", _TEXT, "Same for the NEFF(s) and NTFF(s) that belong together.", nullable=True),
        Column("problem", _TEXT, "What is wrong with it.", nullable=True),
    ),
)

LINKS = Table(
    name="links",
    doc="One event caused another.",
    key=("from_id", "to_id"),
    columns=(
        _SESSION,
        Column("from_id", _INT, "Cause: an `event_id`."),
        Column("to_id", _INT, "Effect: an `event_id`."),
        _choice("method", METHODS, "How it was found, from certain to likely."),
    ),
)

CHAINS = Table(
    name="chains",
    doc="One row per hardware execution, and one per launched operation that never got one.",
    key=("chain_id",),
    columns=(
        Column(
            "chain_id",
            _INT,
            "Unique in the profile; chains of a session are in order of their first known time.",
        ),
        _SESSION,
        Column("process_id", _INT, "Process that launched it.", nullable=True),
        Column("core_index", pl.Int32(), "Logical core (or GPU) it ran on.", nullable=True),
        Column("stream_number", _INT, "Device stream or queue it ran on.", nullable=True),
        Column("name", _TEXT, "Operator that launched it; the execution's own name if none is known."),
        Column(
            "execution_name",
            _TEXT,
            "Name of the hardware execution (kernel, nc_exec_running).",
            nullable=True,
        ),
        _choice("kind", KINDS, "execution, collective, copy_in, copy_out, copy or memory (a device memset)."),
        Column("model_id", _TEXT, "NEFF it ran.", nullable=True),
        Column("execution_id", _INT, "`exec_id`.", nullable=True),
        Column("dispatch_id", _INT, "Event of the operator (innermost that launched it).", nullable=True),
        Column("launch_id", _INT, "Event of the framework's or runtime's launch call.", nullable=True),
        Column("stream_id", _INT, "Event on the device stream (lane `stream`).", nullable=True),
        Column("submit_id", _INT, "Event of the submit to the runtime.", nullable=True),
        Column("wait_id", _INT, "Event of the host stage that waited for it.", nullable=True),
        Column(
            "hardware_ids",
            pl.List(pl.Int64()),
            "Hardware events, one per physical core; empty if it never ran.",
        ),
        Column("dispatch_start_ns", _INT, "Operator starts on the host.", nullable=True, unit="ns"),
        Column("dispatch_end_ns", _INT, "Operator ends on the host.", nullable=True, unit="ns"),
        Column(
            "submit_ns",
            _INT,
            "Start of the submit (Neuron: nrta_execute_schedule …; GPU: the launch call).",
            True,
            "ns",
        ),
        Column("submit_end_ns", _INT, "End of the submit.", nullable=True, unit="ns"),
        Column("wait_start_ns", _INT, "Start of the wait.", nullable=True, unit="ns"),
        Column("wait_end_ns", _INT, "End of the wait.", nullable=True, unit="ns"),
        Column("hardware_start_ns", _INT, "First physical core starts.", nullable=True, unit="ns"),
        Column("hardware_end_ns", _INT, "Last physical core ends.", nullable=True, unit="ns"),
        Column("device_ns", _INT, "Length of the union over physical cores; 0 if it never ran.", unit="ns"),
        _choice("method", METHODS, "Least certain link in the chain; null if it has no link.", nullable=True),
        Column("complete", pl.Boolean(), "Every lane that this session has is present."),
        _choice("missing", LANES, "First lane, from the framework down, where it breaks.", nullable=True),
    ),
)

SAMPLES = Table(
    name="samples",
    doc="Values over time: counters, memory, CPU use.",
    key=("session", "counter", "at_ns"),
    columns=(
        _SESSION,
        Column("counter", _TEXT, "Name of the counter, with its series after a `/`."),
        Column("core_index", pl.Int32(), "Core or device it belongs to.", nullable=True),
        Column("process_id", _INT, "As in `events`.", nullable=True),
        Column("at_ns", _INT, "Time.", unit="ns"),
        Column("value", pl.Float64(), "Value in `unit`."),
        Column("unit", _TEXT, "B, ratio, count, …", nullable=True),
        Column("attrs_json", _TEXT, "All attributes of the source, as JSON.", nullable=True),
    ),
)

NOTES = Table(
    name="notes",
    doc="Everything worth knowing about the data: what was skipped, repaired, guessed or missing.",
    key=("session", "code", "path"),
    columns=(
        Column("session", _TEXT, "Session it is about; null for the whole profile.", nullable=True),
        _choice("severity", SEVERITIES, "info, warning or error."),
        Column("code", _TEXT, "Stable short name, e.g. `cut_file`."),
        Column("path", _TEXT, "File it is about, relative to the profile's root.", nullable=True),
        Column("message", _TEXT, "What was found, with positions."),
        Column("hint", _TEXT, "What to do about it.", nullable=True),
        Column("event_count", _INT, "Events concerned.", nullable=True),
    ),
)

TABLES: Mapping[str, Table] = {
    table.name: table for table in (EVENTS, SESSIONS, THREADS, FLOWS, ARTIFACTS, LINKS, CHAINS, SAMPLES, NOTES)
}
"""Every stored table by name."""
