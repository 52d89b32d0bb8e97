"""A report's data: the answer, a section for every metric, and no metric that can break it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl
import pytest

from tests.report import synthetic
from tests.report.test_spans import profile
from tracekit.errors import TracekitError
from tracekit.metrics import METRICS
from tracekit.metrics.base import Inputs, Metric
from tracekit.report import build, results
from tracekit.report.blocks import label, table_block
from tracekit.report.build import report, subject
from tracekit.report.model import ReportData
from tracekit.tables import Column, Table


@pytest.fixture(scope="module")
def data() -> ReportData:
    return report(subject("x", synthetic.inputs(1_600, sessions=2)))


def test_the_answer_comes_with_its_numbers(data: ReportData) -> None:
    assert data.answer.headline.startswith("Host-bound: the device is idle for ")
    text = " ".join(data.answer.sentences)
    assert "2 steps (0 to 1) of 2 processes" in text
    assert "gaps" in text
    figures = {figure.label: figure.value for figure in data.answer.figures}
    assert figures["Hardware executions"] == 200
    assert figures["Operator calls"] == 400
    split = next(chart for chart in data.shares if chart.id == "split")
    assert figures["Measured time"] == sum(bar.whole_ns for bar in split.bars)


def test_parts_of_each_bar_sum_to_the_whole(data: ReportData) -> None:
    for chart in data.shares:
        for bar in chart.bars:
            assert sum(part.ns for part in bar.parts) == bar.whole_ns, (chart.id, bar.label)


def test_every_metric_has_a_place(data: ReportData) -> None:
    shown = {block.id for block in data.tables} | {"ops", "advice"}
    made = results.Results(synthetic.inputs(1_600, sessions=2))
    for metric in METRICS.values():
        options = build.TABLE_OPTIONS.get(metric.name, {})
        assert metric.name in shown or made.get(metric.name, **options) is None, metric.name
    assert data.ops is not None
    assert data.ops.sort is not None


def test_notes_and_facts_are_told(data: ReportData) -> None:
    note = next(n for n in data.notes if n.code == "cut_file")
    assert (note.severity, note.event_count, note.hint) == ("warning", 3, "let the profiler finish")
    assert [n.severity for n in data.notes] == sorted((n.severity for n in data.notes), reverse=True)
    facts = dict(data.facts[0].facts)
    assert facts["version torch"] == "2.13"
    assert facts["label batch"] == "4"
    assert facts["lane hardware"] == "200 events from ntrace"


def test_findings_lead_to_places_inside_the_timeline(data: ReportData) -> None:
    assert data.timeline is not None
    for finding in data.findings:
        assert finding.stake_ns is None or finding.stake_ns > 0
        for place in finding.evidence:
            assert 0 <= place.start_ns <= place.end_ns <= data.timeline.window_ns
    assert any(finding.evidence for finding in data.findings)


class _With(Mapping[str, Metric]):
    """The metrics and one more."""

    def __init__(self, more: Metric) -> None:
        self.all = {**dict(METRICS), more.name: more}

    def __getitem__(self, name: str) -> Metric:
        return self.all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)


PEAKS = Table(
    "peaks", "Peaks.", ("session",), (Column("session", pl.String(), "S."), Column("peak_bytes", pl.Int64(), "Most."))
)


def _metric(compute: Any) -> Metric:
    return Metric("peaks", "Highest use.", PEAKS, compute)


def test_a_new_metric_appears_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pl.LazyFrame({"session": ["a", "b"], "peak_bytes": [2**20, 5]})
    monkeypatch.setattr(results, "METRICS", _With(_metric(lambda inputs, options: frame)))
    block = report(subject("x", synthetic.inputs(400))).tables[-1]
    assert (block.id, block.title, block.doc) == ("peaks", "Peaks", "Highest use.")
    assert [(c.label, c.unit) for c in block.columns] == [("peak", "B"), ("session", "")]
    assert block.values == [[2**20, 5], ["a", "b"]]


@pytest.mark.parametrize("error", [TracekitError("odd data"), pl.exceptions.ComputeError("overflow")])
def test_a_metric_that_fails_becomes_a_note(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(inputs: Inputs, options: Mapping[str, object]) -> pl.LazyFrame:
        raise error

    monkeypatch.setattr(results, "METRICS", _With(_metric(fail)))
    notes = report(subject("x", synthetic.inputs(400))).notes
    failed = [n.message for n in notes if n.code == "metric_failed"]
    assert any("peaks" in message and str(error) in message for message in failed)


def test_a_profile_without_any_event_still_has_a_report() -> None:
    inputs = synthetic.inputs(400)
    names = {n: getattr(inputs, n) for n in Inputs.names()}
    bare = Inputs(
        **{n: frame if n in ("sessions", "notes") else frame.collect().clear().lazy() for n, frame in names.items()}
    )
    data = report(subject("bare", bare))
    assert data.timeline is None
    assert data.answer.headline == "Nothing to measure: this capture holds no timed events."
    assert any(n.code == "nothing_measured" for n in data.notes)


def test_host_only_work_is_called_so() -> None:
    inputs = profile([{"start_ns": 0, "end_ns": 50}])
    scope = pl.LazyFrame(
        {"session": ["s"], "step": [None], "start_ns": [0], "end_ns": [100]}, schema_overrides={"step": pl.Int64}
    )
    data = report(subject("cpu", Inputs(**{**{n: getattr(inputs, n) for n in Inputs.names()}, "scope": scope})))
    assert data.answer.headline.startswith("No device work in this capture")


@pytest.mark.parametrize(
    ("name", "heading"),
    [
        ("device_ns", "device"),
        ("execution_count", "executions"),
        ("self_cpu_ratio", "self CPU share"),
        ("share_ratio", "share"),
        ("moved_bytes", "moved"),
        ("is_warmup", "warmup"),
        ("core_index", "core index"),
    ],
)
def test_headings_are_words(name: str, heading: str) -> None:
    assert label(name) == heading


def test_moments_are_counted_from_the_origin_and_lead_into_the_timeline() -> None:
    start, end = (Column(f"{name}_ns", pl.Int64(), name, unit="ns") for name in ("start", "end"))
    table = Table("t", "T.", ("session",), (Column("session", pl.String(), "S."), start, end))
    origin = synthetic.ORIGIN_NS
    frame = pl.DataFrame(
        {"session": ["a", "b"], "start_ns": [origin + 5, origin + 9], "end_ns": [origin + 6, origin + 19]}
    )
    block = table_block("t", "T", "", table, frame, origin, rank=("end_ns",), limit=1)
    assert [c.label for c in block.columns] == ["starts at", "ends at"]
    assert block.values == [[9], [19]]
    assert block.places == [["b"], [9], [19]]
    assert block.total_rows == 2
