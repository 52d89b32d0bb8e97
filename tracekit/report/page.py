"""One HTML file from a report's data: assets, packed columns and a policy that forbids every request."""

from __future__ import annotations

import base64
import hashlib
import html
from dataclasses import asdict, replace
from importlib.resources import files

import polars as pl

from tracekit._version import __version__
from tracekit.report.columns import pack
from tracekit.report.model import ReportData, Timeline
from tracekit.report.text import script_json, visible

STYLES = ("vendor/uPlot.min.css", "base.css", "parts.css", "timeline.css", "print.css")
LICENCE = "vendor/uPlot.LICENSE"
SCRIPTS = (
    "vendor/uPlot.iife.min.js",
    "format.js",
    "data.js",
    "dom.js",
    "table.js",
    "charts.js",
    "sections.js",
    "timeline_model.js",
    "timeline_draw.js",
    "timeline_input.js",
    "timeline_details.js",
    "timeline.js",
    "timeline_overview.js",
    "page.js",
)
"""Assets in the order they are joined; each adds to the one object that ``format.js`` opens."""
TREND_STYLES = tuple(name for name in STYLES if name != "timeline.css")
TREND_SCRIPTS = (
    *(name for name in SCRIPTS if not name.startswith("timeline") and name not in ("data.js", "page.js")),
    "trend.js",
    "page.js",
)
"""What a page without a timeline takes."""

_DELTA = frozenset(
    {"spans.start", "spans.track", "chains.dispatch_at", "chains.submit_at", "chains.start", "chains.end", "gaps.start"}
    | {"gaps.track", "hardware.chain", "hardware.span"}
    | {f"chains.{link}" for link in ("dispatch", "launch", "stream", "submit", "wait")}
)
_SPAN_COLUMNS = ("track", "start", "length", "depth", "kind", "name", "count", "busy", "execution", "bytes", "shape")


def page(data: ReportData, *, part: str = "report") -> str:
    """The report as one HTML document that needs nothing else.

    The document's Content-Security-Policy allows exactly its own two inline elements (by hash) and no request.
    All text of the trace stands in JSON, see ``text``.

    Args:
        data: what to show.
        part: ``report``, ``trend`` (see ``trend``), ``timeline`` or ``charts`` (the latter two for notebooks).
    """
    styles, scripts = (TREND_STYLES, TREND_SCRIPTS) if part == "trend" else (STYLES, SCRIPTS)
    style, script = _asset(*styles), f"/*!\n{_asset(LICENCE)}\n*/\n{_asset(*scripts)}"
    meta = {**asdict(replace(data, timeline=None)), "part": part, "version": __version__}
    payload = ""
    if data.timeline is not None:
        meta["timeline"], payload = _timeline(data.timeline)
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return _TEMPLATE.format(
        policy=policy,
        title=html.escape(visible(data.title)),
        style=style,
        meta=script_json(meta),
        payload=payload,
        script=script,
    )


def _timeline(data: Timeline) -> tuple[dict[str, object], str]:
    """The timeline's description for the page's JSON, and its packed columns."""
    tables: dict[str, pl.DataFrame] = {
        "spans": data.spans.select(_SPAN_COLUMNS),
        "chains": data.chains,
        "hardware": data.hardware,
        "gaps": data.gaps,
    }
    columns = {f"{name}.{c}": frame[c] for name, frame in tables.items() for c in frame.columns}
    packed = pack(columns, _DELTA)
    described: dict[str, object] = {
        "window_ns": data.window_ns,
        "tracks": [asdict(track) for track in data.tracks],
        "texts": data.texts,
        "kinds": data.kinds,
        "causes": data.causes,
        "steps": data.steps,
        "remarks": data.remarks,
        "focus": data.focus,
        "view": data.view,
        "columns": packed.directory,
    }
    return described, packed.payload


def _asset(*names: str) -> str:
    folder = files("tracekit.report") / "assets"
    return "\n".join(folder.joinpath(name).read_text("utf-8").strip() for name in names)


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="app" aria-busy="true"><p class="loading" role="status">Reading the report…</p>
<noscript><p>This report draws itself with JavaScript. It holds all its data and needs no network.</p></noscript></div>
<script type="application/json" id="report-data">{meta}</script>
<script type="text/plain" id="report-columns">{payload}</script>
<script>{script}</script>
</body>
</html>
"""
