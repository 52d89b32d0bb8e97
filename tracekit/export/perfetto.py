"""A native Perfetto trace: what https://ui.perfetto.dev and ``trace_processor`` open.

One track per thread, stream, logical core and physical core, grouped by lane below the process; the gaps of every core
with their causes; counters; an arrow along every chain. Spans that overlap without nesting go to sub-tracks. Times are
exact Unix ns of the profile's common clock.

Processes are written one after the other, each as runs of packets with a clock and texts of their own: memory is
bounded by the numbers (about 150 bytes an event) and the distinct texts of the largest, whatever its attributes.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import BinaryIO

import numpy as np
import polars as pl

from tracekit.export import _packets as packets
from tracekit.export._packets import Batch, PacketSequence
from tracekit.export._spans import Spans, arrows, edges
from tracekit.export._tracks import GROUPS, KEYS, Tracks, event_keys, gap_keys, sample_keys, tracks
from tracekit.export._wire import Ints
from tracekit.export.base import BATCH_ROWS, Export, Progress, never
from tracekit.metrics import metric
from tracekit.metrics.base import Inputs

_IDS = ("event_id", "external_id", "correlation_id", "sequence_id", "execution_id", "model_id", "moved_bytes")
"""Columns of events that become arguments of a slice."""
_GAP_PARTS = ("collective_ns", "copy_ns", "model_switch_ns", "not_dispatched_ns", "dispatching_ns", "runtime_ns",
              "unknown_ns")  # fmt: skip
_GAP_NOTES = ("before_name", "after_name", "after_chain_id", *_GAP_PARTS)


def write(inputs: Inputs, path: Path, progress: Progress) -> list[str]:
    """Write a profile as a Perfetto trace.

    Args:
        inputs: the tables of a profile; gaps are those of the scope.
        path: the file.
        progress: told how many events are written.

    Returns:
        What was left out, laid out differently, or drawn.
    """
    gaps = _gaps(inputs)
    trace = _Trace(inputs, gaps, progress)
    with path.open("wb") as file:
        trace.write(file)
    return trace.remarks()


def _gaps(inputs: Inputs) -> pl.DataFrame:
    """Every gap, with its cause for a name."""
    chosen = metric("gaps")
    found = chosen.compute(inputs, {option.name: option.default for option in chosen.options})
    return found.with_columns(
        name=pl.lit("gap: ") + pl.col("main_cause"),
        is_instant=False,
        **{part: pl.when(pl.col(part) > 0).then(pl.col(part)) for part in _GAP_PARTS},
    ).collect()


class _Trace:
    """A trace on its way into a file."""

    def __init__(self, inputs: Inputs, gaps: pl.DataFrame, progress: Progress) -> None:
        self._inputs = inputs
        self._gaps = gaps
        self._progress = progress
        self._tracks: Tracks = tracks(inputs, gaps.lazy())
        self._is_written = pl.col("is_primary")
        self._counts: Counter[str] = Counter()
        self._uuid = 0
        self._sequence = 1
        offsets = inputs.sessions.select("session", pl.col("clock_offset_ns").fill_null(0)).collect()
        self._offsets: dict[str, int] = dict(offsets.rows())
        self._total, self._hidden = self._count()
        first = self._first()
        self._shift_ns = max(0, -first)
        """Added to all times: Perfetto has none before 1970."""
        self._base_ns = first + self._shift_ns
        self._done = 0

    def _count(self) -> tuple[int, int]:
        """Rows to write, and events that are not written."""
        written = self._inputs.events.select(rows=self._is_written.sum(), hidden=(~self._is_written).sum())
        samples = self._inputs.samples.select(rows=pl.len(), hidden=pl.lit(0))
        rows, hidden = pl.concat([written, samples], how="vertical_relaxed").sum().collect().row(0)
        return int(rows) + self._gaps.height, int(hidden)

    def _first(self) -> int:
        """First time in the trace, on the common clock."""
        events = self._inputs.events.filter(self._is_written).select("session", at_ns="start_ns")
        every = pl.concat([events, self._inputs.samples.select("session", "at_ns")])
        first = every.group_by("session").agg(pl.col("at_ns").min()).collect()
        offset = pl.col("session").replace_strict(self._offsets, default=0, return_dtype=pl.Int64)
        found = first.select((pl.col("at_ns") + offset).min()).item()
        return int(found or 0)

    def _moved(self, session: str) -> int:
        """What to add to the times of a session."""
        return self._offsets.get(session, 0) + self._shift_ns

    def write(self, file: BinaryIO) -> None:
        """Write every process."""
        for name, process_id, label in self._tracks.processes.select("session", "process_id", "label").rows():
            table = self._tracks.table.filter(pl.col("session") == name)
            if table.is_empty():
                continue
            process = self._next_uuid()
            file.write(packets.process_track(process, process_id, label))
            groups = {}
            for order, group in enumerate(GROUPS):
                if group in table["group"]:
                    groups[group] = self._next_uuid()
                    file.write(packets.group_track(groups[group], process, group, order))
            place = table.select(
                *KEYS, "track", "label", parent=pl.col("group").replace_strict(groups, return_dtype=pl.Int64)
            )
            self._events(file, name, place)
            self._gap_spans(file, name, place)
            self._samples(file, name, place)

    def remarks(self) -> list[str]:
        """What the user should know."""
        counts = self._counts
        said = [
            f"{counts['spans']:,} spans on {counts['tracks']:,} tracks, {counts['arrows']:,} arrows, "
            f"{counts['gaps']:,} gaps, {counts['samples']:,} samples"
        ]
        if counts["sub"]:
            said.append(f"{counts['sub']:,} spans overlap others of their track without nesting: on sub-tracks")
        if self._hidden:
            said.append(f"{self._hidden:,} events that a better source also describes are left out")
        if self._shift_ns:
            said.append(f"times before 1970: all are {self._shift_ns} ns later in the trace")
        return said

    def _next_uuid(self) -> int:
        self._uuid += 1
        return self._uuid

    def _next_sequence(self, file: BinaryIO) -> PacketSequence:
        """A new run of packets; the first number is that of the descriptors."""
        self._sequence += 1
        sequence = PacketSequence(self._sequence, self._base_ns)
        file.write(sequence.opening())
        return sequence

    def _events(self, file: BinaryIO, session: str, place: pl.DataFrame) -> None:
        texts = pl.col("name", "category", "kind", "model_id").cast(pl.Categorical)
        is_odd = pl.col("category") != pl.col("kind").cast(pl.String)
        rows = (
            self._inputs.events.filter(self._is_written & (pl.col("session") == session))
            .select(
                "session",
                *_IDS,
                "start_ns",
                "end_ns",
                "name",
                "kind",
                category=pl.when(is_odd).then("category"),
                is_instant=(pl.col("phase") == "instant").fill_null(value=False),
                **event_keys(),
            )
            .with_columns(texts)
            .collect(engine="streaming")
        )
        frame = self._placed(rows, place, self._moved(session))
        chains = self._inputs.chains.filter(pl.col("session") == session).collect()
        found = arrows(chains, frame["event_id"])
        self._counts["arrows"] += len(found.ids) - len(np.unique(found.ids))
        self._counts["spans"] += frame.height
        self._spans(file, Spans(frame, _IDS, ("kind", "category"), found), place)

    def _gap_spans(self, file: BinaryIO, session: str, place: pl.DataFrame) -> None:
        rows = self._gaps.filter(pl.col("session") == session).with_columns(**gap_keys())
        self._counts["gaps"] += rows.height
        frame = self._placed(rows.with_columns(event_id=pl.int_range(pl.len())), place, self._moved(session))
        self._spans(file, Spans(frame, _GAP_NOTES), place)

    def _placed(self, rows: pl.DataFrame, place: pl.DataFrame, moved: int) -> pl.DataFrame:
        """Rows with their track, in the order that ``Spans`` wants, moved to the trace's clock."""
        # Few columns tell the tracks of a process apart: joining on those alone is several times quicker.
        keys = ["group", *(key for key in KEYS[2:] if place[key].n_unique() > 1)]
        known = place.filter(pl.col("group").is_in(rows["group"].unique().implode())).select(*keys, "track")
        frame = rows.join(known, on=keys, nulls_equal=True).drop(KEYS)
        columns = frame["event_id"], -frame["end_ns"], frame["start_ns"], frame["track"]
        order = np.lexsort([column.to_numpy() for column in columns])
        return frame[order].with_columns(pl.col("start_ns", "end_ns") + moved)

    def _spans(self, file: BinaryIO, spans: Spans, place: pl.DataFrame) -> None:
        """Write spans as begins and ends."""
        if spans.frame.is_empty():
            return
        uuid = self._sub_tracks(file, spans, place)
        sequence = self._next_sequence(file)
        keys = pl.Series(spans.notes)
        sequence.introduce(file, "key", np.arange(1, len(keys) + 1), keys)
        every = edges(spans.frame)
        total = len(every.at_ns)
        for start in range(0, total, BATCH_ROWS):
            part = every.part(start, start + BATCH_ROWS)
            batch = spans.batch(part, uuid)
            self._introduce(file, sequence, spans, batch)
            sequence.write(file, batch)
            self._advance(spans.frame.height * len(part.at_ns) / total)

    def _introduce(self, file: BinaryIO, sequence: PacketSequence, spans: Spans, batch: Batch) -> None:
        if batch.name is not None:
            sequence.introduce(file, "name", batch.name, spans.names.values)
        for numbers in batch.categories:
            sequence.introduce(file, "category", numbers, spans.category_texts.values)
        for note in batch.notes:
            if note.is_text:
                sequence.introduce(file, "value", note.values.astype(np.int64), spans.values.values)

    def _sub_tracks(self, file: BinaryIO, spans: Spans, place: pl.DataFrame) -> Ints:
        """Describe the tracks that spans use, and give the number of each row's."""
        self._counts["sub"] += int((spans.lane > 0).sum())
        width = int(spans.lane.max()) + 1
        pair = spans.frame["track"].to_numpy() * width + spans.lane
        pairs = np.flatnonzero(np.bincount(pair))
        known = {row["track"]: row for row in place.select("track", "label", "parent").to_dicts()}
        uuid_of = np.zeros(int(pairs[-1]) + 1, np.int64)
        for number in pairs.tolist():
            track = known[number // width]
            uuid_of[number] = self._next_uuid()
            file.write(packets.span_track(int(uuid_of[number]), track["parent"], track["label"], track["track"]))
        self._counts["tracks"] += len(np.unique(pairs // width))
        found: Ints = uuid_of[pair]
        return found

    def _samples(self, file: BinaryIO, session: str, place: pl.DataFrame) -> None:
        rows = (
            self._inputs.samples.filter(pl.col("session") == session)
            .select("session", "value", at_ns=pl.col("at_ns") + self._moved(session), **sample_keys())
            .collect()
            .join(place.select(*KEYS, "track"), on=KEYS, nulls_equal=True)
            .sort("at_ns", maintain_order=True)
        )
        if rows.is_empty():
            return
        uuid_of = {}
        for track, label, parent, unit in place.filter(pl.col("group") == "counters").select(
            "track", "label", "parent", "unit"
        ).rows():  # fmt: skip
            uuid_of[track] = self._next_uuid()
            file.write(packets.counter_track(uuid_of[track], parent, label, track, unit))
        self._counts["tracks"] += len(uuid_of)
        self._counts["samples"] += rows.height
        sequence = self._next_sequence(file)
        for part in rows.iter_slices(BATCH_ROWS):
            uuid = part["track"].replace_strict(uuid_of, return_dtype=pl.Int64).to_numpy()
            kind = np.full(part.height, packets.COUNTER)
            sequence.write(file, Batch(part["at_ns"].to_numpy(), kind, uuid, value=part["value"].to_numpy()))
            self._advance(part.height)

    def _advance(self, rows: float) -> None:
        self._done += round(rows)
        self._progress("perfetto", min(self._done, self._total), self._total)


EXPORT = Export(
    "perfetto", "Perfetto trace with tracks, gaps, counters and arrows (ui.perfetto.dev).", ".pftrace", write, never
)
