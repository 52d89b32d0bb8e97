"""Spans of the timeline: events on tracks, with depth, and short ones drawn as one where there are too many."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracekit.metrics.base import Inputs
from tracekit.report.model import Track
from tracekit.tables import KINDS, LANES

SPAN_LIMIT = 150_000
"""Spans that a report draws; what exceeds it is drawn as blocks of neighbouring short events."""

_TRACK_KEYS = ("session", "lane", "major", "minor", "thread")
_DETAIL_KINDS = ("python", "other", "overhead", "memory")
"""Drawn as blocks first: these explain, they are not what is measured."""


@dataclass(frozen=True)
class Spans:
    """Rows to draw and where each event went.

    ``rows``: span, track, start (ns since the origin), length, depth, kind (index into ``KINDS``), name, count, busy,
    execution, bytes, shape (text); sorted by track, start, longest first. ``span_of``: event_id, span.
    """

    rows: pl.DataFrame
    span_of: pl.DataFrame
    tracks: list[Track]
    remarks: list[str]


def spans(inputs: Inputs, origin_ns: int, window: tuple[int, int] | None, limit: int = SPAN_LIMIT) -> Spans:
    """Lay the primary events of a profile on tracks.

    A track is a thread (lane ``dispatch``), a stream, a logical core (``runtime``; a thread where no core is known) or
    a physical core (``hardware``; a stream on GPUs). Depth counts the spans of the track that are open at the start.

    Args:
        inputs: ``events``, ``sessions``, ``threads``.
        origin_ns: zero of the timeline.
        window: only events that overlap it.
        limit: number of spans at most, unless the tracks alone are more.
    """
    frame, hidden = _on_tracks(inputs, origin_ns, window)
    tracks = _track_table(frame, inputs)
    frame = frame.join(tracks.select(*_TRACK_KEYS, "track"), on=_TRACK_KEYS, nulls_equal=True).drop(_TRACK_KEYS)
    frame = _with_depth(frame.sort("track", "start", "length", descending=[False, False, True]))
    marked, remarks = _block_sizes(frame, limit)
    rows, span_of = _drawn(marked)
    counts = dict(rows.group_by("track").len().iter_rows())
    labelled = [
        Track("", row["session"], row["session_label"], row["lane"], row["label"], counts.get(row["track"], 0))
        for row in tracks.to_dicts()
    ]
    if hidden:
        remarks.append(f"{hidden:,} events that another source also describes are not drawn twice.")
    return Spans(rows, span_of, labelled, remarks)


def _on_tracks(inputs: Inputs, origin_ns: int, window: tuple[int, int] | None) -> tuple[pl.DataFrame, int]:
    """Events with the columns that name their track, and how many were left out as not primary."""
    lane, thread = pl.col("lane"), pl.col("thread_id")
    is_core, is_device = lane == "runtime", lane == "hardware"
    major = pl.when(is_core | is_device).then(pl.col("core_index").cast(pl.Int64)).when(lane == "stream").then(
        pl.coalesce("stream_id", "thread_id")
    )  # fmt: skip
    minor = pl.when(is_device).then(pl.coalesce(pl.col("physical_core").cast(pl.Int64), "stream_id"))
    needs_thread = (lane == "dispatch") | (is_core & pl.col("core_index").is_null())
    events = inputs.events
    if window is not None:
        events = events.filter(pl.col("end_ns") >= window[0], pl.col("start_ns") < window[1])
    frame = (
        events.select(
            "event_id",
            "session",
            "is_primary",
            lane=lane.cast(pl.Enum(LANES)),
            major=major,
            minor=minor,
            has_cores=is_device & pl.col("physical_core").is_not_null(),
            thread=pl.when(needs_thread).then(thread),
            process=pl.when(needs_thread).then(pl.col("process_id")),
            kind=pl.col("kind").cast(pl.Enum(KINDS)).to_physical(),
            name="name",
            start=pl.col("start_ns") - origin_ns,
            length=pl.col("end_ns") - pl.col("start_ns"),
            execution="execution_id",
            bytes="moved_bytes",
            shape=pl.col("attrs_json").str.extract(r'"Input Dims":\s*(\[[^"}]*\])'),
        )
        .collect(engine="streaming")
        .with_columns(pl.col("name", "shape").cast(pl.Categorical))
    )
    primary = frame.filter("is_primary").drop("is_primary")
    return primary, frame.height - primary.height


def _track_table(frame: pl.DataFrame, inputs: Inputs) -> pl.DataFrame:
    """One row per track in the order drawn: session, lane, keys, label, session_label, track."""
    sessions = inputs.sessions.select("session", "rank", "process_id").collect()
    threads = (
        inputs.threads.select("session", process="process_id", thread="thread_id", thread_name="thread_name")
        .filter(pl.col("thread_name").is_not_null(), pl.col("thread").is_not_null())
        .unique(("session", "thread"), keep="first", maintain_order=True)
        .collect()
    )
    found = (
        frame.lazy()
        .group_by(_TRACK_KEYS)
        .agg(pl.col("has_cores").any(), first=pl.col("start").min())
        .collect()
        .join(sessions, on="session", how="left")
        .join(threads.select("session", "thread", "thread_name"), on=["session", "thread"], how="left")
    )
    return (
        found.with_columns(label=_track_label(), session_label=_session_label())
        .sort("rank", "session", "lane", "major", "minor", "first", nulls_last=True)
        .with_row_index("track")
        .with_columns(pl.col("track").cast(pl.Int64))
    )


def _track_label() -> pl.Expr:
    """What a track is called; the lane is shown beside it."""
    major, minor, thread = (pl.col(c).cast(pl.String) for c in ("major", "minor", "thread"))
    lane = pl.col("lane").cast(pl.String)
    core = pl.when(pl.col("has_cores")).then(pl.format("core {} · physical {}", major.fill_null("?"), minor))
    device = pl.format("device {} · stream {}", major.fill_null("?"), minor.fill_null("?"))
    named = pl.concat_str(pl.lit("thread "), thread.fill_null("?"), " " + pl.col("thread_name"), ignore_nulls=True)
    return (
        pl.when(lane == "stream").then(pl.format("stream {}", major.fill_null("?")))
        .when(lane == "hardware").then(core.otherwise(device))
        .when((lane == "runtime") & major.is_not_null()).then(pl.format("core {}", major))
        .otherwise(named)
    )  # fmt: skip


def _session_label() -> pl.Expr:
    rank = pl.lit("rank ") + pl.col("rank").cast(pl.String) + " · "
    return pl.concat_str(rank, pl.col("session"), ignore_nulls=True)


def _with_depth(frame: pl.DataFrame) -> pl.DataFrame:
    """Add ``depth``: spans of the track that started earlier (or longer, at the same time) and are still open."""
    ends = frame.select("track", end=pl.col("start") + pl.max_horizontal("length", 1)).sort("track", "end")
    ended = ends.with_columns(ended=pl.int_range(1, pl.len() + 1).over("track")).sort("end")
    order = frame.with_columns(begun=pl.int_range(pl.len()).over("track")).with_row_index("row")
    asked = order.select("row", "track", "start", "begun").sort("start")
    counted = asked.join_asof(
        ended, left_on="start", right_on="end", by="track", strategy="backward", check_sortedness=False
    )
    depth = (pl.col("begun") - pl.col("ended").fill_null(0)).alias("depth")
    return frame.with_columns(counted.sort("row").select(depth).to_series())


def _block_sizes(frame: pl.DataFrame, limit: int) -> tuple[pl.DataFrame, list[str]]:
    """Add ``block``: null for events drawn as they are, else the class of time in which short ones are drawn as one."""
    is_detail = pl.col("kind").is_in([KINDS.index(k) for k in _DETAIL_KINDS])
    remarks: list[str] = []
    parts: list[pl.DataFrame] = []
    left = limit
    for part, what in (
        (frame.filter(~is_detail), "events"),
        (frame.filter(is_detail), "stack frames and other details"),
    ):
        width = _resolution(part, max(left, limit // 10))
        block = pl.when(pl.col("length") < width).then(pl.col("start") // max(width, 1)) if width else pl.lit(None)
        parts.append(part.with_columns(block=block.cast(pl.Int64), width=pl.lit(width)))
        left -= part.height if not width else _count(part, width)
        if width:
            short = part.filter(pl.col("length") < width).height
            remarks.append(
                f"{short:,} of {part.height:,} {what} are shorter than {_duration(width)} and are drawn as blocks "
                f"where several follow one another within that time; a block says how many. A report of one step "
                "(--step N) draws each."
            )
    return pl.concat(parts), remarks


def _resolution(frame: pl.DataFrame, limit: int) -> int:
    """Smallest power of two (ns) at which no more than ``limit`` spans are left; 0 if none is needed."""
    if frame.height <= limit:
        return 0
    low, high = 1, 50
    while low < high:
        middle = (low + high) // 2
        if _count(frame, 2**middle) <= limit:
            high = middle
        else:
            low = middle + 1
    return 2**low


def _count(frame: pl.DataFrame, width: int) -> int:
    """Spans left when events shorter than ``width`` are drawn as one per class of ``width``."""
    short = frame.lazy().filter(pl.col("length") < width)
    blocks = short.select(pl.struct("track", "depth", pl.col("start") // width).n_unique()).collect().item()
    return int(blocks) + frame.filter(pl.col("length") >= width).height


def _drawn(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows to draw with their number, and the row of each event."""
    exact = frame.filter(pl.col("block").is_null()).with_columns(count=pl.lit(1, pl.Int64), busy=pl.col("length"))
    group = ("track", "depth", "block", "width")
    short = frame.filter(pl.col("block").is_not_null())
    blocks = (
        short.sort("length", descending=True)
        .group_by(group, maintain_order=True)
        .agg(
            pl.col("event_id", "kind", "name", "execution", "bytes", "shape").first(),
            start=pl.col("start").min(),
            end=(pl.col("start") + pl.col("length")).max(),
            count=pl.len().cast(pl.Int64),
            busy=pl.col("length").sum(),
        )
        .with_columns(length=pl.col("end") - pl.col("start"))
    )
    columns = ["event_id", "track", "start", "length", "depth", "kind", "name", "count", "busy", "execution", "bytes"]
    columns += ["shape", "block", "width"]
    rows = (
        pl.concat([exact.select(columns), blocks.select(columns)])
        .sort("track", "start", "length", "depth", descending=[False, False, True, False])
        .with_row_index("span")
        .with_columns(pl.col("span").cast(pl.Int64))
    )
    own = rows.filter(pl.col("block").is_null()).select("event_id", "span")
    within = short.select("event_id", *group).join(rows.select("span", *group), on=group)
    return rows, pl.concat([own, within.select("event_id", "span")])


def _duration(ns: int) -> str:
    """A length in words, for remarks."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns} ns"
