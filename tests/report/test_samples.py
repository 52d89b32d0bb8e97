"""Reports of the sample captures and of the shared corpus open in a browser without complaint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.report.conftest import Opened
from tests.shared_data import CORPUS, NEURON, SAMPLES
from tracekit.profile import open_profile
from tracekit.report.build import report, subject
from tracekit.report.page import page

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

PLACES = [
    *(SAMPLES / "neuron" / name / "capture" for name in ("rms_naive", "rms_compiled", "train_small")),
    *(SAMPLES / "cpu" / name for name in ("rms_fused", "train")),
    NEURON / "train_2proc" / "capture",
    CORPUS / "tracelens" / "h100_bert_small.json.gz",
    CORPUS / "hta" / "mtia_inference.json.gz",
    CORPUS / "viztracer" / "multithread.json",
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "/".join(place.parts[-3:]))
def test_a_report_opens(opened: Callable[..., Opened], tmp_path: Path, cache: Path, place: Path) -> None:
    if not place.exists():
        pytest.skip("no shared test data beside the checkout")
    profile = open_profile(place, cache=cache)
    out = tmp_path / "report.html"
    out.write_text(page(report(subject(profile.id, profile.inputs()))), encoding="utf-8")
    seen = opened(out, viewport={"width": 1000, "height": 800})
    assert seen.console == []
    assert seen.requests == [seen.url]
    assert seen.js("Tracekit.timeline.model.spans") > 0
    assert seen.js("document.documentElement.scrollWidth <= innerWidth")
    assert len(seen.page.locator("h1").text_content()) > 20
