"""The timeline's data: spans, the chains between them, and the gaps by cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from tracekit.metrics.base import Inputs
from tracekit.report.model import Timeline, Track
from tracekit.report.spans import SPAN_LIMIT, Spans, spans
from tracekit.tables import KINDS

CHAIN_LIMIT = 60_000
GAP_LIMIT = 40_000

CAUSES = ("collective", "copy", "model_switch", "not_dispatched", "dispatching", "runtime", "unknown")
"""Causes of a gap, in order of precedence (design.md, *Definitions*)."""

_LINKS = ("dispatch", "launch", "stream", "submit", "wait")
_TIMES = {
    "dispatch_at": "dispatch_start_ns",
    "submit_at": "submit_ns",
    "start": "hardware_start_ns",
    "end": "hardware_end_ns",
}


def timeline(
    inputs: Inputs,
    gaps: pl.DataFrame | None,
    window: tuple[int, int] | None = None,
    span_limit: int = SPAN_LIMIT,
) -> Timeline | None:
    """The four lanes of a profile, ready to be drawn; null if no event lies in ``window``.

    Args:
        inputs: ``events``, ``sessions``, ``threads``, ``chains``, ``scope``.
        gaps: result of the metric of that name, with ``start_ns``, ``gap_ns`` and ``<cause>_ns``; null for none.
        window: start and end (ns since the epoch); only what overlaps it.
        span_limit: spans that are drawn at most; see ``spans``.
    """
    bounds = _bounds(inputs, window)
    if bounds is None:
        return None
    origin_ns, end_ns = bounds
    laid = spans(inputs, origin_ns, window, span_limit)
    chains, hardware, chain_remarks = _chains(inputs.chains, laid, origin_ns, window)
    gap_rows, gap_tracks, gap_remarks = _gaps(gaps, laid, origin_ns, window)
    drawn, chains, gap_rows, texts = _texts(laid.rows, chains, gap_rows)
    steps = _steps(inputs.scope, origin_ns, window)
    return Timeline(
        origin_ns=origin_ns,
        window_ns=max(1, end_ns - origin_ns),
        tracks=laid.tracks + gap_tracks,
        texts=texts,
        kinds=list(KINDS),
        causes=list(CAUSES),
        spans=drawn,
        chains=chains,
        hardware=hardware,
        gaps=gap_rows,
        steps=steps,
        remarks=[*laid.remarks, *chain_remarks, *gap_remarks],
        view=_first_view(steps, end_ns - origin_ns),
        focus=(laid.focus.label, laid.focus.start, laid.focus.end) if laid.focus else None,
    )


def _bounds(inputs: Inputs, window: tuple[int, int] | None) -> tuple[int, int] | None:
    if window is not None:
        return window
    first, last = (
        inputs.events.filter("is_primary").select(pl.col("start_ns").min(), pl.col("end_ns").max()).collect().row(0)
    )
    return None if first is None else (int(first), int(last))


def _chains(
    chains: pl.LazyFrame, laid: Spans, origin_ns: int, window: tuple[int, int] | None
) -> tuple[pl.DataFrame, pl.DataFrame, list[str]]:
    """Chains as rows of spans, the (chain, span) pairs of their hardware events, and what was left out."""
    known = pl.min_horizontal(*_TIMES.values())
    if window is not None:
        last = pl.max_horizontal(*_TIMES.values(), "dispatch_end_ns")
        chains = chains.filter(known < window[1], last >= window[0])
    wanted = [f"{link}_id" for link in _LINKS]
    frame = chains.select(
        "name", "core_index", "missing", "device_ns", "hardware_ids", *wanted, *_TIMES.values(), known=known
    ).collect()
    total = frame.height
    frame = _foremost(frame, CHAIN_LIMIT, pl.col("known") - origin_ns, "device_ns", laid)
    frame = frame.sort("known").with_row_index("chain").with_columns(pl.col("chain").cast(pl.Int64))
    for link in _LINKS:
        frame = frame.join(
            laid.span_of.rename({"event_id": f"{link}_id", "span": link}),
            on=f"{link}_id",
            how="left",
            maintain_order="left",
        )
    hardware = (
        frame.select("chain", event_id="hardware_ids").explode("event_id", empty_as_null=False)
        .join(laid.span_of, on="event_id", maintain_order="left").select("chain", "span").unique(maintain_order=True)
    )  # fmt: skip
    out = frame.select(
        "name", "missing", *_LINKS, core=pl.col("core_index").cast(pl.Int64),
        **{short: pl.col(name) - origin_ns for short, name in _TIMES.items()},
    )  # fmt: skip
    remark = f"Of {total:,} chains {CHAIN_LIMIT:,} can be followed: those with the most device time."
    return out, hardware, [remark] if total > CHAIN_LIMIT else []


def _gaps(
    gaps: pl.DataFrame | None, laid: Spans, origin_ns: int, window: tuple[int, int] | None
) -> tuple[pl.DataFrame, list[Track], list[str]]:
    """Gaps on tracks of their own (one per logical core), numbered after the tracks of the spans."""
    if gaps is None or gaps.is_empty():
        return _no_gaps(), [], []
    if window is not None:
        gaps = gaps.filter(pl.col("start_ns") < window[1], pl.col("start_ns") + pl.col("gap_ns") > window[0])
    total = gaps.height
    kept = _foremost(gaps, GAP_LIMIT, pl.col("start_ns") - origin_ns, "gap_ns", laid)
    cores = kept.select("session", "core_index").unique().sort("session", "core_index", nulls_last=True)
    cores = cores.with_columns(track=pl.int_range(pl.len(), dtype=pl.Int64) + len(laid.tracks))
    labels = {t.session: t.session_label for t in laid.tracks}
    counts = kept.group_by("session", "core_index").len()
    tracks = []
    for row in cores.join(counts, on=["session", "core_index"], nulls_equal=True, maintain_order="left").to_dicts():
        session = row["session"]
        label = _core_label(row["core_index"])
        tracks.append(Track("", session, labels.get(session, session), "gaps", label, row["len"]))
    placed = kept.join(cores, on=["session", "core_index"], nulls_equal=True).sort("track", "start_ns")
    start = pl.col("start_ns") - origin_ns
    rows = placed.select("track", *(f"{cause}_ns" for cause in CAUSES), start=start, length="gap_ns", name="after_name")
    left = int(gaps["gap_ns"].sum()) - int(kept["gap_ns"].sum())
    remark = f"Of {total:,} gaps the {GAP_LIMIT:,} longest are drawn; the others sum to {left / 1e6:,.3f} ms."
    return rows, tracks, [remark] if total > GAP_LIMIT else []


def _foremost(frame: pl.DataFrame, limit: int, start: pl.Expr, size: str, laid: Spans) -> pl.DataFrame:
    """At most ``limit`` rows: those in the stretch that is drawn in full, then the largest."""
    if frame.height <= limit:
        return frame
    in_focus = laid.focus.holds() if laid.focus else pl.lit(value=False)
    ranked = frame.with_columns(start=start).with_columns(_in_focus=in_focus)
    return ranked.sort("_in_focus", size, descending=True).head(limit).drop("_in_focus", "start")


def _core_label(core: int | None) -> str:
    return "gaps" if core is None else f"core {core} · gaps"


def _no_gaps() -> pl.DataFrame:
    schema: dict[str, pl.DataType] = {"track": pl.Int64(), **{f"{cause}_ns": pl.Int64() for cause in CAUSES}}
    return pl.DataFrame(schema={**schema, "start": pl.Int64(), "length": pl.Int64(), "name": pl.String()})


def _texts(*frames: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, list[str]]:
    """Replace the text columns of spans, chains and gaps by indices into one list of texts."""
    columns = ("name", "shape", "missing")
    used = [f[c].cast(pl.String) for f in frames for c in columns if c in f.columns]
    values = pl.concat(used).drop_nulls().unique(maintain_order=True)
    index = pl.DataFrame({"text": values, "number": pl.int_range(values.len(), dtype=pl.Int64, eager=True)})
    out = []
    for frame in frames:
        numbered = frame
        for column in (c for c in columns if c in frame.columns):
            text = frame.select(text=pl.col(column).cast(pl.String))
            numbers = text.join(index, on="text", how="left", maintain_order="left")["number"]
            numbered = numbered.with_columns(numbers.alias(column))
        out.append(numbered)
    return out[0], out[1], out[2], values.to_list()


def _steps(scope: pl.LazyFrame, origin_ns: int, window: tuple[int, int] | None) -> list[tuple[str, int, int]]:
    """Measured windows, sessions merged: label, start and end since the origin."""
    frame = (
        scope.filter(pl.col("step").is_not_null()).group_by("step")
        .agg(pl.col("start_ns").min() - origin_ns, pl.col("end_ns").max() - origin_ns).sort("start_ns").collect()
    )  # fmt: skip
    if window is not None:
        frame = frame.filter(pl.col("end_ns") > 0, pl.col("start_ns") < window[1] - origin_ns)
    labels = ("step " + frame["step"].cast(pl.String)).to_list()
    return list(zip(labels, frame["start_ns"].to_list(), frame["end_ns"].to_list(), strict=True))


def _first_view(steps: Sequence[tuple[str, int, int]], window_ns: int) -> tuple[int, int]:
    """The measured steps with 3 % of room on both sides; everything where nothing marks steps."""
    if not steps:
        return 0, max(1, window_ns)
    first, last = min(start for _, start, _ in steps), max(end for _, _, end in steps)
    room = (last - first) * 3 // 100 + 1
    return max(0, first - room), min(max(1, window_ns), last + room)


def joined(a: Timeline, b: Timeline) -> Timeline:
    """Two timelines in one, each from its own origin; tracks of ``b`` follow those of ``a``."""
    texts, spans_a = len(a.texts), a.spans.height
    span_tracks = {"track": len(a.tracks)}
    shift_text = [pl.col(c) + texts for c in ("name", "shape") if c in b.spans.columns]
    spans_b = b.spans.with_columns(pl.col("track") + span_tracks["track"], *shift_text)
    links = [pl.col(link) + spans_a for link in _LINKS]
    chains_b = b.chains.with_columns(*links, pl.col("name") + texts, pl.col("missing") + texts)
    hardware_b = b.hardware.with_columns(pl.col("chain") + a.chains.height, pl.col("span") + spans_a)
    gaps_b = b.gaps.with_columns(pl.col("track") + len(a.tracks), pl.col("name") + texts)
    return replace(
        a,
        window_ns=max(a.window_ns, b.window_ns),
        tracks=[replace(t, side="A") for t in a.tracks] + [replace(t, side="B") for t in b.tracks],
        texts=a.texts + b.texts,
        spans=pl.concat([a.spans, spans_b.select(a.spans.columns)]),
        chains=pl.concat([a.chains, chains_b.select(a.chains.columns)]),
        hardware=pl.concat([a.hardware, hardware_b]),
        gaps=pl.concat([a.gaps, gaps_b.select(a.gaps.columns)]),
        steps=[(f"A {label}", start, end) for label, start, end in a.steps],
        remarks=[f"A: {r}" for r in a.remarks] + [f"B: {r}" for r in b.remarks],
        view=(min(a.view[0], b.view[0]), max(a.view[1], b.view[1])),
        focus=a.focus or b.focus,
    )
