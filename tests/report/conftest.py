"""A headless browser and the reports it looks at, made once per run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.report import synthetic
from tracekit.report.build import report, subject
from tracekit.report.page import page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield started
        started.close()


@dataclass
class Opened:
    """A report in the browser, and what it did."""

    page: Any
    url: str
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    meter: Any = None

    def js(self, expression: str, argument: object = None) -> Any:
        return self.page.evaluate(expression, argument)

    def settle(self) -> None:
        """Wait until the timeline has stopped moving and drawn its last frame."""
        self.page.wait_for_function(
            """() => new Promise((done) => { const t = Tracekit.timeline; const before = t.frames;
            setTimeout(() => done(t.frames === before), 250); })""",
            timeout=30_000,
        )

    def busy_seconds(self) -> float:
        """CPU time of the page's main thread so far: what a loaded machine does not change."""
        if self.meter is None:
            self.meter = self.page.context.new_cdp_session(self.page)
            self.meter.send("Performance.enable", {"timeDomain": "threadTicks"})
        metrics = self.meter.send("Performance.getMetrics")["metrics"]
        return float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))

    def view(self) -> tuple[float, float]:
        t0, t1 = self.js("[Tracekit.timeline.view.t0, Tracekit.timeline.view.t1]")
        return t0, t1


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Open a file in a browser context of its own."""
    contexts = []

    def open_report(path: Path, **options: Any) -> Opened:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        found = Opened(context.new_page(), path.as_uri())
        found.busy_seconds()
        found.page.on("console", lambda message: found.console.append(message.text))
        found.page.on("pageerror", lambda error: found.console.append(str(error)))
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.goto(found.url)
        found.page.wait_for_selector("html[data-ready]", state="attached", timeout=60_000)
        return found

    yield open_report
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def small_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two processes, 2,400 events each, names that attack the page."""
    path = tmp_path_factory.mktemp("report") / "small.html"
    path.write_text(page(report(subject("small <i>&", synthetic.inputs(4_800, sessions=2)))), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def large_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100,000 spans of one process."""
    path = tmp_path_factory.mktemp("report") / "large.html"
    path.write_text(page(report(subject("large", synthetic.inputs(100_000)))), encoding="utf-8")
    return path
