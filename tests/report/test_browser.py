"""The report in a real browser: it opens alone, answers to mouse and keyboard, and trace text stays text."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.report import synthetic
from tests.report.conftest import Opened

Open = Callable[..., Opened]
pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

FRAMES = """async (count) => {
  const t = Tracekit.timeline, times = [];
  t.setView(0, t.model.window * 0.4);
  await new Promise((done) => requestAnimationFrame(done));
  for (let i = 0; i < count; i++) {
    t.pan(i % 40 < 20 ? 9 : -9);
    times.push(await new Promise((done) => requestAnimationFrame(done)));
  }
  return 1000 * (count - 1) / (times[count - 1] - times[0]);
}"""


def test_opens_alone_and_silently(opened: Open, large_report: Path) -> None:
    report = opened(large_report)
    assert report.console == []
    assert report.requests == [report.url]
    assert report.busy_seconds() < 3  # CPU time until interactive: the wall time of an idle machine
    assert report.js("document.getElementById('app').hasAttribute('aria-busy')") is False


def test_a_request_is_forbidden_by_the_page_itself(opened: Open, small_report: Path) -> None:
    report = opened(small_report)
    failed = report.js(
        """async () => { const seen = [];
        addEventListener('securitypolicyviolation', (e) => seen.push(e.effectiveDirective));
        const refused = await fetch('http://127.0.0.1:9/x').then(() => false, () => true);
        const image = new Image(); image.src = 'http://127.0.0.1:9/y.png';
        const script = document.createElement('script'); script.textContent = 'window.pwned = 3';
        document.body.append(script);
        await new Promise((done) => setTimeout(done, 200)); return [refused, seen.sort()]; }"""
    )
    assert failed == [True, ["connect-src", "img-src", "script-src-elem"]]
    assert report.js("window.pwned") is None


def test_text_of_the_trace_stays_text(opened: Open, small_report: Path) -> None:
    report = opened(small_report)
    assert report.js("window.pwned") is None
    assert report.js("document.querySelectorAll('img, iframe, object, #ops script').length") == 0
    shown = report.js("[...document.querySelectorAll('#ops tbody th')].map((cell) => cell.textContent)")
    assert "<script>window.pwned=1</script>" in shown
    assert "</script><img src=x onerror=window.pwned=2>" in shown
    assert "␛[31mred␛[0m" in shown
    assert "rtl ⟨U+202E⟩evil" in shown
    assert "\"quotes\" 'and' `ticks` \\ &amp; ${x}" in shown
    assert report.page.title() == "small <i>&"
    report.js("Tracekit.timeline.find('<script>window.pwned=1</script>')")
    report.settle()
    assert report.page.locator(".panel h3").text_content() == "<script>window.pwned=1</script>"
    assert report.js("window.pwned") is None


def test_numbers_arrive_as_they_were_packed(opened: Open, small_report: Path) -> None:
    report = opened(small_report)
    events = synthetic.frames(4_800, sessions=2)["events"]
    sums = report.js(
        """() => { const m = Tracekit.timeline.model, sum = (a) => a.reduce((x, y) => x + y, 0);
        return [m.spans, sum(m.start), sum(m.length), m.chains, m.hardwareSpan.length]; }"""
    )
    origin = events["start_ns"].min()
    lengths = (events["end_ns"] - events["start_ns"]).sum()
    assert sums == [events.height, (events["start_ns"] - origin).sum(), lengths, 600, 1200]


def test_operators_are_searched(opened: Open, small_report: Path) -> None:
    report = opened(small_report)
    rows = report.page.locator("#ops tbody tr")
    before = rows.count()
    report.page.get_by_label(re.compile("Search in")).first.fill("ATEN rsqrt")
    assert 0 < rows.count() < before
    names = report.js("[...document.querySelectorAll('#ops tbody th')].map((cell) => cell.textContent)")
    assert set(names) == {"aten::rsqrt"}
    report.page.get_by_label(re.compile("Search in")).first.fill("no such operator")
    assert rows.count() == 0
    assert "0 match" in report.page.locator("#ops .status").text_content()


def test_operators_are_sorted_by_any_column_with_the_keyboard(opened: Open, small_report: Path) -> None:
    report = opened(small_report)
    heading = report.page.locator("#ops thead th", has=report.page.get_by_role("button", name="name", exact=True))
    heading.get_by_role("button").focus()
    report.page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    cells = "[...document.querySelectorAll('#ops tbody th')].map((cell) => cell.textContent)"
    ascending = report.js(cells)
    report.page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "descending"
    assert report.js(cells) == report.js(f"{cells}.sort((a, b) => b.localeCompare(a))")
    assert sorted(report.js(cells)) == sorted(ascending)
    assert "Sorted by name" in report.page.locator("#live").text_content()


def click_span(report: Opened, name: str) -> dict[str, object]:
    """Click the first span of that name on the canvas; what is selected then."""
    point = report.js(
        """async (name) => { const t = Tracekit.timeline, m = t.model;
        const span = m.start.findIndex((_, i) => m.nameOf(i) === name);
        t.clear(); t.setView(m.start[span] - 60000, m.start[span] + 140000);
        t.element.scrollIntoView({ behavior: 'instant' });
        t.scroller.scrollTop = Math.max(0, t.drawing.rowY(span) - 100);
        await new Promise((done) => setTimeout(done, 120));
        const box = t.canvas.getBoundingClientRect();
        return [box.left + t.drawing.x(m.start[span]) + 3, box.top + t.drawing.rowY(span) - t.view.scroll, span]; }""",
        name,
    )
    report.page.mouse.click(point[0], point[1])
    report.settle()
    return {
        "clicked": point[2],
        "selected": report.js("Tracekit.timeline.view.selected"),
        "chains": report.js("Tracekit.timeline.view.chains"),
        "hops": report.js(
            "Tracekit.timeline.view.chains.map((c) => Tracekit.timeline.model.hops(c).map(([link]) => link))"
        ),
    }


def test_a_click_on_an_operator_shows_its_whole_chain(opened: Open, small_report: Path) -> None:
    report = opened(small_report)
    outer = click_span(report, "aten::linear")
    assert outer["selected"] == outer["clicked"]
    assert outer["hops"] == [["dispatch", "launch", "stream", "submit", "hardware", "hardware"]]
    inner = click_span(report, "aten::addmm")
    assert inner["chains"] == outer["chains"]
    listed = report.page.locator(".panel .hops button").all_text_contents()
    names = ["aten::addmm", "privateuse1::launch", "aten::linear", "nrta_execute_schedule"]
    assert listed == [*names, "nc_exec_running", "nc_exec_running"]
    execution = click_span(report, "nc_exec_running")
    assert execution["chains"] == outer["chains"]


def test_arrows_are_drawn_between_the_hops(opened: Open, small_report: Path) -> None:
    report = opened(small_report)
    count = """() => { const t = Tracekit.timeline, c = t.canvas;
      const [r, g, b] = t.drawing.colors.focus.match(/\\w\\w/g).map((h) => parseInt(h, 16));
      const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0;
      for (let i = 0; i < data.length; i += 4)
        if (Math.abs(data[i] - r) + Math.abs(data[i + 1] - g) + Math.abs(data[i + 2] - b) < 12) n++;
      return n; }"""
    click_span(report, "aten::linear")
    drawn = report.js(count)
    report.page.keyboard.press("Escape")
    report.settle()
    assert report.js(count) == 0
    assert drawn > 100


def test_the_timeline_obeys_the_keyboard(opened: Open, small_report: Path) -> None:
    report = opened(small_report)
    report.page.get_by_role("application").focus()
    t0, t1 = report.view()
    report.page.keyboard.press("+")
    assert report.view()[1] - report.view()[0] == pytest.approx((t1 - t0) * 0.7)
    before = report.view()[0]
    report.page.keyboard.press("ArrowRight")
    assert report.view()[0] > before
    report.page.keyboard.press("ArrowDown")
    report.settle()
    selected = report.js("Tracekit.timeline.view.selected")
    assert selected >= 0
    report.page.keyboard.press("ArrowDown")
    report.page.keyboard.press(".")
    assert report.js("Tracekit.timeline.view.selected") != selected
    report.page.keyboard.press("Enter")
    report.settle()
    assert report.js("Tracekit.timeline.view.chains.length") > 0
    assert report.page.locator(".panel .hops").count() > 0
    report.page.keyboard.press("Escape")
    assert report.js("Tracekit.timeline.view.chains.length") == 0
    report.page.keyboard.press("0")
    report.settle()
    assert report.view() == (0, report.js("Tracekit.timeline.model.window"))


def test_dragging_pans_and_the_wheel_zooms(opened: Open, small_report: Path) -> None:
    report = opened(small_report)
    report.page.locator("#timeline").scroll_into_view_if_needed()
    box = report.page.locator(".canvas-scroller canvas").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + 60
    t0, t1 = report.view()
    report.page.mouse.move(x, y)
    report.page.keyboard.down("Control")
    report.page.mouse.wheel(0, -400)
    report.page.keyboard.up("Control")
    report.settle()
    assert report.view()[1] - report.view()[0] < (t1 - t0) * 0.9
    before = report.view()
    report.page.mouse.down()
    report.page.mouse.move(x - 120, y, steps=4)
    report.page.mouse.up()
    report.settle()
    assert report.view()[0] > before[0]
    assert report.js("Tracekit.timeline.view.selected") == -1


def test_panning_100k_spans_is_fluent(opened: Open, large_report: Path) -> None:
    report = opened(large_report)
    before = report.busy_seconds()
    report.js(FRAMES, 60)
    cpu_per_frame = (report.busy_seconds() - before) / 60
    assert cpu_per_frame < 1 / 30  # CPU time: 30 frames per second on an idle machine


def test_hovering_tells_what_an_event_is(opened: Open, small_report: Path) -> None:
    report = opened(small_report)
    click_span(report, "aten::linear")
    report.page.mouse.move(5, 5)
    point = report.js(
        """() => { const t = Tracekit.timeline, m = t.model, s = t.view.selected;
        const box = t.canvas.getBoundingClientRect();
        return [box.left + t.drawing.x(m.start[s]) + 5, box.top + t.drawing.rowY(s) - t.view.scroll]; }"""
    )
    report.page.mouse.move(*point)
    tip = report.page.locator(".tip")
    assert tip.is_visible()
    text = tip.text_content()
    assert "aten::linear" in text
    assert "40 µs" in text
    assert "[[4, 0], []]" in text


def test_gaps_tell_their_causes_and_the_parts_sum(opened: Open, small_report: Path) -> None:
    report = opened(small_report)
    worst = report.js(
        """() => { const m = Tracekit.timeline.model; let most = 0;
        const parts = (i) => m.gap.parts.reduce((sum, part) => sum + part[i], 0);
        for (let i = 0; i < m.gaps; i++) most = Math.max(most, Math.abs(parts(i) - m.gap.length[i]));
        return [m.gaps, most]; }"""
    )
    assert worst[0] > 100
    assert worst[1] == 0
    report.js("Tracekit.timeline.selectGap(3)")
    assert "Idle for" in report.page.locator(".panel").text_content()


def test_evidence_and_names_lead_into_the_timeline(opened: Open, small_report: Path) -> None:
    report = opened(small_report)
    before = report.view()
    report.page.locator("#ops tbody th button", has_text="aten::rsqrt").first.click()
    report.settle()
    assert report.view() != before
    assert report.js("Tracekit.timeline.model.nameOf(Tracekit.timeline.view.selected)") == "aten::rsqrt"
    report.page.locator("#block-gaps summary").first.click()
    report.page.locator("#block-gaps tbody th button").first.click()
    report.settle()
    band = report.js("Tracekit.timeline.view.band")
    assert report.view()[0] < band[0] < band[1] < report.view()[1]


def test_theme_changes_and_follows_the_system(opened: Open, small_report: Path) -> None:
    report = opened(small_report, color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = report.js(background)
    report.page.get_by_role("button", name="Light or dark").click()
    light = report.js(background)
    assert dark != light == "rgb(255, 255, 255)"
    assert report.js("Tracekit.timeline.drawing.colors.surface") == "#ffffff"


def test_no_motion_where_none_is_wanted(opened: Open, small_report: Path) -> None:
    report = opened(small_report, reduced_motion="reduce")
    report.js("Tracekit.timeline.frame(1000, 2000)")
    assert report.view()[1] - report.view()[0] == pytest.approx(1300)


def test_fits_a_phone(opened: Open, small_report: Path) -> None:
    report = opened(small_report, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    assert report.js("document.documentElement.scrollWidth") <= 360
    assert report.js("Tracekit.timeline.drawing.gutter") == 0
    assert report.console == []


LEGEND = """() => { const legend = document.querySelector('.plot .u-legend');
  const colon = getComputedStyle(legend.querySelectorAll('th')[1], '::after').content;
  return [legend.textContent, colon, getComputedStyle(legend.querySelector('.u-series')).visibility]; }"""


def test_a_legend_shows_values_only_below_the_pointer(opened: Open, small_report: Path) -> None:
    report = opened(small_report)
    text, colon, first = report.js(LEGEND)
    assert "–" not in text and "--" not in text
    assert (colon, first) == ("none", "hidden")
    over = report.page.locator(".plot .u-over").first
    over.scroll_into_view_if_needed()
    over.hover()
    text, colon, first = report.js(LEGEND)
    assert any(letter.isdigit() for letter in text)
    assert (colon, first) == ('":"', "visible")


def test_prints_in_light_without_controls(opened: Open, small_report: Path) -> None:
    report = opened(small_report, color_scheme="dark")
    report.page.emulate_media(media="print")
    assert report.js("getComputedStyle(document.querySelector('nav')).display") == "none"
    report.js("dispatchEvent(new Event('beforeprint'))")
    assert report.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert report.js("document.querySelectorAll('details.block:not([open])').length") == 0
    assert report.page.pdf().startswith(b"%PDF")


def test_everything_pressable_has_a_name(opened: Open, small_report: Path) -> None:
    report = opened(small_report)
    nameless = report.js(
        """() => [...document.querySelectorAll('button, input, a, canvas:not([aria-hidden]), [role=application]')]
        .filter((n) => n.offsetParent && !n.closest('[aria-hidden]'))
        .filter((n) => !(n.textContent.trim() || n.getAttribute('aria-label') || n.closest('label'))).length"""
    )
    assert nameless == 0
    levels = report.js("[...document.querySelectorAll('h1, h2, h3, h4')].map((h) => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert report.js("document.documentElement.lang") == "en"
