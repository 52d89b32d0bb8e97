"""What stands twice in the input counts once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracekit
from tests.sources.neuron_captures import CAPTURES, requires_captures
from tracekit.repeats import Seen

NAIVE = CAPTURES / "rms_naive"
JSON, FETCH, PARQUET = "system_profile.json", "fetch_pid_4242.json", "explorer/SystemProfileEvents.parquet"
COMPARED = ("lane", "kind", "name", "core_index", "physical_core", "start_ns", "end_ns", "sequence_id", "execution_id")


def copied(path: str, into: Path) -> None:
    place = into / path
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(NAIVE / path, place)
    place.chmod(0o644)


def framework(into: Path) -> Path:
    """The capture without any system trace."""
    shutil.copytree(NAIVE / "capture", into / "capture", ignore=shutil.ignore_patterns("ntrace.pb"))
    return into


def opened(directory: Path) -> tracekit.Profile:
    stored = tracekit.open(tracekit.ingest([directory], directory.parent / f"{directory.name}-archive").path)
    assert isinstance(stored, tracekit.Profile)
    return stored


def parts(path: str, key: str, first: slice, second: slice) -> Callable[[Path], None]:
    """A JSON file as two files that hold a part of its list each."""

    def write(into: Path) -> None:
        whole = json.loads((NAIVE / path).read_text())
        for name, part in (("one", first), ("two", second)):
            (into / f"{name}_{path}").write_text(json.dumps(whole | {key: whole[key][part]}))

    return write


def rows_twice(into: Path) -> None:
    copied(PARQUET, into)
    rows = pl.read_parquet(into / PARQUET)
    pl.concat([rows, rows]).write_parquet(into / PARQUET)


def bytes_twice(into: Path) -> None:
    """Protobuf messages that stand one behind the other are one message with the fields of both."""
    (found,) = NAIVE.glob("capture/*/*/ntrace.pb")
    (place,) = into.glob("capture/*/*")
    (place / "ntrace.pb").write_bytes(found.read_bytes() * 2)


def exported_twice(into: Path) -> None:
    """Two exports of one trace, told apart by their white space only."""
    copied(JSON, into)
    (into / "again.json").write_text(json.dumps(json.loads((NAIVE / JSON).read_text()), indent=1))


@requires_captures
@pytest.mark.parametrize(
    ("path", "repeat"),
    [
        pytest.param(JSON, exported_twice, id="json-exported-twice"),
        pytest.param(JSON, parts(JSON, "trace_event", slice(30), slice(10, None)), id="json-overlap"),
        pytest.param(FETCH, parts(FETCH, "events", slice(60), slice(20, None)), id="fetch-overlap"),
        pytest.param(PARQUET, rows_twice, id="parquet-rows"),
        pytest.param(None, bytes_twice, id="ntrace-records"),
    ],
)
def test_rows_that_a_source_repeats_count_once(
    path: str | None, repeat: Callable[[Path], None], tmp_path: Path
) -> None:
    once, twice = framework(tmp_path / "once"), framework(tmp_path / "twice")
    if path:
        copied(path, once)
    else:
        (found,) = NAIVE.glob("capture/*/*/ntrace.pb")
        shutil.copy(found, once / found.relative_to(NAIVE))
    repeat(twice)
    expected, got = opened(once), opened(twice)
    rows = [p.events.select(COMPARED).sort(COMPARED).collect() for p in (expected, got)]
    assert rows[0].equals(rows[1])
    assert got.chains.collect()["complete"].to_list() == [True] * 6
    notes = got.notes.filter(code="repeated_rows").collect()
    assert notes["event_count"].sum() > 0


def test_chrome_trace_keeps_events_that_it_repeats(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "x", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "trace.json").write_text(json.dumps({"traceEvents": [event, event]}))
    assert opened(tmp_path / "in").events.select(pl.len()).collect().item() == 2


@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a", None])), min_size=1), max_size=5))
def test_each_row_is_first_once(batches: list[list[tuple[int, str | None]]]) -> None:
    seen, met, position = Seen(), set(), 0
    for batch in batches:
        rows = pl.DataFrame(batch, schema={"start_ns": pl.Int64, "name": pl.String}, orient="row")
        fresh = seen.first(rows.with_row_index("event_id", position)).to_list()
        position += len(batch)
        for row, is_first in zip(batch, fresh, strict=True):
            assert is_first == (row not in met)
            met.add(row)
