"""Spans of the timeline: events on tracks, with depth, and short ones drawn as one where there are too many."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tracekit.metrics.base import Inputs
from tracekit.report.model import Track
from tracekit.report.words import duration
from tracekit.tables import KINDS, LANES

SPAN_LIMIT = 150_000
"""Spans that a report draws; what exceeds it is drawn as blocks of neighbouring short events."""

_TRACK_KEYS = ("session", "lane", "major", "minor", "thread")
_DETAIL_KINDS = ("python", "other", "overhead", "memory")
"""Drawn as blocks first: these explain, they are not what is measured."""


@dataclass(frozen=True)
class Focus:
    """A stretch that is drawn event by event although the whole is not; ns since the origin, half-open."""

    label: str
    start: int
    end: int

    def holds(self) -> pl.Expr:
        """Whether ``start`` lies in the stretch."""
        return pl.col("start").is_between(self.start, self.end, closed="left")


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
    focus: Focus | None


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
    focus = _focus(frame, inputs.scope, origin_ns, limit) if frame.height > limit else None
    marked, remarks = _with_blocks(frame, focus, limit)
    rows, span_of = _drawn(marked)
    drawn = rows.group_by("track").len()
    counts = dict(zip(drawn["track"].to_list(), drawn["len"].to_list(), strict=True))
    labelled = [
        Track("", row["session"], row["session_label"], row["lane"], row["label"], counts.get(row["track"], 0))
        for row in tracks.to_dicts()
    ]
    if hidden:
        remarks.append(f"{hidden:,} events that another source also describes are not drawn twice.")
    return Spans(rows, span_of, labelled, remarks, focus)


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
        inputs.threads.select("session", "thread_name", "thread_label", thread="thread_id")
        .filter(
            pl.col("thread").is_not_null(), pl.col("thread_name").is_not_null() | pl.col("thread_label").is_not_null()
        )
        .unique(("session", "thread"), keep="first", maintain_order=True)
        .collect()
    )
    found = (
        frame.lazy()
        .group_by(_TRACK_KEYS)
        .agg(pl.col("has_cores").any(), first=pl.col("start").min())
        .collect()
        .join(sessions, on="session", how="left")
        .join(threads, on=["session", "thread"], how="left")
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
    given, said = (pl.when(pl.col(c).str.strip_chars() != "").then(c) for c in ("thread_label", "thread_name"))
    number = pl.coalesce(given, "thread " + thread, pl.lit("thread ?"))
    is_told = said.str.contains(thread.fill_null("?"), literal=True)
    named = pl.when(is_told).then(said).otherwise(pl.concat_str(number, " " + said, ignore_nulls=True))
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


def _focus(frame: pl.DataFrame, scope: pl.LazyFrame, origin_ns: int, limit: int) -> Focus | None:
    """Steps around the middle one, as many as make half of ``limit``; without steps, that many events."""
    most = limit // 2
    steps = (
        scope.filter(pl.col("step").is_not_null()).group_by("step")
        .agg(pl.col("start_ns").min() - origin_ns, pl.col("end_ns").max() - origin_ns).sort("start_ns").collect()
    )  # fmt: skip
    starts = frame["start"].sort()
    if steps.is_empty():
        first = starts.len() // 2
        start, end = int(starts[first]), int(starts[min(starts.len() - 1, first + most)])
        return Focus(f"the {duration(end - start)} from {duration(start)} on", start, end) if end > start else None
    events = starts.search_sorted(steps["end_ns"]) - starts.search_sorted(steps["start_ns"])
    middle = steps.height // 2
    if int(events[middle]) > most:
        return None
    last = middle + int((events[middle:].cast(pl.Int64).cum_sum() <= most).sum()) - 1
    first_step, last_step = steps["step"][middle], steps["step"][last]
    named = f"step {first_step}" if last == middle else f"steps {first_step} to {last_step}"
    return Focus(named, int(steps["start_ns"][middle]), int(steps["end_ns"][last]))


def _with_blocks(frame: pl.DataFrame, focus: Focus | None, limit: int) -> tuple[pl.DataFrame, list[str]]:
    """Add ``block`` (null for events drawn as they are, else a class of time) and ``width``; say what was done."""
    none = {"block": pl.lit(None, pl.Int64), "width": pl.lit(0, pl.Int64)}
    if frame.height <= limit:
        return frame.with_columns(**none), []
    inside = frame.filter(focus.holds()) if focus else frame.clear()
    outside = frame.filter(~focus.holds()) if focus else frame
    is_detail = pl.col("kind").is_in([KINDS.index(k) for k in _DETAIL_KINDS])
    left = max(limit - inside.height, limit // 4)
    remarks, parts = [], [inside.with_columns(**none)]
    for part, what in ((outside.filter(~is_detail), "events"), (outside.filter(is_detail), "stack frames and details")):
        width = _resolution(part, max(left, limit // 10))
        block = pl.when(pl.col("length") < width).then(pl.col("start") // max(width, 1))
        parts.append(part.with_columns(block=block.cast(pl.Int64), width=pl.lit(width, pl.Int64)))
        left -= _count(part, width) if width else part.height
        if width:
            short = part.filter(pl.col("length") < width).height
            remarks.append(
                f"{short:,} of {part.height:,} {what} are shorter than {duration(width)} and are drawn as blocks where "
                "several follow one another within that time; a block says how many."
            )
    if remarks and focus:
        remarks.append(f"Only {focus.label}: every event is drawn. Another step in full: tracekit report --step N.")
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
    return 1 << low


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
