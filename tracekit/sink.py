"""What readers write into: the staged tables of one profile."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Set
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tracekit import tables
from tracekit.agreement import difference, merged, summary
from tracekit.archive import TableWriter, write_table
from tracekit.repeats import Seen
from tracekit.sessions import trace_stem
from tracekit.sources.base import Artifact, Rows, Session, Severity, SideTable

FRAMEWORK_LANES = frozenset({"dispatch", "stream"})
_SYSTEM_LANES = ("runtime", "hardware")
_POSITION_BITS = 40


class Staging:
    """The tables of one profile while they are written, and what is known about its sessions."""

    def __init__(self, directory: Path, sessions: tuple[Session, ...], progress: Callable[[int], None]) -> None:
        self.directory = directory
        self.progress = progress
        self.sessions: dict[str, dict[str, str | int | None]] = {s.session: _known(s) for s in sessions}
        self.notes: list[pl.DataFrame] = []
        self.owners: dict[tuple[str, str], str] = {}
        self.summaries: dict[tuple[str, str], pl.DataFrame] = {}
        self.lanes: Counter[tuple[str, str]] = Counter()
        self.homes: dict[str, str | None] = {}
        """Sessions of files that name no process, with the machine that their rows name."""
        self.seen: defaultdict[tuple[str, str], Seen] = defaultdict(Seen)
        self._events = TableWriter(tables.EVENTS, directory / "events.parquet")
        self._side = {
            name: TableWriter(tables.TABLES[name], directory / f"{name}.parquet")
            for name in ("samples", "threads", "flows")
        }

    def close(self) -> None:
        """Finish the files of the streamed tables."""
        self._events.close()
        for writer in self._side.values():
            writer.close()

    def counts(self) -> dict[str, int]:
        """Rows of each streamed table."""
        return {"events": self._events.row_count} | {n: w.row_count for n, w in self._side.items()}

    def write_events(self, rows: pa.Table) -> None:
        """Append conformed rows of ``tables.EVENTS``."""
        self._events.write(rows)

    def write_side(self, table: SideTable, rows: pa.Table) -> None:
        """Append rows of a side table."""
        self._side[table].write(rows)

    def session_of(self, instance_id: str | None, process_id: int | None) -> str:
        """Session of a process: the one with both ids, else the only one with that process, else a new one."""
        named = [
            name
            for name, facts in self.sessions.items()
            if facts["process_id"] == process_id and instance_id in (None, facts["instance_id"])
        ]
        if not named and process_id is not None:
            unnamed = [n for n, f in self.sessions.items() if f["process_id"] == process_id and not f["instance_id"]]
            named = unnamed if len(unnamed) == 1 else []
        if named:
            self.sessions[named[0]]["instance_id"] = self.sessions[named[0]]["instance_id"] or instance_id
            return named[0]
        name = f"{instance_id or 'unknown'}_pid_{'unknown' if process_id is None else process_id}"
        known = _known(Session(name, name, instance_id=instance_id, process_id=process_id))
        self.sessions.setdefault(name, known)
        return name

    def home(self, artifact: Artifact, instance_id: str | None, threads: Set[int | None] = frozenset()) -> str:
        """Session of rows that name no process: the only process there can be, else one of the file's own.

        Of several processes of the machine it is the one whose main thread, which has the process's number, is
        among ``threads``.
        """
        named = {name: facts for name, facts in self.sessions.items() if name not in self.homes}
        near = [name for name, f in named.items() if instance_id is None or f["instance_id"] in (None, instance_id)]
        for fitting in (near, [name for name in near if named[name]["process_id"] in threads - {None}]):
            if len(fitting) == 1:
                return fitting[0]
        instances = {facts["instance_id"] for facts in named.values()}
        only = str(instances.pop()) if len(instances) == 1 and None not in instances else None
        name = _export_name(artifact)
        if self.homes.get(name, instance_id) != instance_id:
            name = f"{name}/{instance_id or 'unknown'}"
        while name in named:
            name += "~"
        self.homes[name] = instance_id
        self.sessions.setdefault(name, _known(Session(name, artifact.label, instance_id=instance_id or only)))
        return name

    def span(self, session: str, first_ns: int, last_ns: int) -> None:
        """Widen the time range of a session."""
        facts = self.sessions[session]
        known_first, known_last = facts["first_ns"], facts["last_ns"]
        facts["first_ns"] = first_ns if not isinstance(known_first, int) else min(known_first, first_ns)
        facts["last_ns"] = last_ns if not isinstance(known_last, int) else max(known_last, last_ns)

    def session_rows(self) -> pl.DataFrame:
        """``tables.SESSIONS`` as known so far."""
        return tables.SESSIONS.rows([dict(facts) for facts in self.sessions.values()])

    def note_rows(self) -> pl.DataFrame:
        """``tables.NOTES`` as known so far."""
        return pl.concat([tables.NOTES.empty(), *self.notes])

    def write_frame(self, table: tables.Table, frame: pl.DataFrame) -> int:
        """Write a table that is small enough to be held at once."""
        return write_table(table, frame, self.directory / f"{table.name}.parquet")


def _export_name(artifact: Artifact) -> str:
    """What to call the session of a file: its path without endings; the tables of Explorer are one directory."""
    place, _, name = artifact.label.rpartition("/")
    if artifact.format == "explorer":
        return place or "explorer"
    return "/".join(part for part in (place, trace_stem(name)) if part)


def _known(session: Session) -> dict[str, str | int | None]:
    facts: dict[str, str | int | None] = dict.fromkeys(tables.SESSIONS.names)
    return facts | {name: getattr(session, name) for name in Session.__dataclass_fields__}


class ArtifactSink:
    """``sources.base.Sink`` of one artifact: adds session, source, ids and ownership of lanes.

    The first system source that gives a lane of a session owns it. Rows that a later one gives for the
    same lane are compared with the owner's and not stored; a trace's own device rows are stored, but
    are not primary. A row that a system source gives again, in this file or another of its format, counts once.

    Args:
        staging: the profile being written.
        artifact: the file being read.
        ordinal: its place in the reading order; the high bits of its event ids.
        traced: sessions whose framework events a trace of their own gives.
        only: the only lanes to take; None takes all.
    """

    def __init__(
        self,
        staging: Staging,
        artifact: Artifact,
        ordinal: int,
        *,
        traced: frozenset[str | None],
        only: frozenset[str] | None = None,
    ) -> None:
        self._staging = staging
        self._artifact = artifact
        self._base = ordinal << _POSITION_BITS
        self._source = artifact.format or "other"
        self._traced = traced
        self._only = only
        self._repeats: dict[tuple[str, str], list[pl.DataFrame]] = {}
        self._own: dict[tuple[str, str], list[pl.DataFrame]] = {}
        self._counted: Counter[tuple[str, str | None]] = Counter()
        self._repeated: Counter[str] = Counter()
        self._homes: dict[str | None, str] = {}
        self._strays: Counter[str] = Counter()

    def events(self, rows: Rows, *, session: str | None = None) -> None:
        """See ``Sink.events``."""
        table = _as_arrow(rows)
        name = session or self._session(table)
        if self._source != "kineto":
            table = self._claim(table, name)
        if not table.num_rows:
            return
        if name in self._homes.values():
            table = self._of_home(table, name)
        self._staging.write_events(self._completed(table, name))
        first, last = pc.min(table["start_ns"]).as_py(), pc.max(table["end_ns"]).as_py()
        self._staging.span(name, first, last)
        for lane in pc.value_counts(table["lane"]).to_pylist():
            self._staging.lanes[name, lane["values"]] += lane["counts"]

    def side(self, table: SideTable, rows: Rows, *, session: str | None = None) -> None:
        """See ``Sink.side``."""
        arrow = _as_arrow(rows)
        if arrow.num_rows:
            name = session or self._session()
            self._staging.write_side(table, arrow.append_column("session", _constant(name, arrow.num_rows)))

    def note(
        self,
        severity: Severity,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        event_count: int | None = None,
        session: str | None = None,
    ) -> None:
        """See ``Sink.note``."""
        row = {
            "session": session or self._artifact.session,
            "severity": severity,
            "code": code,
            "path": self._artifact.label,
            "message": message,
            "hint": hint,
            "event_count": event_count,
        }
        self._staging.notes.append(tables.NOTES.rows([row]))

    def facts(self, *, session: str | None = None, **facts: str | int | None) -> None:
        """See ``Sink.facts``."""
        known = self._staging.sessions[session or self._session()]
        for name, value in facts.items():
            if known[name] is None:
                known[name] = value

    def count(self, phase: str, category: str | None, events: int) -> None:
        """See ``Sink.count``."""
        self._counted[phase, category] += events

    def session_of(self, instance_id: str | None, process_id: int | None) -> str:
        """See ``Sink.session_of``."""
        if process_id is None:
            return self._artifact.session or self._home(instance_id)
        return self._staging.session_of(instance_id, process_id)

    def wants(self, session: str, lane: str) -> bool:
        """See ``Sink.wants``."""
        if lane in _SYSTEM_LANES:
            return self._staging.owners.get((session, lane), self._source) == self._source
        return not self._traced if session in self._staging.homes else session not in self._traced

    def progress(self, read_bytes: int) -> None:
        """See ``Sink.progress``."""
        self._staging.progress(read_bytes)

    def counts_by_phase(self) -> dict[str, int]:
        """Events as they stand in the file: ``"<ph> <cat>"`` → how many."""
        return {
            f"{phase} {category or ''}".rstrip(): n for (phase, category), n in sorted(self._counted.items(), key=str)
        }

    def finish(self) -> None:
        """Note where this artifact disagrees with the source that owns the lane."""
        for key, frames in self._own.items():
            earlier = [self._staging.summaries[key]] if key in self._staging.summaries else []
            self._staging.summaries[key] = merged(earlier + frames)
        for key, frames in self._repeats.items():
            self._note_difference(key, merged(frames))
        for session, rows in (+self._repeated).items():
            message = f"{rows} rows repeat rows that the {self._source} source gave already; they are counted once"
            self.note("info", "repeated_rows", message, session=session, event_count=rows)
        for session, rows in (+self._strays).items():
            self._note_strays(session, rows)

    def _session(self, rows: pa.Table | None = None) -> str:
        """The artifact's own session; where nothing names its process, ``rows`` may show it."""
        if self._artifact.session or self._artifact.process_id is not None:
            return self._artifact.session or self.session_of(self._artifact.instance_id, self._artifact.process_id)
        known = rows is not None and "thread_id" in rows.schema.names
        threads = frozenset(pc.unique(rows["thread_id"]).to_pylist() if rows is not None and known else ())
        return self._home(self._artifact.instance_id, threads)

    def _home(self, instance_id: str | None, threads: Set[int | None] = frozenset()) -> str:
        """Session of rows that name no process."""
        if instance_id not in self._homes:
            self._homes[instance_id] = self._staging.home(self._artifact, instance_id, threads)
        return self._homes[instance_id]

    def _of_home(self, rows: pa.Table, session: str) -> pa.Table:
        """Rows that name no process with the process of their session; counts them."""
        given, process_id = rows["process_id"], self._staging.sessions[session]["process_id"]
        self._strays[session] += given.null_count
        if not given.null_count or process_id is None:
            return rows
        place = rows.schema.get_field_index("process_id")
        return rows.set_column(place, "process_id", pc.fill_null(given, pa.scalar(process_id, pa.int64())))

    def _claim(self, table: pa.Table, session: str) -> pa.Table:
        """Rows of lanes that are this source's; the others go to the comparison."""
        kept = []
        for lane in tables.LANES if self._only is None else self._only:
            part = self._first(table.filter(pc.equal(table["lane"], lane)), session)
            if not part.num_rows:
                continue
            if lane in _SYSTEM_LANES:
                owner = self._staging.owners.setdefault((session, lane), self._source)
                mine = owner == self._source
                self.facts(session=session, device="neuron")
                (self._own if mine else self._repeats).setdefault((session, lane), []).append(_summary(part))
                if not mine:
                    continue
            kept.append(part)
        merged = pa.concat_tables(kept) if kept else table.slice(0, 0)
        return merged.sort_by("event_id")

    def _first(self, rows: pa.Table, session: str) -> pa.Table:
        """Rows that this source has not given for the session before."""
        if not rows.num_rows:
            return rows
        fresh = self._staging.seen[session, self._source].first(pl.DataFrame(pl.from_arrow(rows)))
        self._repeated[session] += len(fresh) - int(fresh.sum())
        return rows if fresh.all() else rows.filter(fresh.to_arrow())

    def _completed(self, table: pa.Table, session: str) -> pa.Table:
        rows = table.num_rows
        event_id = pc.add(table["event_id"], pa.scalar(self._base, pa.int64()))
        table = table.set_column(table.schema.get_field_index("event_id"), "event_id", event_id)
        table = table.append_column("session", _constant(session, rows))
        table = self._with_source(table)
        return table.append_column("is_primary", self._primary(table["lane"], session))

    def _with_source(self, table: pa.Table) -> pa.Table:
        """``source`` of every row: this artifact's, but of rows of an export the one they came from."""
        own = _constant(self._source, table.num_rows)
        if "source" not in table.schema.names:
            return table.append_column("source", own)
        place, given = table.schema.get_field_index("source"), table["source"]
        if given.null_count < len(given):
            own = pc.fill_null(pc.cast(given, pa.large_string()), self._source)
        return table.set_column(place, "source", own)

    def _primary(self, lanes: pa.ChunkedArray, session: str) -> pa.Array | pa.ChunkedArray:
        taken = [lane for lane in _SYSTEM_LANES if not self.wants(session, lane)]
        if not taken:
            return pa.repeat(pa.scalar(True), len(lanes))
        return pc.invert(pc.is_in(pc.cast(lanes, pa.large_string()), pa.array(taken, pa.large_string())))

    def _note_difference(self, key: tuple[str, str], mine: pl.DataFrame) -> None:
        session, lane = key
        owner = self._staging.owners[key]
        found = difference(mine, self._staging.summaries[key])
        if found is None:
            self.note(
                "info",
                "duplicate_source",
                f"the {lane} lane agrees with the {owner} source, which is used",
                session=session,
                event_count=int(mine["events"].sum()),
            )
            return
        self.note(
            "warning",
            "sources_disagree",
            f"the {lane} lane differs from the {owner} source (there), which is used, in {found.name_count} event "
            f"name(s): {found.example}",
            hint="export the system trace again with `neuron-explorer view -d DIR --ingest-only`",
            session=session,
            event_count=found.event_count,
        )

    def _note_strays(self, session: str, rows: int) -> None:
        if session not in self._staging.homes:
            why = "the only one that they can be of, or the one whose main thread is among theirs"
            message = f"{rows} rows name no process; they are taken for those of {session}, {why}"
            self.note("info", "process_assumed", message, session=session, event_count=rows)
            return
        message = f"{rows} rows name no process: they stand in a session of their own, which no other file is part of"
        hint = "put the file into the directory of its process, or pid_<process id> into its name"
        self.note("warning", "unknown_process", message, hint=hint, session=session, event_count=rows)


def _constant(text: str, rows: int) -> pa.Array:
    indices = pa.repeat(pa.scalar(0, pa.int32()), rows)
    return pa.DictionaryArray.from_arrays(indices, pa.array([text], pa.large_string()))


def _as_arrow(rows: Rows) -> pa.Table:
    if isinstance(rows, pl.DataFrame):
        return rows.to_arrow()
    return pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows


def _summary(rows: pa.Table) -> pl.DataFrame:
    return summary(pl.DataFrame(pl.from_arrow(rows.select(["name", "start_ns", "end_ns"]))))
