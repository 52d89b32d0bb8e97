"""Charts in notebooks: each is a page of its own in a frame, and the example notebook runs."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.report import synthetic
from tracekit.errors import TracekitError
from tracekit.report import notebook
from tracekit.report.notebook import Plots, View

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"


def test_a_chart_is_a_closed_frame_of_its_own() -> None:
    view = Plots(synthetic.inputs(800), 'a "name"').gaps()
    shown = view._repr_html_()
    frame = re.fullmatch(
        r'<iframe sandbox="allow-scripts" title="([^"]*)" style="[^"]*" srcdoc="([^"]*)"></iframe>', shown
    )
    assert frame is not None
    assert html.unescape(frame.group(1)) == 'gaps of a "name"'
    assert html.unescape(frame.group(2)) == view.document
    assert repr(view) == '<gaps of a "name">'


@pytest.mark.parametrize("what", ["gaps", "split", "steps", "queue"])
def test_every_chart_has_something_to_show(what: str) -> None:
    view: View = getattr(Plots(synthetic.inputs(1_600)), what)()
    assert '"part":"charts"' in view.document


def test_a_timeline_of_one_step_holds_only_that_step() -> None:
    whole = notebook.timeline(synthetic.inputs(1_600), name="x")
    inputs = synthetic.inputs(1_600)
    step = type(inputs)(**{**vars(inputs), "scope": inputs.scope.filter(step=1)})
    clipped = notebook.timeline(step, clip=True)
    assert "timeline x: 1,604 spans" in whole.text
    count = int(re.search(r"(\d+) spans", clipped.text).group(1))  # type: ignore[union-attr]
    assert 400 <= count < 800 * 1.1


def test_a_chart_can_be_saved(tmp_path: Path) -> None:
    view = notebook.full(synthetic.inputs(400), name="x")
    assert view.save(tmp_path / "x.html").read_text("utf-8") == view.document


def test_what_cannot_be_shown_is_said() -> None:
    with pytest.raises(TracekitError, match="no chart 'pie'"):
        notebook.plot(synthetic.inputs(400), "pie")
    inputs = synthetic.inputs(400)
    bare = type(inputs)(**{**vars(inputs), "events": inputs.events.collect().clear().lazy()})
    with pytest.raises(TracekitError, match="no events to show"):
        notebook.timeline(bare)


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize("what", ["timeline", "gaps"])
def test_the_frame_works_inside_another_page(opened: Callable[..., Any], tmp_path: Path, what: str) -> None:
    inputs = synthetic.inputs(1_600)
    view = notebook.timeline(inputs) if what == "timeline" else Plots(inputs).gaps()
    outer = tmp_path / "outer.html"
    outer.write_text(f"<!doctype html><html data-ready><body>{view._repr_html_()}</body></html>", encoding="utf-8")
    report = opened(outer)
    inner = report.page.frame_locator("iframe")
    inner.locator("canvas").first.wait_for(state="visible")
    assert report.console == []


def test_the_example_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    book = nbformat.read(NOTEBOOK, as_version=4)
    for cell in book.cells:
        cell.source = cell.source.replace('cache="_profiles"', f"cache={str(tmp_path)!r}")
    root = NOTEBOOK.parents[1]
    monkeypatch.setenv("PYTHONPATH", str(root))
    nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
    frames = [o for o in outputs if "<iframe" in o.get("data", {}).get("text/html", "")]
    assert len(frames) == 3
    assert not any(o.output_type in ("error", "stream") for o in outputs)


def test_the_example_notebook_is_stored_without_output() -> None:
    nbformat = pytest.importorskip("nbformat")
    book = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(book)
    assert all(not cell.get("outputs") for cell in book.cells)
