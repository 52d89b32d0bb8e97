"""The Perfetto trace says what the tables say: times, tracks, nesting, arrows, gaps, counters."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

import tracekit
from tests.export.decoded import Decoded, Slice, decode
from tests.shared_data import CORPUS, NEURON, SAMPLES, needs_shared
from tracekit import activity, intervals, tables
from tracekit.export import export
from tracekit.metrics import metric
from tracekit.metrics.base import SCOPE, Inputs

WORK = {"execution", "memory", "collective", "copy_in", "copy_out", "copy"}
SAMPLE_NAMES = ("rms_naive", "rms_fused", "rms_compiled", "train_small")
CAPTURES = [
    *(pytest.param(SAMPLES / "neuron" / name, id=f"sample-{name}") for name in SAMPLE_NAMES),
    pytest.param(SAMPLES / "cpu" / "rms_fused", id="cpu"),
    *(pytest.param(NEURON / name, id=name, marks=needs_shared) for name in ("rms_naive", "train_2proc")),
    *(
        pytest.param(CORPUS / name, id=Path(name).stem, marks=needs_shared)
        for name in ("hta/two_ranks", "tracelens/h100_bert_small.json.gz", "viztracer/multithread.json")
    ),
]


@pytest.fixture(scope="module", params=CAPTURES)
def pair(
    request: pytest.FixtureRequest, cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Inputs, Decoded]:
    profile = tracekit.open(request.param, cache=cache)
    assert isinstance(profile, tracekit.Profile)
    inputs = profile.inputs("all")
    target = tmp_path_factory.mktemp("perfetto") / "trace.pftrace"
    export(inputs, "perfetto", target)
    return inputs, decode(target)


def on_common_clock(inputs: Inputs, frame: pl.LazyFrame) -> pl.LazyFrame:
    """Times with the offset of their session."""
    offset = inputs.sessions.select("session", _offset=pl.col("clock_offset_ns").fill_null(0))
    return frame.join(offset, on="session").with_columns(pl.col("start_ns", "end_ns") + pl.col("_offset"))


def from_events(found: Decoded) -> list[Slice]:
    return [s for s in found.slices if not s.name.startswith("gap: ")]


def test_every_primary_event_is_there_with_its_exact_times_and_ids(pair: tuple[Inputs, Decoded]) -> None:
    inputs, found = pair
    events = on_common_clock(inputs, inputs.events.filter("is_primary"))
    columns = (
        "event_id",
        "name",
        "start_ns",
        "end_ns",
        "kind",
        "sequence_id",
        "execution_id",
        "model_id",
        "moved_bytes",
    )
    keys = columns[5:]
    got = {
        (s.args["event_id"], s.name, s.start_ns, s.end_ns, s.categories[0], *(s.args.get(k) for k in keys))
        for s in from_events(found)
    }
    assert got == set(events.select(columns).collect().rows())
    assert len(from_events(found)) == len(got)


def test_busy_time_of_each_core_equals_the_tables(pair: tuple[Inputs, Decoded]) -> None:
    inputs, found = pair
    core = inputs.events.select("event_id", "session", "core_index").collect()
    core_of = {event: (session, index) for event, session, index in core.rows()}
    work = [s for s in from_events(found) if found.path(s.track)[1] == "hardware" and s.categories[0] in WORK]
    rows = [(*core_of[int(s.args["event_id"])], s.start_ns, s.end_ns) for s in work]
    schema = {"session": pl.String, "core_index": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64}
    drawn = pl.LazyFrame(rows, schema=schema, orient="row")
    by = ["session", "core_index"]
    expected = intervals.length(activity.device_work(inputs.events), by).collect()
    assert intervals.length(drawn, by).collect().equals(expected)


def test_busy_time_of_each_track_equals_the_tables(pair: tuple[Inputs, Decoded]) -> None:
    """A thread, a stream, a core: what the viewer shows as one row has the same union as its events."""
    inputs, found = pair
    columns = ("session", "lane", "kind", "core_index", "physical_core", "stream_id", "process_id", "thread_id")
    events = on_common_clock(inputs, inputs.events.filter("is_primary"))
    expected: dict[tuple[object, ...], list[tuple[int, int]]] = defaultdict(list)
    for start, end, *rest in events.select("start_ns", "end_ns", *columns).collect().rows():
        expected[track_key(*rest)].append((start, end))
    drawn: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    for s in from_events(found):
        track = found.tracks[s.track]
        drawn[track.parent_uuid, track.sibling_merge_key].append((s.start_ns, s.end_ns))
    assert Counter(map(union_ns, drawn.values())) == Counter(map(union_ns, expected.values()))


def test_tracks_of_work_hold_nothing_else(pair: tuple[Inputs, Decoded]) -> None:
    """What the viewer shows as busy is device work: no annotation, wait or change of the model lies on its track."""
    _, found = pair
    on_device = [s for s in from_events(found) if found.path(s.track)[1] == "hardware"]
    for s in on_device:
        is_beside = found.path(s.track)[2].endswith(" · annotations and other")
        assert is_beside is (s.categories[0] not in WORK), s


def union_ns(spans: list[tuple[int, int]]) -> int:
    """Length of the union, span by span."""
    total, until = 0, -(2**62)
    for start, end in sorted(spans):
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total


def track_key(
    session: str,
    lane: str,
    kind: str,
    core: int | None,
    physical: int | None,
    stream: int | None,
    pid: int | None,
    tid: int | None,
) -> tuple[object, ...]:
    """Which row of the view an event belongs to, in plain Python."""
    if lane == "dispatch" or (lane == "runtime" and core is None):
        return session, lane, pid, tid
    if lane == "runtime":
        return session, lane, core
    if lane == "stream":
        return session, lane, tid if stream is None else stream
    return session, lane, core, stream if physical is None else physical, kind in WORK


def test_slices_of_a_track_nest(pair: tuple[Inputs, Decoded]) -> None:
    """``decode`` has closed them like brackets; here the times are looked at once more."""
    _, found = pair
    by_track: dict[int, list[Slice]] = defaultdict(list)
    for s in found.slices:
        by_track[s.track].append(s)
    for slices in by_track.values():
        stack: list[int] = []
        for s in sorted(slices, key=lambda s: (s.start_ns, -s.end_ns)):
            while stack and stack[-1] <= s.start_ns:
                stack.pop()
            assert not stack or stack[-1] >= s.end_ns
            if s.end_ns > s.start_ns:
                stack.append(s.end_ns)


def test_every_chain_has_its_arrows(pair: tuple[Inputs, Decoded]) -> None:
    inputs, found = pair
    start = {s.args["event_id"]: (s.start_ns, n) for n, s in enumerate(from_events(found))}
    expected: set[tuple[int, int]] = set()
    for chain in inputs.chains.collect().to_dicts():
        host = [chain[c] for c in ("dispatch_id", "launch_id", "stream_id", "submit_id") if chain[c] in start]
        hardware = [h for h in chain["hardware_ids"] if h in start]
        way = sorted({*host, *hardware[:1]}, key=lambda e: start[e])
        expected |= set(pairwise(way))
        for further in hardware[1:]:
            if host:
                first, second = sorted((host[-1], further), key=lambda e: start[e])
                expected.add((first, second))
    assert found.arrows == expected


def test_gaps_are_tracks_of_their_own(pair: tuple[Inputs, Decoded]) -> None:
    inputs, found = pair
    chosen = metric("gaps")
    profile_gaps = chosen.compute(inputs, {option.name: option.default for option in chosen.options})
    rows = on_common_clock(inputs, profile_gaps).select("start_ns", "end_ns", "main_cause").collect().rows()
    drawn = [(s.start_ns, s.end_ns, s.name.removeprefix("gap: ")) for s in found.slices if s.name.startswith("gap: ")]
    assert sorted(drawn) == sorted(rows)
    for s in found.slices:
        assert (found.path(s.track)[1] == "gaps") == s.name.startswith("gap: ")
        if s.name.startswith("gap: "):
            assert sum(int(v) for k, v in s.args.items() if k.endswith("_ns")) == s.end_ns - s.start_ns


def inputs_of(**frames: pl.DataFrame) -> Inputs:
    every = {n: frames.get(n, t.empty()).lazy() for n, t in {**tables.TABLES, "scope": SCOPE}.items()}
    return Inputs(**every)


def event(number: int, start: int, end: int, **more: object) -> dict[str, object]:
    known = {"session": "s", "lane": "dispatch", "kind": "op", "source": "kineto", "is_primary": True, "name": "op"}
    return known | {"event_id": number, "start_ns": start, "end_ns": end, "thread_id": 1, "process_id": 2} | more


SESSION = tables.SESSIONS.rows([{"session": "s", "path": "s"}])


def test_overlapping_spans_are_all_drawn_on_tracks_shown_as_one(tmp_path: Path) -> None:
    events = tables.EVENTS.rows([event(n, 100 + 10 * n, 115 + 10 * n) for n in range(50)])
    written = export(inputs_of(events=events, sessions=SESSION), "perfetto", tmp_path / "t")
    found = decode(tmp_path / "t")
    assert len(found.slices) == 50
    assert (
        len({(found.tracks[s.track].parent_uuid, found.tracks[s.track].sibling_merge_key) for s in found.slices}) == 1
    )
    assert any("sub-tracks" in remark for remark in written.remarks)


def test_counters_keep_value_unit_and_time(tmp_path: Path) -> None:
    rows = [
        {"session": "s", "counter": "mem/used", "at_ns": 2**60 + n, "value": v, "unit": "B"}
        for n, v in enumerate([0.0, 1.5, -3.0, 2.0**53])
    ]
    export(inputs_of(samples=tables.SAMPLES.rows(rows), sessions=SESSION), "perfetto", tmp_path / "t")
    found = decode(tmp_path / "t")
    ((track, values),) = found.counters.items()
    assert values == [(r["at_ns"], r["value"]) for r in rows]
    assert found.path(track) == ("s", "counters", "mem/used")
    assert found.tracks[track].counter.unit == 3


def test_times_before_1970_are_moved_and_said(tmp_path: Path) -> None:
    events = tables.EVENTS.rows([event(0, -500, -100), event(1, 100, 200)])
    written = export(inputs_of(events=events, sessions=SESSION), "perfetto", tmp_path / "t")
    assert [(s.start_ns, s.end_ns) for s in decode(tmp_path / "t").slices] == [(0, 400), (600, 700)]
    assert any("1970" in remark for remark in written.remarks)


def test_events_that_repeat_another_source_are_left_out_and_counted(tmp_path: Path) -> None:
    events = tables.EVENTS.rows([event(0, 0, 10), event(1, 0, 10, is_primary=False)])
    written = export(inputs_of(events=events, sessions=SESSION), "perfetto", tmp_path / "t")
    assert [s.args["event_id"] for s in decode(tmp_path / "t").slices] == [0]
    assert any(remark.startswith("1 events") for remark in written.remarks)


def test_any_text_and_any_id_survives(tmp_path: Path) -> None:
    names = ["", "名前::op", "a\x00b", "x" * 70_000, '"quoted" \\ <script>']
    events = tables.EVENTS.rows(
        [event(n, n, n + 1, name=t, external_id=-n, sequence_id=2**64 - 1 - n, model_id=t) for n, t in enumerate(names)]
    )
    export(inputs_of(events=events, sessions=SESSION), "perfetto", tmp_path / "t")
    found = decode(tmp_path / "t").slices
    assert [s.name for s in found] == names
    assert [s.args["model_id"] for s in found] == names
    assert [s.args["external_id"] for s in found] == [-n for n in range(5)]
    assert [s.args["sequence_id"] for s in found] == [2**64 - 1 - n for n in range(5)]


def test_an_empty_profile_is_a_trace_without_events(tmp_path: Path) -> None:
    export(inputs_of(sessions=SESSION), "perfetto", tmp_path / "t")
    assert decode(tmp_path / "t").slices == []
