"""From events of the Neuron system trace, as dictionaries, to frames of ``EVENT_COLUMNS``, and to the sink."""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec
import polars as pl

from tracekit.sources._neuron_events import (
    COPIES,
    CORE_KEYS,
    FRAMEWORK_LANES,
    INT32_LIMIT,
    INT64_LIMIT,
    PHYSICAL_KEYS,
    SEQUENCE_KEYS,
    TEXT_KEYS,
    UINT64_LIMIT,
    Attributes,
    integer,
    is_known,
    kind_of,
    lane_of,
)
from tracekit.sources.base import EVENT_COLUMNS, Artifact, Sink

Process = tuple[str | None, int | None]
Place = tuple[str, str]
NO_PROCESS: Process = (None, None)
_ENCODER = msgspec.json.Encoder(order="deterministic")
_NUMBER_COLUMNS: Mapping[str, tuple[tuple[str, ...], int]] = {
    "core_index": (CORE_KEYS, INT32_LIMIT),
    "physical_core": (PHYSICAL_KEYS, INT32_LIMIT),
    "thread_id": (("thread_id",), INT64_LIMIT),
    "execution_id": (("exec_id",), INT64_LIMIT),
    "sequence_id": (SEQUENCE_KEYS, UINT64_LIMIT),
}
"""Column → attributes that give it, best first, and what its numbers stay below."""
_DTYPES: Mapping[int, pl.DataType] = {INT32_LIMIT: pl.Int32(), INT64_LIMIT: pl.Int64(), UINT64_LIMIT: pl.UInt64()}


@dataclass
class Batch:
    """Events of a piece of a file, as parallel lists; attributes hold everything that is not another field.

    A place is (lane, kind) where the name does not tell; a process is (instance, process id).
    """

    names: list[str] = field(default_factory=list)
    start_ns: list[int] = field(default_factory=list)
    end_ns: list[int] = field(default_factory=list)
    attributes: list[Attributes] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    places: list[Place | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.names)

    def add(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        attributes: Attributes,
        process: Process = NO_PROCESS,
        place: Place | None = None,
    ) -> None:
        """Add one event."""
        self.names.append(name)
        self.start_ns.append(start_ns)
        self.end_ns.append(end_ns)
        self.attributes.append(attributes)
        self.processes.append(process)
        self.places.append(place)

    def frame(self) -> pl.DataFrame:
        """``EVENT_COLUMNS`` without ``event_id``, and ``instance_id``; takes the attributes apart."""
        known = {name: (lane_of(name), kind_of(name)) for name in set(self.names)}
        places = [place or known[name] for name, place in zip(self.names, self.places, strict=True)]
        columns: dict[str, pl.Series] = {
            "name": pl.Series(self.names, dtype=pl.String),
            "start_ns": pl.Series(self.start_ns, dtype=pl.Int64),
            "end_ns": pl.Series(self.end_ns, dtype=pl.Int64),
            "lane": pl.Series([lane for lane, _ in places], dtype=pl.String),
            "kind": pl.Series([kind for _, kind in places], dtype=pl.String),
            "instance_id": pl.Series([instance for instance, _ in self.processes], dtype=pl.String),
            "process_id": pl.Series([process for _, process in self.processes], dtype=pl.Int64),
        }
        for name, (keys, limit) in _NUMBER_COLUMNS.items():
            columns[name] = _taken(self.attributes, keys, limit)
        columns["moved_bytes"] = self._taken_of("size", places, lambda place: place[1] in COPIES)
        columns["stream_id"] = self._taken_of("framework_stream_id", places, _is_framework)
        columns["external_id"] = self._taken_of("External id", places, _is_framework)
        columns["model_id"] = pl.Series(self._models(places), dtype=pl.String)
        columns["category"] = pl.Series([_text(a.pop("group", None)) for a in self.attributes], dtype=pl.String)
        columns["attrs_json"] = pl.Series(attributes_json(self.attributes), dtype=pl.String)
        return pl.DataFrame(columns)

    def _taken_of(self, key: str, places: list[Place], applies: Callable[[Place], bool]) -> pl.Series:
        """A number attribute of some events only; null for the others, which keep theirs."""
        counts = {place: applies(place) for place in set(places)}
        rows = [row for row, place in enumerate(places) if counts[place]]
        values = pl.repeat(None, len(places), dtype=pl.Int64, eager=True)
        if rows:
            values.scatter(rows, _taken([self.attributes[row] for row in rows], (key,), INT64_LIMIT))
        return values

    def _models(self, places: list[Place]) -> list[str | None]:
        """Decimal hash of the NEFF; for framework events the cache key it names."""
        models = [_text(a.pop("model_id", None)) for a in self.attributes]
        return [
            _text(a.get("neff_cache_key")) if model is None and lane in FRAMEWORK_LANES else model
            for model, a, (lane, _) in zip(models, self.attributes, places, strict=True)
        ]


def _is_framework(place: Place) -> bool:
    return place[0] in FRAMEWORK_LANES


