"""Charts for notebooks: the report's own parts, each in a frame of its own."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tracekit.errors import TracekitError
from tracekit.metrics.base import Inputs
from tracekit.report.build import report, subject
from tracekit.report.charts import share_charts, xy_charts
from tracekit.report.model import Answer, ReportData, ShareChart, Timeline, XYChart
from tracekit.report.page import page
from tracekit.report.results import Results
from tracekit.report.timeline import timeline as drawn_timeline

_CHARTS = {"gaps": ("causes", "gap-lengths"), "split": ("split",), "steps": ("steps",), "queue": ("queue",)}
"""What can be plotted, and the charts (or what their ids start with) that it shows."""


@dataclass(frozen=True)
class View:
    """A part of a report that a notebook shows; it can be saved as a file, too."""

    document: str
    """A complete HTML document."""
    height: int
    """Height of its frame, in CSS pixels."""
    text: str
    """What is shown where HTML is not."""

    def _repr_html_(self) -> str:
        source = html.escape(self.document, quote=True)
        style, title = f"width:100%;height:{self.height}px;border:0", html.escape(self.text)
        return f'<iframe sandbox="allow-scripts" title="{title}" style="{style}" srcdoc="{source}"></iframe>'

    def __repr__(self) -> str:
        return f"<{self.text}>"

    def save(self, path: str | Path) -> Path:
        """Write the document to a file that opens in any browser."""
        target = Path(path)
        target.write_text(self.document, encoding="utf-8")
        return target


def timeline(inputs: Inputs, *, name: str = "", clip: bool = False) -> View:
    """The four lanes of a profile, to pan and zoom.

    Args:
        inputs: tables, and the windows that are measured.
        name: what the profile is called.
        clip: show only the measured windows (of one step, say).

    Raises:
        TracekitError: if there is no event to show.
    """
    shown = subject(name, inputs, clip=clip)
    data = drawn_timeline(inputs, Results(inputs).get("gaps"), shown.window)
    if data is None or data.spans.is_empty():
        raise TracekitError("no events to show", hint="leave out step, or see profile.notes")
    text = f"timeline {name}".strip() + f": {data.spans.height:,} spans on {len(data.tracks)} tracks"
    rows = sum(min(10, 1 + _depth(data, n)) for n in range(len(data.tracks)))
    return View(page(_only(name, timeline=data), part="timeline"), min(760, 330 + 26 * rows), text)


def plot(inputs: Inputs, what: str, *, name: str = "") -> View:
    """A chart: ``gaps`` (by cause and length), ``split``, ``steps`` or ``queue``.

    Raises:
        TracekitError: if there is no such chart, or the profile has nothing to show in it.
    """
    if what not in _CHARTS:
        raise TracekitError(f"no chart {what!r}", hint=f"charts are {', '.join(_CHARTS)}")
    results, wanted = Results(inputs), _CHARTS[what]
    origin_ns = inputs.scope.collect()["start_ns"].min()
    shares = [c for c in share_charts(results) if c.id.startswith(wanted)]
    lines = [c for c in xy_charts(results, origin_ns if isinstance(origin_ns, int) else 0) if c.id.startswith(wanted)]
    if not shares and not lines:
        raise TracekitError(f"nothing to show in the chart {what!r}", hint="profile.notes says what the capture lacks")
    text = f"{what} of {name}" if name else what
    document = page(_only(name, shares=shares, charts=lines), part="charts")
    return View(document, 60 + 320 * len(shares) + 380 * len(lines), text)


class Plots:
    """Charts of a profile as methods: ``profile.plot.gaps()``."""

    def __init__(self, inputs: Inputs, name: str = "") -> None:
        self._inputs = inputs
        self._name = name

    def gaps(self) -> View:
        """Idle time by cause, and by the length of the gap."""
        return plot(self._inputs, "gaps", name=self._name)

    def split(self) -> View:
        """Who worked when: device, host, both or neither."""
        return plot(self._inputs, "split", name=self._name)

    def steps(self) -> View:
        """Length of each step."""
        return plot(self._inputs, "steps", name=self._name)

    def queue(self) -> View:
        """Outstanding executions over time."""
        return plot(self._inputs, "queue", name=self._name)


def full(inputs: Inputs, *, name: str = "") -> View:
    """The whole report."""
    return View(page(report(subject(name, inputs))), 900, f"report of {name}" if name else "report")


def _depth(data: Timeline, track: int) -> int:
    deepest = data.spans.filter(data.spans["track"] == track)["depth"].max()
    return deepest if isinstance(deepest, int) else 0


def _only(
    name: str,
    *,
    timeline: Timeline | None = None,
    shares: Sequence[ShareChart] = (),
    charts: Sequence[XYChart] = (),
) -> ReportData:
    """A report with nothing but these parts."""
    return ReportData(
        title=name or "tracekit", subtitle="", answer=Answer(""), findings=[], shares=list(shares), charts=list(charts),
        ops=None, tables=[], notes=[], facts=[], timeline=timeline,
    )  # fmt: skip
