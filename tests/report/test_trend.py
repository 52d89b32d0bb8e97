"""The page of ``tracekit trend``: what it says, and that it opens alone in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import polars as pl
import pytest

from tests.report.conftest import Opened
from tracekit.report.page import SCRIPTS, TREND_SCRIPTS, page
from tracekit.report.trend import trend_report
from tracekit.trend import TREND

Open = Callable[..., Opened]
HOSTILE = [
    "<script>window.pwned=1</script>",
    "</script><img src=x onerror=window.pwned=2>",
    "rtl \u202eevil",
    "\x1b[31m",
]


def frame(levels: Sequence[float], steps: dict[int, str], names: Sequence[str] = ()) -> pl.DataFrame:
    """Points that lie exactly on their levels; ``steps``: first position of a level → verdict."""
    rows: list[dict[str, object]] = []
    for i, level in enumerate(levels):
        before = levels[i - 1]
        rows.append(
            {
                "position": i,
                "point": names[i] if names else f"c{i}",
                "run_count": 1,
                "sample_count": 5,
                "started_at": datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(days=i),
                "value": level,
                "low": 0.99 * level,
                "high": 1.01 * level,
                "level": level,
                "step_ratio": (level - before) / before if i in steps and before else None,
                "verdict": steps.get(i),
            }
        )
    return TREND.rows(rows)


def written(path: Path, rows: pl.DataFrame, by: str = "label:commit") -> Path:
    data = trend_report(rows, "device_time", by, is_count=False, about={"archive": "runs/"})
    path.write_text(page(data, part="trend"), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def stepped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = [f"c{i}" for i in range(8)] + HOSTILE
    levels = [1e5] * 5 + [1.2e5] * 4 + [9e4] * 3
    return written(tmp_path_factory.mktemp("trend") / "t.html", frame(levels, {5: "changed", 9: "unproven"}, names))


@pytest.mark.parametrize(
    ("rows", "by", "headline"),
    [
        pytest.param(
            frame([1e5] * 4 + [1.2e5] * 4, {4: "changed"}), "time", "Device time +20.0\u00a0% at c4.", id="one"
        ),
        pytest.param(
            frame([1e5] * 4 + [2e5] * 4 + [1e5] * 4, {4: "changed", 8: "changed"}),
            "time",
            "Device time −50.0\u00a0% at c8, the last of 2 steps.",
            id="two",
        ),
        pytest.param(frame([1e5] * 6, {}), "time", "Device time has no proven step over 6 points.", id="none"),
        pytest.param(
            frame([1e5] * 2 + [2e5] * 2, {2: "unproven"}),
            "time",
            "Device time has no proven step over 4 points; 1 possible, with too few samples to tell.",
            id="unproven",
        ),
        pytest.param(frame([1e3] * 4 + [1e5] * 4, {4: "changed"}), "time", "Device time ×100 at c4.", id="hundredfold"),
        pytest.param(
            frame([0.0] * 4 + [1e5] * 4, {4: "changed"}), "time", "Device time from nothing at c4.", id="from-0"
        ),
        pytest.param(frame([], {}), "time", "No run holds device time.", id="empty"),
        pytest.param(
            frame([3e9, 1e9], {}).with_columns(level=None),
            "instance_type",
            "Device time: 1.000\u00a0s (c1) to 3.000\u00a0s (c0).",
            id="classes",
        ),
    ],
)
def test_the_headline_is_the_answer(rows: pl.DataFrame, by: str, headline: str) -> None:
    rows = TREND.conform(rows)
    data = trend_report(rows, "device_time", by, is_count=False, about={})
    assert data.answer.headline == headline
    assert data.ops is not None and data.ops.total_rows == rows.height
    assert all(len(values) == rows.height for values in data.ops.values)
    assert [mark.at for chart in data.charts for mark in chart.marks] == [
        i for i, verdict in enumerate(rows["verdict"]) if verdict
    ]
    assert "<!doctype html>" in page(data, part="trend")


def test_counts_have_no_unit_and_more_is_worse() -> None:
    rows = frame([1] * 4 + [6] * 4, {4: "changed"})
    data = trend_report(rows, "executions", "label:commit", is_count=True, about={})
    assert data.title == "Hardware executions by commit"
    assert data.answer.sentences == ["1 before c4, 6 from there on (+500.0\u00a0%)."]
    assert data.charts[0].y_unit == "" and data.charts[0].marks[0].tone == "bad"


def test_runs_are_named_by_their_day() -> None:
    rows = frame([1e5] * 4, {}, [f"nightly-{i}-0123456789" for i in range(4)])
    data = trend_report(rows, "device_time", "time", is_count=False, about={})
    assert data.charts[0].ticks == [f"2026-01-0{i}" for i in range(1, 5)]
    assert data.charts[0].names[0] == "nightly-0-0123456789"


def test_no_timeline_is_in_it(stepped: Path) -> None:
    assert not [name for name in TREND_SCRIPTS if "timeline" in name]
    assert set(TREND_SCRIPTS) - set(SCRIPTS) == {"trend.js"}
    assert stepped.stat().st_size < 150_000


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_opens_alone_and_text_stays_text(opened: Open, stepped: Path) -> None:
    shown = opened(stepped)
    assert shown.console == []
    assert shown.requests == [shown.url]
    assert shown.js("window.pwned") is None
    assert shown.js("document.querySelectorAll('img, iframe').length") == 0
    cells = shown.js("[...document.querySelectorAll('#points tbody th')].map((cell) => cell.textContent)")
    assert cells[8:] == [*HOSTILE[:2], "rtl ⟨U+202E⟩evil", "␛[31m"]
    assert shown.page.locator("h1").text_content() == "Device time +20.0\u00a0% at c5."


COLOURED = """(name) => { const c = document.querySelector('#chart-trend canvas');
  const [r, g, b] = Tracekit.color(name).match(/\\w\\w/g).map((h) => parseInt(h, 16));
  const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; const columns = new Set();
  for (let i = 0; i < data.length; i += 4)
    if (Math.abs(data[i] - r) + Math.abs(data[i + 1] - g) + Math.abs(data[i + 2] - b) < 12)
      columns.add((i / 4) % c.width);
  return [Math.min(...columns) / c.width, Math.max(...columns) / c.width, columns.size]; }"""


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_steps_are_marked_where_they_are(opened: Open, stepped: Path, scheme: str) -> None:
    shown = opened(stepped, color_scheme=scheme)
    bad = shown.js(COLOURED, "bad")
    assert bad[2] > 0 and 0.4 < bad[0] < 0.55 and bad[1] < 0.6
    dots = shown.js(COLOURED, "part-main")
    assert dots[0] < 0.2 and dots[1] > 0.9
    before = shown.js("getComputedStyle(document.body).backgroundColor")
    shown.page.get_by_role("button", name="Light or dark").click()
    assert shown.js("getComputedStyle(document.body).backgroundColor") != before
    assert shown.js(COLOURED, "bad")[2] > 0


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_points_are_walked_with_the_keyboard_and_told(opened: Open, stepped: Path) -> None:
    shown = opened(stepped)
    chart = shown.page.get_by_role("application")
    assert "12 points" in (chart.get_attribute("aria-label") or "")
    chart.focus()
    live = shown.page.locator("#live")
    for key, told in (
        ("ArrowRight", "c0: 100 µs"), ("ArrowRight", "c1: 100 µs"), ("ArrowLeft", "c0: "), ("ArrowLeft", "c0: "),
        ("End", "90 µs"), ("Home", "quartiles 99 µs to 101 µs, level 100 µs"),
    ):  # fmt: skip
        shown.page.keyboard.press(key)
        assert told in (live.text_content() or "")
    for _ in range(5):
        shown.page.keyboard.press("ArrowRight")
    assert "c5: 120 µs" in (live.text_content() or "") and "step +20.0\u00a0%" in (live.text_content() or "")
    assert "c5" in (shown.page.locator(".u-legend").text_content() or "")


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_fits_a_phone_and_paper(opened: Open, stepped: Path) -> None:
    shown = opened(stepped, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    assert shown.js("document.documentElement.scrollWidth") <= 360
    assert shown.js("document.querySelector('#chart-trend canvas').getBoundingClientRect().width") <= 360
    paper = opened(stepped, color_scheme="dark")
    paper.page.emulate_media(media="print")
    paper.js("dispatchEvent(new Event('beforeprint'))")
    assert paper.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_a_page_without_points_opens(opened: Open, tmp_path: Path) -> None:
    shown = opened(written(tmp_path / "empty.html", frame([], {})))
    assert shown.console == []
    assert "No run" in (shown.page.locator("h1").text_content() or "")
