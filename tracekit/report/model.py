"""What a report holds, before it becomes HTML: plain data, made by ``build``, written by ``page``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import polars as pl

Cell: TypeAlias = str | int | float | bool | None

Tone = Literal["good", "neutral", "warn", "bad"]


@dataclass(frozen=True)
class Place:
    """A stretch of time that can be shown in the timeline; times are ns since the timeline's origin."""

    label: str
    session: str | None
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Figure:
    """One number of the answer."""

    label: str
    value: int | float | None
    unit: str
    """``ns``, ``B``, ``ratio`` or empty for a count."""
    hint: str = ""


@dataclass(frozen=True)
class Answer:
    """The result in a few lines: what a reader should know if they read nothing else."""

    headline: str
    sentences: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)


@dataclass(frozen=True)
class Part:
    """One share of a whole."""

    key: str
    """Decides the colour: a gap cause or a part of the split."""
    label: str
    ns: int


@dataclass(frozen=True)
class Shares:
    """Parts of a whole as one bar (``label`` names it when there are several)."""

    label: str
    whole_ns: int
    parts: list[Part]


@dataclass(frozen=True)
class ShareChart:
    """Bars whose parts sum to a whole: the split, the gap causes."""

    id: str
    title: str
    doc: str
    bars: list[Shares]


@dataclass(frozen=True)
class Series:
    """One line or bar series of a chart; ``values`` are as long as the chart's ``x``."""

    key: str
    label: str
    values: list[float | None]


@dataclass(frozen=True)
class Mark:
    """A place of a chart's order at which something happened."""

    at: int
    """Position in the chart's ``x``."""
    label: str
    tone: Tone


@dataclass(frozen=True)
class XYChart:
    """A chart over time, over classes of length, or over named points."""

    id: str
    title: str
    doc: str
    kind: Literal["stacked_bars", "step_line", "points"]
    """``points`` has the series ``value``, ``low``, ``high`` and ``level``, in this order."""
    x: list[float]
    x_label: str
    x_unit: str
    """``ns`` (since the timeline's origin), ``log_ns`` (classes of a length) or empty (an index)."""
    y_unit: str
    series: list[Series]
    names: list[str] = field(default_factory=list)
    """Of the points, where ``x`` counts them."""
    ticks: list[str] = field(default_factory=list)
    """Shorter names, below the axis."""
    marks: list[Mark] = field(default_factory=list)


@dataclass(frozen=True)
class TableColumn:
    """A column as shown."""

    name: str
    label: str
    doc: str
    unit: str
    """``ns``, ``B``, ``ratio`` or empty."""
    numeric: bool


@dataclass(frozen=True)
class TableBlock:
    """A table of the report: at most ``ROW_LIMIT`` of ``total_rows`` rows, the most important first."""

    id: str
    title: str
    doc: str
    columns: list[TableColumn]
    values: list[list[Cell]]
    """Column-wise, as ``columns``."""
    total_rows: int
    places: list[list[Cell]] | None = None
    """Column-wise session, start, end (ns since the timeline's origin) of what each row can show in the timeline."""
    find: str | None = None
    """Column whose text names events to find in the timeline."""
    sort: str | None = None
    """Column by which rows are ranked at first, largest first."""


@dataclass(frozen=True)
class Finding:
    """Advice with its evidence."""

    title: str
    text: str
    action: str
    stake_ns: int | None
    formula: str
    evidence: list[Place]


@dataclass(frozen=True)
class NoteLine:
    """A remark about the data."""

    severity: str
    code: str
    message: str
    hint: str
    where: str
    event_count: int | None


@dataclass(frozen=True)
class FactGroup:
    """Facts of a session, or of the report itself."""

    title: str
    facts: list[tuple[str, str]]


@dataclass(frozen=True)
class Track:
    """One row group of the timeline."""

    side: str
    """``A`` or ``B`` in a comparison, else empty."""
    session: str
    session_label: str
    lane: str
    """A lane of ``tables.LANES``, or ``gaps``."""
    label: str
    spans: int


@dataclass(frozen=True)
class Timeline:
    """Spans, chains and gaps, ready to be packed.

    ``spans`` columns: track, start (ns since ``origin_ns``), length, depth, kind, name, count (events drawn as one),
    busy (ns of them), execution, bytes, shape; sorted by track, start, longest first. Text is an index into ``texts``.
    ``chains`` columns: name, core, missing, dispatch, launch, stream, submit, wait (row of ``spans`` or null), and the
    times dispatch_at, submit_at, start, end. ``hardware`` lists (chain, span) pairs. ``gaps`` columns: track, start,
    length, one per cause, name (of the operator that came late).
    """

    origin_ns: int
    window_ns: int
    tracks: list[Track]
    texts: list[str]
    kinds: list[str]
    causes: list[str]
    spans: pl.DataFrame
    chains: pl.DataFrame
    hardware: pl.DataFrame
    gaps: pl.DataFrame
    steps: list[tuple[str, int, int]]
    """Label, start and end (ns since the origin) of the measured windows."""
    remarks: list[str]
    """What was left out or drawn as one, and how much."""
    view: tuple[int, int] = (0, 1)
    """Start and end (ns since the origin) of what is shown at first: the measured steps, with room around them."""
    focus: tuple[str, int, int] | None = None
    """Label, start and end (ns since the origin) of the stretch that is drawn in full where the whole is not."""


@dataclass(frozen=True)
class CompareRow:
    """One key figure on both sides, and whether the difference is more than noise."""

    label: str
    unit: str
    a: float
    b: float
    verdict: str


@dataclass(frozen=True)
class SideBySide:
    """Two profiles side by side."""

    a: str
    b: str
    answer: Answer
    basis: str
    """What one value of each side stands for."""
    rows: list[CompareRow]
    charts: list[ShareChart]
    tables: list[TableBlock]


@dataclass(frozen=True)
class ReportData:
    """Everything that the page shows."""

    title: str
    subtitle: str
    answer: Answer
    findings: list[Finding]
    shares: list[ShareChart]
    charts: list[XYChart]
    ops: TableBlock | None
    tables: list[TableBlock]
    notes: list[NoteLine]
    facts: list[FactGroup]
    timeline: Timeline | None
    comparison: SideBySide | None = None
