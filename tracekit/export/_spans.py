"""Spans of one process in the order of a Perfetto trace: sub-tracks, begins and ends, texts as numbers, arrows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from tracekit.export._lanes import lanes
from tracekit.export._packets import BEGIN, END, INSTANT, Batch, Note, flow_fields
from tracekit.export._wire import Ints, Ragged, Unsigned


@dataclass(frozen=True)
class Texts:
    """Texts that repeat, and for each row of a column the number of its text, from 1 on; 0 is none."""

    values: pl.Series
    numbers: Mapping[str, Ints]


def numbered(frame: pl.DataFrame, columns: tuple[str, ...]) -> Texts:
    """Number the distinct texts of several columns together."""
    distinct = [frame[name].drop_nulls().unique() for name in columns]
    values = (
        pl.concat([pl.Series("text", [], pl.String), *(d.cast(pl.String).alias("text") for d in distinct)])
        .unique()
        .sort()
    )
    as_number = pl.Enum(values)
    codes = {
        name: frame[name].cast(as_number).to_physical().cast(pl.Int64).fill_null(-1).to_numpy() + 1 for name in columns
    }
    return Texts(values, codes)


@dataclass(frozen=True)
class Arrows:
    """Numbers of the arrows of each row, one row's behind the other's: row ``i`` has ``counts[i]`` of ``ids``."""

    ids: Unsigned
    counts: Ints

    def of(self, rows: Ints, chosen: Ints) -> Ragged:
        """The flow fields of ``rows``, of those where ``chosen`` is 1."""
        counts = self.counts[rows] * chosen
        starts = (np.cumsum(self.counts) - self.counts)[rows]
        before = np.cumsum(counts) - counts
        places = np.repeat(starts - before, counts) + np.arange(int(counts.sum()))
        return flow_fields(self.ids[places], counts)


@dataclass(frozen=True)
class Spans:
    """Rows to write.

    ``frame`` is sorted by track, start, end (latest first) and id. Its columns: ``track``, ``start_ns``, ``end_ns``,
    ``is_instant``, ``name``, and those of ``notes`` and ``categories``.
    """

    frame: pl.DataFrame
    notes: tuple[str, ...]
    categories: tuple[str, ...] = ()
    arrows: Arrows | None = None
    lane: Ints = field(init=False)
    names: Texts = field(init=False)
    category_texts: Texts = field(init=False)
    values: Texts = field(init=False)

    def __post_init__(self) -> None:
        texts = tuple(n for n in self.notes if self.frame.schema[n] in (pl.String(), pl.Categorical()))
        object.__setattr__(self, "lane", _lanes(self.frame))
        object.__setattr__(self, "names", numbered(self.frame, ("name",)))
        object.__setattr__(self, "category_texts", numbered(self.frame, self.categories))
        object.__setattr__(self, "values", numbered(self.frame, texts))

    def batch(self, edges: Edges, uuid: Ints) -> Batch:
        """The packets of some edges; ``uuid`` is the sub-track of each row."""
        rows = edges.row
        begins = (edges.kind != END).astype(np.int64)
        return Batch(
            edges.at_ns,
            edges.kind,
            uuid[rows],
            self.names.numbers["name"][rows] * begins,
            [self.category_texts.numbers[name][rows] * begins for name in self.categories],
            [self._note(name, rows) for name in self.notes],
            None if self.arrows is None else self.arrows.of(rows, begins),
        )

    def _note(self, name: str, rows: Ints) -> Note:
        if name in self.values.numbers:
            numbers = self.values.numbers[name][rows]
            return Note(name, numbers, numbers > 0, is_text=True)
        values = self.frame[name].gather(rows)
        return Note(name, values.fill_null(0).to_numpy(), values.is_not_null().to_numpy())


def _lanes(frame: pl.DataFrame) -> Ints:
    """Sub-track of each row; instants are on the first."""
    lane = np.zeros(frame.height, np.int64)
    spans = np.flatnonzero(~frame["is_instant"].to_numpy())
    track, start, end = (frame[name].gather(spans).to_numpy() for name in ("track", "start_ns", "end_ns"))
    lane[spans] = lanes(track, start, end)
    return lane


@dataclass(frozen=True)
class Edges:
    """Begins and ends in the order of the trace; ``row`` is the row of ``Spans.frame``."""

    at_ns: Ints
    kind: Ints
    row: Ints

    def part(self, start: int, stop: int) -> Edges:
        """Some of them."""
        return Edges(self.at_ns[start:stop], self.kind[start:stop], self.row[start:stop])


def edges(frame: pl.DataFrame) -> Edges:
    """Begins and ends by time, such that each track opens and closes like brackets.

    At one time, spans that began earlier end first, the inner before the outer; then new ones begin, the outer before
    the inner, and one without a length ends before the next begins.
    """
    start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    is_instant = frame["is_instant"].to_numpy()
    row = np.arange(frame.height)
    spans = row[~is_instant]
    rank = np.where(end[spans] > start[spans], -1 - spans, 2 * spans + 1)
    at_ns = np.concatenate([start, end[spans]])
    order = np.lexsort((np.concatenate([2 * row, rank]), at_ns))
    kind = np.concatenate([np.where(is_instant, INSTANT, BEGIN), np.full(len(spans), END)])
    return Edges(at_ns[order], kind[order], np.concatenate([row, spans])[order])


def arrows(chains: pl.DataFrame, event_id: pl.Series) -> Arrows:
    """The arrows of each event: a chain is one from event to event; each further physical core has one from the host.

    Args:
        chains: ``tables.CHAINS``.
        event_id: event of each row; what a chain names beyond them has no arrow.
    """
    host = ("dispatch_id", "launch_id", "stream_id", "submit_id")
    number = (pl.col("chain_id") + 1) * 256
    main = chains.select(flow=number, event_id=pl.concat_list(*host, pl.col("hardware_ids").list.first())).explode(
        "event_id"
    )
    branches = (
        chains.select("chain_id", last=pl.coalesce(*reversed(host)), event_id=pl.col("hardware_ids").list.slice(1, 254))
        .explode("event_id")
        .drop_nulls("event_id")
    )
    branch = branches.select("last", "event_id", flow=number + 1 + pl.int_range(pl.len()).over("chain_id"))
    both = pl.concat([main, branch.select("flow", "event_id"), branch.select("flow", event_id="last")])
    rows = pl.DataFrame({"event_id": event_id}).with_row_index("row")
    found = both.drop_nulls().unique().join(rows, on="event_id").filter(pl.len().over("flow") > 1).sort("row", "flow")
    counts = np.bincount(found["row"].to_numpy(), minlength=len(event_id)).astype(np.int64)
    return Arrows(found["flow"].cast(pl.UInt64).to_numpy(), counts)
