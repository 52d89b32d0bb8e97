"""The document: one file, closed to the network, small, readable in both themes."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest

from tests.report import synthetic
from tracekit.report import page as module
from tracekit.report.build import report, subject
from tracekit.report.page import page

ASSETS = Path(module.__file__).parent / "assets"


def test_the_policy_allows_its_own_elements_and_no_request(small_report: Path) -> None:
    text = small_report.read_text("utf-8")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text).group(1)  # type: ignore[union-attr]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy and "http" not in policy and "*" not in policy
    for tag in ("style", "script"):
        element = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.S).group(1)  # type: ignore[union-attr]
        digest = base64.b64encode(hashlib.sha256(element.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_nothing_is_loaded_from_elsewhere(small_report: Path) -> None:
    text = small_report.read_text("utf-8")
    markup = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", text, flags=re.S)
    assert re.findall(r'(?:src|href)="([^"]*)"', markup) == ["data:,"]
    assert "@import" not in text and "url(" not in text
    assert len(re.findall(r"<script", text)) == 3
    assert len(re.findall(r"</script", text)) == 3


def test_the_library_is_there_with_its_licence(small_report: Path) -> None:
    text = small_report.read_text("utf-8")
    assert "var uPlot=" in text
    assert "Permission is hereby granted, free of charge" in text
    assert "Leon Sorokin" in text


def test_100k_events_take_less_than_5_mb(large_report: Path) -> None:
    assert large_report.stat().st_size < 5_000_000


def test_more_events_than_can_be_drawn_stay_small_and_say_so() -> None:
    data = report(subject("x", synthetic.inputs(60_000)), span_limit=10_000)
    assert data.timeline is not None
    assert data.timeline.spans.height < 15_000
    assert any("drawn as blocks" in remark for remark in data.timeline.remarks)
    assert len(page(data)) < 2_000_000


def test_the_same_profile_gives_the_same_bytes() -> None:
    first, second = (page(report(subject("x", synthetic.inputs(800)))) for _ in range(2))
    assert first == second


def colors(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})", block))


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


CSS = (ASSETS / "base.css").read_text("utf-8")
BLOCKS = re.findall(r":root[^{]*\{\s*color-scheme[^}]*\}", CSS)
THEMES = dict(zip(("light", "dark by system", "dark by choice"), map(colors, BLOCKS), strict=True))


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_contrast_follows_wcag(theme: dict[str, str]) -> None:
    surface = theme["surface"]
    assert contrast(theme["ink"], surface) >= 7
    for name in ("ink-soft", "accent", "good", "bad", "warn"):
        assert contrast(theme[name], surface) >= 4.5, name
    parts = {name: color for name, color in theme.items() if name.startswith(("part-", "span-"))}
    for name, color in parts.items():
        assert contrast(color, surface) >= 3, name
        assert contrast(theme["on-span"], color) >= 3, name
    assert contrast(theme["focus"], surface) >= 3


def test_both_dark_themes_are_the_same() -> None:
    assert THEMES["dark by system"] == THEMES["dark by choice"]
    assert set(THEMES["light"]) == set(THEMES["dark by choice"])