def _taken(attributes: Sequence[Attributes], keys: tuple[str, ...], limit: int) -> pl.Series:
    """The number ≥ 0 and < ``limit`` under the first of ``keys`` that has one.

    What became the number leaves the attributes, also where a later key repeats it; what does not fit stays.
    """
    first = _numbers(attributes, keys[0], limit)
    for key in keys[1:]:
        if any(key in a for a in attributes):
            first = _with_synonym(attributes, first, key, limit)
    return first


def _numbers(attributes: Sequence[Attributes], key: str, limit: int) -> pl.Series:
    values = [a.pop(key, None) for a in attributes]
    types = set(map(type, values))
    dtype = _DTYPES[limit]
    numbers: pl.Series | None = None
    if types <= {int, type(None)}:
        try:
            numbers = pl.Series(values, dtype=dtype)
        except (OverflowError, TypeError, pl.exceptions.PolarsError):
            numbers = None
    elif types <= {str, type(None)}:
        texts = pl.Series(values, dtype=pl.String)
        numbers = texts.set(~texts.str.contains(r"^-?[0-9]{1,20}$"), None).cast(dtype, strict=False)
    if numbers is None:
        spelled = (integer(value) for value in values)
        numbers = pl.Series([n if n is not None and 0 <= n < limit else None for n in spelled], dtype=dtype)
    numbers = numbers.set(numbers < 0, None)
    if numbers.null_count() > values.count(None):
        for row in numbers.is_null().arg_true().to_list():
            if values[row] is not None:
                attributes[row][key] = values[row]
    return numbers


def _with_synonym(attributes: Sequence[Attributes], first: pl.Series, key: str, limit: int) -> pl.Series:
    second = _numbers(attributes, key, limit)
    for row in (first.is_not_null() & second.is_not_null() & (first != second)).arg_true().to_list():
        attributes[row][key] = second[row]
    return pl.select(pl.coalesce(first, second)).to_series()


def _text(value: object) -> str | None:
    """Text of an id; an empty one is absent."""
    return None if value is None or value == "" else str(value)


def attributes_json(attributes: Sequence[Attributes]) -> list[str | None]:
    """Compact JSON objects with sorted keys; numbers spelled as text become numbers, absent attributes go."""
    cleaned = [_cleaned(a) for a in attributes]
    try:
        lines = _ENCODER.encode_lines(cleaned).decode().split("\n")[: len(cleaned)]
    except (OverflowError, TypeError, ValueError):
        lines = [json.dumps(a, sort_keys=True, separators=(",", ":"), default=str) for a in cleaned]
    return [None if line == "{}" else line for line in lines]


def _cleaned(attributes: Attributes) -> Attributes:
    for value in attributes.values():
        if value is None or type(value) is str:
            return {key: _plain(key, v) for key, v in attributes.items() if v is not None}
    return attributes


def _plain(key: str, value: object) -> object:
    if type(value) is not str or key in TEXT_KEYS or not value[-1:].isdecimal():
        return value
    number = integer(value)
    return number if number is not None and str(number) == value and -INT64_LIMIT <= number < UINT64_LIMIT else value


@contextmanager
def no_collection() -> Iterator[None]:
    """Without cyclic garbage collection, which walks every decoded dictionary again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


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
            own = self._artifact.session if process_id is None else None
            session = own or self._sink.session_of(instance_id, process_id)
            self._wanted[key] = any(self._sink.wants(session, lane) for lane in FRAMEWORK_LANES)
        return self._wanted[key]

    def note(self) -> None:
        """Say how many rows were left out."""
        if self.skipped:
            message = f"{self.skipped} framework rows repeat the session's own trace and are not read"
            self._sink.note("info", "framework_repeats", message, event_count=self.skipped)


class Emitter:
    """Gives batches to the sink, process by process, with rising event ids; remembers what to note.

    A file may describe several processes; rows that name one, or a machine, go to ``sink.session_of``, others to
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
        frame = batch.frame()
        self._count_unknown(frame)
        if frame["process_id"].n_unique() == 1 and frame["instance_id"].n_unique() == 1:
            self._give_process(frame)
            return
        for part in frame.partition_by("instance_id", "process_id", maintain_order=True):
            self._give_process(part)

    def _count_unknown(self, frame: pl.DataFrame) -> None:
        odd = frame.filter((pl.col("kind") == "other") & ~pl.col("lane").is_in(FRAMEWORK_LANES))
        for name, count in odd["name"].value_counts().iter_rows():
            if not is_known(name):
                self._unknown[name] += count

    def _give_process(self, frame: pl.DataFrame) -> None:
        instance_id, process_id = frame["instance_id"][0], frame["process_id"][0]
        session = None
        if process_id is not None:
            session = self._sink.session_of(instance_id, process_id)
            unwanted = [lane for lane in FRAMEWORK_LANES if not self._sink.wants(session, lane)]
            frame = frame.filter(~pl.col("lane").is_in(unwanted))
        elif self._process_id is not None:
            frame = frame.with_columns(process_id=pl.lit(self._process_id, dtype=pl.Int64))
        elif instance_id is not None:
            session = self._sink.session_of(instance_id, None)
        ids = pl.int_range(self._next_id, self._next_id + frame.height, dtype=pl.Int64, eager=True)
        rows = frame.with_columns(event_id=ids).select(
            [name for name in EVENT_COLUMNS if name in frame.columns or name == "event_id"]
        )
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
