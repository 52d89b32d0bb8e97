"""How long a report takes to build and to open, how large it is, and how smoothly its timeline pans.

Run as ``python -m benchmarks.report [EVENTS ...]`` (default 100,000 and 1,000,000) from the repository's root; the
browser's numbers need Debian's ``chromium`` and ``pip install playwright``.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

from tests.report import synthetic
from tests.report.conftest import CHROMIUM, FLAGS
from tests.report.test_browser import FRAMES
from tracekit.report.build import report, subject
from tracekit.report.page import page


def build(events: int, path: Path) -> str:
    """Build a report; its costs in a line."""
    inputs = synthetic.inputs(events)
    began, used = time.perf_counter(), time.process_time()
    path.write_text(page(report(subject("benchmark", inputs))), encoding="utf-8")
    took, cpu = time.perf_counter() - began, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    size = path.stat().st_size / 1e6
    return f"{events:>9,} events: {took:6.1f} s ({cpu:.1f} s CPU), {size:.2f} MB, peak {peak:,.0f} MB"


def open_in_browser(path: Path) -> str:
    """Open a report in headless Chromium; time to interaction and frames per second of panning."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        view = browser.new_page(viewport={"width": 1360, "height": 900})
        view.goto(path.as_uri())
        view.wait_for_selector("html[data-ready]", state="attached", timeout=120_000)
        ready = view.evaluate("document.documentElement.dataset.ready")
        frames = view.evaluate(FRAMES, 120)
        browser.close()
    return f"           interactive after {ready} ms, pans at {frames:.0f} frames/s"


def main() -> None:
    """Print a line per size."""
    sizes = [int(text.replace("_", "")) for text in sys.argv[1:]] or [100_000, 1_000_000]
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            path = Path(folder) / f"{size}.html"
            print(build(size, path))
            if CHROMIUM:
                print(open_in_browser(path))


if __name__ == "__main__":
    main()
