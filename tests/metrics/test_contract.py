"""What holds for every metric, also for one that is added tomorrow."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import polars as pl
import pytest

import tracekit
from tests.metrics.build import event, inputs, sample
from tests.shared_data import CORPUS, SAMPLES
from tracekit.metrics import METRICS
from tracekit.metrics.base import Inputs

NEURON = SAMPLES / "neuron" / "train_small"
SHIFT = 86_400_000_000_123


def computed(name: str, given: Inputs, **options: str) -> pl.DataFrame:
    metric = METRICS[name]
    defaults = {option.name: option.default for option in metric.options}
    return metric.compute(given, {**defaults, **options}).collect()


def choices() -> list[tuple[str, dict[str, str]]]:
    """Every metric with its defaults and with each choice of each option."""
    found: list[tuple[str, dict[str, str]]] = []
    for name, metric in METRICS.items():
        found.append((name, {}))
        found += [(name, {o.name: c}) for o in metric.options for c in o.choices if c != o.default]
    return found


CHOICES = choices()
IDS = [f"{name}-{'-'.join(f'{k}={v}' for k, v in options.items())}" for name, options in CHOICES]


@pytest.fixture(scope="module")
def neuron() -> Inputs:
    return sample(NEURON)


@pytest.fixture(scope="module")
def kinds_of_input(neuron: Inputs, cache: Path) -> dict[str, Inputs]:
    found = {"neuron": neuron, "empty": inputs([]), "cpu only": inputs([event("op", 0, 9, lane="dispatch")])}
    if CORPUS.is_dir():
        profile = tracekit.open(CORPUS / "hta" / "mi250_minitoy.json.gz", cache=cache)
        assert isinstance(profile, tracekit.Profile)
        found["gpu"] = profile.inputs("steps")
    return found


def events_moved(given: Inputs, by: int) -> Inputs:
    frames = {}
    for name in Inputs.names():
        frame: pl.LazyFrame = getattr(given, name)
        times = [c for c in frame.collect_schema().names() if c in MOVING]
        frames[name] = frame.with_columns(pl.col(times) + by)
    return Inputs(**frames)


MOVING = (
    "start_ns", "end_ns", "first_ns", "last_ns", "at_ns", "dispatch_start_ns", "dispatch_end_ns", "submit_ns",
    "submit_end_ns", "wait_start_ns", "wait_end_ns", "hardware_start_ns", "hardware_end_ns",
)  # fmt: skip


@pytest.mark.parametrize("name", METRICS)
def test_every_column_and_option_is_documented(name: str) -> None:
    metric = METRICS[name]
    assert metric.name == name and metric.doc.endswith((".", "?"))
    assert all(column.doc for column in metric.table.columns)
    assert metric.table.names[0] == "session"
    assert set(metric.sort_by) | set(metric.screen) <= set(metric.table.names)
    assert all(option.doc for option in metric.options)


@pytest.mark.parametrize(("name", "options"), CHOICES, ids=IDS)
def test_result_is_what_the_table_says(name: str, options: dict[str, str], kinds_of_input: dict[str, Inputs]) -> None:
    for kind, given in kinds_of_input.items():
        frame = computed(name, given, **options)
        assert dict(frame.schema) == METRICS[name].table.schema, kind
        for column in METRICS[name].table.columns:
            assert column.nullable or not frame[column.name].null_count(), f"{kind}: null in {column.name}"


@pytest.mark.parametrize(("name", "options"), CHOICES, ids=IDS)
def test_order_of_rows_does_not_matter(name: str, options: dict[str, str], neuron: Inputs) -> None:
    shuffled = dataclasses.replace(
        neuron,
        events=neuron.events.collect().sample(fraction=1, shuffle=True, seed=7).lazy(),
        chains=neuron.chains.collect().sample(fraction=1, shuffle=True, seed=8).lazy(),
        scope=neuron.scope.collect().sample(fraction=1, shuffle=True, seed=9).lazy(),
    )
    assert computed(name, shuffled, **options).equals(computed(name, neuron, **options))


@pytest.mark.parametrize(("name", "options"), CHOICES, ids=IDS)
def test_shifting_time_changes_positions_only(name: str, options: dict[str, str], neuron: Inputs) -> None:
    before = computed(name, neuron, **options)
    after = computed(name, events_moved(neuron, SHIFT), **options)
    moved = [c for c in before.columns if c in MOVING]
    assert after.with_columns(pl.col(moved) - SHIFT).equals(before)


@pytest.mark.parametrize(("name", "options"), CHOICES, ids=IDS)
def test_an_unrelated_process_changes_no_numbers(name: str, options: dict[str, str], neuron: Inputs) -> None:
    renamed = {}
    for table in Inputs.names():
        frame: pl.LazyFrame = getattr(neuron, table)
        columns = frame.collect_schema().names()
        other = frame.with_columns(session=pl.lit("other ") + pl.col("session")) if "session" in columns else frame
        ids = [c for c in columns if c.endswith("_id") and c in ("event_id", "chain_id")]
        other = other.with_columns(pl.col(ids) + 10_000_000)
        if table == "sessions":
            other = other.with_columns(instance_id=pl.lit("elsewhere"), rank=pl.lit(None, dtype=pl.Int32))
        if table == "chains":
            linked = pl.col("dispatch_id", "launch_id", "stream_id", "submit_id", "wait_id") + 10_000_000
            other = other.with_columns(linked, hardware_ids=pl.col("hardware_ids").list.eval(pl.element() + 10_000_000))
        renamed[table] = pl.concat([frame, other.select(columns)])
    alone = computed(name, neuron, **options)
    together = computed(name, Inputs(**renamed), **options).filter(~pl.col("session").str.starts_with("other "))
    assert together.equals(alone)


def test_shared_sample_is_not_trivial(neuron: Inputs) -> None:
    empty = {n for n in METRICS if computed(n, neuron).is_empty()}
    assert not empty, "the invariants above would hold for nothing"


def test_steps_add_up_to_the_whole(cache: Path) -> None:
    profile = tracekit.open(NEURON / "capture", cache=cache)
    assert isinstance(profile, tracekit.Profile)
    numbers = profile.metric("steps").filter(~pl.col("is_warmup")).select("step").unique().collect()["step"]
    for name, column in (("split", "window_ns"), ("split", "both_ns"), ("gaps", "gap_ns"), ("devices", "busy_ns")):
        whole = profile.metric(name).collect()[column].sum()
        assert whole == sum(profile.metric(name, scope=n).collect()[column].sum() for n in numbers), (name, column)
