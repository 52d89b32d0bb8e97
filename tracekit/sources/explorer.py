"""Neuron Explorer's Parquet export of a system profile (grade D, partly C).

``neuron-explorer view -d <dir> --ingest-only --data-path P`` writes ``P/profiles/global/N@latest/*.parquet``;
the vendor describes the tables in its Parquet schema reference. Read here: ``SystemProfileEvents`` (times are
absolute Unix ns), the usage tables, and the metadata; large tables come in pieces ``X_0``, ``X_1``.
Columns come and go between schema versions, and attributes move between columns and
``extra_attributes_json``: both are read, and only a name and times are required.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tracekit.errors import SourceError
from tracekit.sources._neuron_events import (
    FRAMEWORK_SUFFIX,
    SYNC_POINT,
    Attributes,
    framework_place,
    is_known,
)
from tracekit.sources._neuron_rows import Batch, Emitter, FrameworkRows, Place, no_collection
from tracekit.sources._neuron_samples import sample_frames
from tracekit.sources.base import Artifact, Sink, Source

BATCH_ROWS = 1 << 16
_TABLE_NAME = re.compile(r"^(?P<table>[A-Za-z]+?)(?:_\d+)?\.parquet$")
_START = ("start_ts", "start_ts_ns", "start_ns", "timestamp", "timestamp_ns")
_END = ("end_ts", "end_ts_ns", "end_ns")
_DURATION = ("duration_ns", "duration")
_USAGE_TABLES = ("SystemProfileHbmUsage", "CpuUsage", "HostMemUsage")
_METADATA_TABLES = ("SystemProfileMetadata", "Metadata")
_HINT = "export the profile again with: neuron-explorer view -d <dir> --ingest-only --data-path <out>"


def read(artifact: Artifact, sink: Sink) -> None:
    """Give the rows of one Parquet file to the sink.

    Raises:
        SourceError: if the file is no readable Parquet file, or lacks a name or times.
    """
    file = _opened(artifact.path)
    match = _TABLE_NAME.match(artifact.path.name)
    table = match["table"] if match else ""
    try:
        if table in _METADATA_TABLES:
            _read_metadata(file, artifact, sink)
        elif table in _USAGE_TABLES:
            for rows in _batches(file, artifact, sink):
                _give_samples(rows, table, artifact, sink)
        else:
            _Events(artifact, sink).read(file)
    finally:
        file.close()


SOURCE = Source(name="explorer", doc="Neuron Explorer Parquet", grade="D", rank=10, read=read)


def _opened(path: Path) -> pq.ParquetFile:
    if path.stat().st_size == 0:
        raise SourceError(path, "Parquet file is 0 bytes", hint=_HINT)
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(path, f"not a complete Parquet file ({_first_line(error)})", hint=_HINT) from error


def _batches(file: pq.ParquetFile, artifact: Artifact, sink: Sink) -> Iterator[pl.DataFrame]:
    """The file in pieces of at most ``BATCH_ROWS``; reports progress by rows."""
    total, size = max(file.metadata.num_rows, 1), artifact.path.stat().st_size
    done = 0
    try:
        for batch in file.iter_batches(batch_size=BATCH_ROWS):
            frame = pl.from_arrow(batch)
            assert isinstance(frame, pl.DataFrame)
            yield frame
            sink.progress((done + frame.height) * size // total - done * size // total)
            done += frame.height
    except (pa.ArrowException, OSError) as error:
        problem = f"cannot be read after row {done} ({_first_line(error)})"
        raise SourceError(artifact.path, problem, hint=_HINT) from error


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _whole(name: str) -> pl.Expr:
    """A number column that may be stored as text, as Int64; what does not fit becomes null."""
    return pl.col(name).cast(pl.Int64, strict=False)


class _Events:
    """Reads ``SystemProfileEvents``: counts what it leaves out, and notes it at the end."""

    def __init__(self, artifact: Artifact, sink: Sink) -> None:
        self._artifact = artifact
        self._sink = sink
        self._emitter = Emitter(sink, process_id=artifact.process_id)
        self._framework = FrameworkRows(artifact, sink)
        self._rows = self._untimed = self._negative = self._sync_points = self._bad_attributes = 0
        self._first_untimed: int | None = None
        self._float_times: set[str] = set()

    def read(self, file: pq.ParquetFile) -> None:
        """Give all events; a file that breaks off in the middle keeps what came before."""
        self._check_columns(file.schema_arrow.names)
        try:
            with no_collection():
                for rows in _batches(file, self._artifact, self._sink):
                    self._give(rows)
        except SourceError as error:
            if not self._emitter.given:
                raise
            self._sink.note("warning", "cut_file", f"{self._artifact.label}: {error.problem}", hint=error.hint)
        self._note()

    def _check_columns(self, names: list[str]) -> None:
        missing = [
            group[0] for group in (("name",), _START, (*_END, *_DURATION)) if not any(name in names for name in group)
        ]
        if missing:
            version = _schema_version(self._artifact.path)
            problem = (
                f"no column {', '.join(missing)} (schema version {version}; columns: {', '.join(names) or 'none'})"
            )
            raise SourceError(self._artifact.path, problem, hint=_HINT)
        if "process_id" not in names:
            version = _schema_version(self._artifact.path)
            message = f"no column process_id (schema version {version}): the rows do not tell processes apart"
            self._sink.note("warning", "missing_column", message, hint=_HINT)

    def _give(self, rows: pl.DataFrame) -> None:
        timed = self._wanted(self._timed(rows))
        attributes = self._extras(timed)
        for column in timed.columns:
            if column not in _HANDLED:
                _add_column(attributes, column, timed[column])
        _add_column(attributes, "group", timed["trace_event_source"])
        origins = timed["trace_event_source"].to_list()
        names = timed["name"].to_list()
        batch = Batch(
            names=[name.removesuffix(FRAMEWORK_SUFFIX) for name in names],
            start_ns=timed["start_ns"].to_list(),
            end_ns=timed["end_ns"].to_list(),
            attributes=attributes,
            processes=timed.select("instance_id", "process_id").rows(),
            places=[_place(*event) for event in zip(names, origins, attributes, strict=True)],
        )
        self._emitter.give(batch)

    def _timed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows with a name and a start; ``start_ns`` and ``end_ns`` take the place of the time columns."""
        names = rows.columns
        starts = [_whole(c) for c in _START if c in names]
        start = pl.coalesce(starts)
        ends = [_whole(c) for c in _END if c in names] + [start + _whole(c) for c in _DURATION if c in names]
        optional = [
            pl.lit(None, dtype=pl.String).alias(c)
            for c in ("trace_event_source", "instance_id", "extra_attributes_json")
            if c not in names
        ]
        process = _whole("process_id") if "process_id" in names else pl.lit(None, dtype=pl.Int64).alias("process_id")
        framed = rows.with_columns(process, *optional, start_ns=start, end_ns=pl.coalesce(ends))
        framed = framed.with_columns(pl.col(*_TEXTS).cast(pl.String))
        framed = framed.drop(
            [c for c in (*_START, *_END, *_DURATION) if c in names and c not in ("start_ns", "end_ns")]
        )
        has_time = framed.select(pl.col("start_ns").is_not_null() & pl.col("name").is_not_null()).to_series()
        timed = framed.filter(has_time)
        if self._first_untimed is None and timed.height < framed.height:
            self._first_untimed = self._rows + int((~has_time).arg_true()[0]) + 1
        self._float_times |= {c for c in (*_START, *_END, *_DURATION) if c in names and rows[c].dtype.is_float()}
        self._rows += rows.height
        self._untimed += framed.height - timed.height
        is_sync = timed["name"] == SYNC_POINT
        self._sync_points += int(is_sync.sum())
        self._negative += timed.filter(pl.col("end_ns") < pl.col("start_ns")).height
        end_ns = pl.max_horizontal("start_ns", "end_ns")
        return timed.filter(~is_sync).with_columns(end_ns=end_ns)

    def _wanted(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Without the framework rows that repeat a trace of the session's own; counts all rows by origin."""
        for origin, count in rows["trace_event_source"].value_counts().iter_rows():
            self._sink.count("X", origin, count)
        is_framework = (pl.col("trace_event_source") == "framework").fill_null(False) | pl.col("name").str.ends_with(
            FRAMEWORK_SUFFIX
        )
        framework = rows.filter(is_framework)
        processes = framework.select("instance_id", "process_id").unique().rows()
        repeated = [key for key in processes if not self._framework.wanted(*key)]
        if not repeated:
            return rows
        keys = pl.DataFrame(repeated, schema=framework.select("instance_id", "process_id").schema, orient="row")
        known = framework.join(keys, on=["instance_id", "process_id"], how="semi", nulls_equal=True)
        self._framework.skipped += known.height
        wanted = framework.join(keys, on=["instance_id", "process_id"], how="anti", nulls_equal=True)
        return pl.concat([rows.filter(~is_framework), wanted]) if wanted.height else rows.filter(~is_framework)

    def _extras(self, rows: pl.DataFrame) -> list[Attributes]:
        """``extra_attributes_json`` of each row as a dictionary, all rows in one call where they are valid."""
        texts = rows["extra_attributes_json"].to_list()
        joined = "[" + ",".join(text or "{}" for text in texts) + "]"
        try:
            decoded = _ATTRIBUTES.decode(joined)
        except (msgspec.DecodeError, UnicodeEncodeError):
            return [self._extra(text) for text in texts]
        return [extra or {} for extra in decoded] if len(decoded) == len(texts) else [self._extra(t) for t in texts]

    def _extra(self, text: str | None) -> Attributes:
        try:
            return msgspec.json.decode(text, type=dict[str, object] | None) or {} if text else {}
        except (msgspec.DecodeError, UnicodeEncodeError):
            self._bad_attributes += 1
            return {"extra_attributes_json": text}

    def _note(self) -> None:
        counts = (
            ("info", "sync_points", self._sync_points, "clock sync points are not activities and give no rows"),
            (
                "warning",
                "missing_time",
                self._untimed,
                f"rows without a name or a start are skipped, the first is row {self._first_untimed}",
            ),
            ("warning", "negative_duration", self._negative, "rows end before they start; their end is their start"),
            (
                "warning",
                "bad_attributes",
                self._bad_attributes,
                "rows have attributes that are no JSON object; kept as text",
            ),
        )
        for severity, code, count, message in counts:
            if count:
                self._sink.note(severity, code, f"{count} {message}", event_count=count)  # type: ignore[arg-type]
        if not self._rows:
            self._sink.note("warning", "no_events", "the table has no rows", hint=_HINT)
        if self._float_times:
            columns = ", ".join(sorted(self._float_times))
            message = f"times are floating-point numbers ({columns}): those above 2^53 are rounded, by up to 128 ns"
            self._sink.note("warning", "rounded_times", message, hint=_HINT)
        self._framework.note()
        self._emitter.finish()


_TEXTS = ("name", "trace_event_source", "instance_id", "extra_attributes_json")
_HANDLED = frozenset((*_TEXTS, "start_ns", "end_ns", "process_id"))
_ATTRIBUTES = msgspec.json.Decoder(list[dict[str, object] | None])


def _add_column(attributes: list[Attributes], name: str, values: pl.Series) -> None:
    """Put a column's values into the attributes of their rows, where there are any."""
    if values.null_count() == len(values):
        return
    for own, value in zip(attributes, values.to_list(), strict=True):
        if value is not None:
            own[name] = value


def _place(name: str, origin: str | None, attributes: Attributes) -> Place | None:
    """(lane, kind) of a framework row, or of a hardware row nobody described; None where the name tells."""
    if origin == "framework" or name.endswith(FRAMEWORK_SUFFIX):
        return framework_place(name.removesuffix(FRAMEWORK_SUFFIX), attributes)
    if origin == "neuron_hw" and not is_known(name):
        return ("hardware", "other")
    return None


def _give_samples(rows: pl.DataFrame, table: str, artifact: Artifact, sink: Sink) -> None:
    """Usage tables become samples, one counter per number column."""
    frames = sample_frames(rows, table)
    if frames is None:
        version = _schema_version(artifact.path)
        columns = ", ".join(rows.columns) or "none"
        problem = f"no column timestamp (schema version {version}; columns: {columns})"
        raise SourceError(artifact.path, problem, hint=_HINT)
    for (instance_id, process_id), frame in frames:
        session = None if process_id is None else sink.session_of(instance_id, process_id)
        sink.side("samples", frame, session=session)


def _read_metadata(file: pq.ParquetFile, artifact: Artifact, sink: Sink) -> None:
    """What the profile says about itself goes to a note."""
    for rows in _batches(file, artifact, sink):
        for row in rows.head(64).iter_rows(named=True):
            facts = [f"{name} {value}" for name, value in row.items() if value not in (None, "")]
            sink.note("info", "profile_metadata", ", ".join(facts) or "empty metadata row")


def _schema_version(path: Path) -> str:
    """``profile_schema_version`` of the metadata table beside a file, for messages."""
    for table in _METADATA_TABLES:
        beside = path.with_name(f"{table}.parquet")
        try:
            found = pq.read_table(beside, columns=["profile_schema_version"]).column(0).to_pylist()
        except (pa.ArrowException, OSError, KeyError, IndexError):
            continue
        if found and found[0] is not None:
            return str(found[0])
    return "unknown"
