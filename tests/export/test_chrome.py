"""Reading a Chrome export gives the profile back: every row, to the nanosecond."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import tracekit
from tests.shared_data import CORPUS, NEURON, SAMPLES, needs_shared
from tracekit.export import chrome, export

RENUMBERED = ("event_id",)
"""Columns of events that a trace does not hold; the order of the rows is kept."""

TRACES = [
    *(pytest.param(SAMPLES / "cpu" / name, id=f"cpu-{name}") for name in ("rms_naive", "rms_compiled")),
    *(
        pytest.param(CORPUS / name, id=Path(name).name.split(".")[0], marks=needs_shared)
        for name in (
            "hta/backward_thread.json",
            "hta/cupti_range.json.gz",
            "hta/mi250_minitoy.json.gz",
            "hta/old_categories.json.gz",
            "hta/two_ranks",
            "tracelens/h100_bert_small.json.gz",
            "tracelens/vllm_decode_graph.json.gz",
            "viztracer/multithread.json",
        )
    ),
]
CAPTURES = [
    *(pytest.param(SAMPLES / "neuron" / name, id=f"sample-{name}") for name in ("rms_fused", "train_small")),
    *(pytest.param(NEURON / name, id=name, marks=needs_shared) for name in ("train_2proc",)),
]
ANSWERS: list[tuple[str, dict[str, str]]] = [
    ("gaps", {}),
    *(("gaps", {"by": by}) for by in ("cause", "op", "host")),
    *((name, {}) for name in ("split", "devices", "ops", "work", "counts", "copies", "collectives", "waits", "queue")),
    ("advice", {}),
]
"""Metrics that must not change on the way, with options."""
IDS = ("dispatch_id", "launch_id", "stream_id", "submit_id", "wait_id", "hardware_ids")


def opened(path: Path, cache: Path) -> tracekit.Profile:
    profile = tracekit.open(path, cache=cache)
    assert isinstance(profile, tracekit.Profile)
    return profile


def round_trip(path: Path, cache: Path, tmp_path: Path) -> tuple[tracekit.Profile, tracekit.Profile]:
    first = opened(path, cache)
    sessions = first.sessions.collect()["session"].to_list()
    target = tmp_path / ("out" if len(sessions) > 1 else f"{sessions[0]}.json")
    export(first.inputs("all"), "chrome", target)
    return first, opened(target, tmp_path / "again")


def ordered(frame: pl.LazyFrame, *drop: str) -> pl.DataFrame:
    rows = frame.drop(drop).collect()
    return rows.sort(rows.columns, nulls_last=True)


def assert_same_sides(first: tracekit.Profile, second: tracekit.Profile) -> None:
    for table in ("threads", "flows", "samples"):
        assert ordered(first.table(table)).equals(ordered(second.table(table)), null_equal=True), table


def assert_same(first: tracekit.Profile, second: tracekit.Profile) -> None:
    mine, theirs = (p.events.sort("event_id").drop(RENUMBERED).collect() for p in (first, second))
    by_session = ["session"]
    mine, theirs = (frame.sort(by_session, maintain_order=True) for frame in (mine, theirs))
    assert mine.height == theirs.height
    assert [n for n in mine.columns if not mine[n].equals(theirs[n], null_equal=True)] == []
    assert_same_sides(first, second)


@pytest.mark.parametrize("path", TRACES)
def test_a_trace_comes_back_equal(path: Path, cache: Path, tmp_path: Path) -> None:
    assert_same(*round_trip(path, cache, tmp_path))


@pytest.mark.parametrize("path", CAPTURES)
def test_a_capture_of_several_sources_comes_back_equal(path: Path, cache: Path, tmp_path: Path) -> None:
    first, second = round_trip(path, cache, tmp_path)
    mine, theirs = (
        p.events.filter("is_primary").sort("session", "event_id").drop(RENUMBERED).collect() for p in (first, second)
    )
    assert mine["lane"].unique().len() == 4
    assert mine["source"].unique().len() > 1
    assert [n for n in mine.columns if not mine[n].equals(theirs[n], null_equal=True)] == []
    assert_same_sides(first, second)
    assert_same_answers(first, second)


def assert_same_answers(first: tracekit.Profile, second: tracekit.Profile) -> None:
    mine, theirs = (without_ids(p.chains.collect(), "chain_id", *IDS) for p in (first, second))
    assert mine.height
    assert mine.equals(theirs, null_equal=True)
    for name, options in ANSWERS:
        left, right = (p.metric(name, **options).collect() for p in (first, second))
        ids = [n for n in left.columns if n.endswith(("_id", "_ids")) and n not in ("model_id", "execution_id")]
        # Sums of floats may differ in their last bit: threads add them up in any order.
        assert_frame_equal(without_ids(left, *ids), without_ids(right, *ids), rel_tol=1e-12)


def without_ids(frame: pl.DataFrame, *ids: str) -> pl.DataFrame:
    return frame.drop(ids, strict=False)


def test_a_capture_keeps_its_facts_in_args(cache: Path, tmp_path: Path) -> None:
    first = opened(SAMPLES / "neuron" / "rms_naive", cache)
    export(first.inputs("all"), "chrome", tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    written = [e for e in events if ":hardware:execution" in e.get("cat", "")]
    rows = first.events.filter("is_primary", lane="hardware", kind="execution").sort("event_id").collect()
    assert {e["cat"].split(":")[0] for e in written} == set(rows["source"])
    assert [e["args"]["physical_core"] for e in written] == rows["physical_core"].to_list()
    assert [e["args"]["exec_id"] for e in written] == rows["execution_id"].to_list()
    assert [e["args"]["model_id"] for e in written] == rows["model_id"].to_list()
    assert [e["args"]["attrs"] for e in written] == [json.loads(a) for a in rows["attrs_json"]]


@pytest.mark.parametrize(
    ("args", "attrs"),
    [
        ('{"device":"zero","attrs":{"a":1}}', '{"device":"zero","attrs":{"a":1}}'),
        ('{"nrt_sequence_id":-1}', '{"nrt_sequence_id":-1}'),
        ('{"device":3,"attrs":7}', '{"device":3,"attrs":7}'),
    ],
)
def test_args_of_an_exported_row_that_were_changed_are_kept_and_noted(
    args: str, attrs: str, cache: Path, tmp_path: Path
) -> None:
    row = '{{"ph":"X","name":"nc_exec_running","cat":"explorer:hardware:execution","pid":1,"tid":2,"ts":1,"dur":1{}}}'
    good = row.format(',"args":{"device":3,"attrs":{"a":1}}')
    (tmp_path / "t.json").write_text(
        f'{{"traceEvents":[{good},{row.format(f",{chr(34)}args{chr(34)}:{args}")},{row.format("")}]}}'
    )
    profile = opened(tmp_path / "t.json", cache)
    rows = profile.events.collect()
    assert rows["core_index"].to_list() == [3, None, None]
    assert rows["attrs_json"].to_list() == ['{"a":1}', attrs, None]
    assert rows["source"].unique().to_list() == ["explorer"]
    assert "repaired_event" in profile.notes.collect()["code"].to_list()


@pytest.mark.parametrize(
    "category", ["cpu_op", "a:b:c", "explorer:runtime", "kineto:runtime:call", "explorer:gpu:call"]
)
def test_only_categories_of_an_export_name_another_source(category: str, cache: Path, tmp_path: Path) -> None:
    event = f'{{"ph":"X","name":"n","cat":"{category}","pid":1,"tid":2,"ts":1,"dur":1,"args":{{"device":3}}}}'
    (tmp_path / "t.json").write_text(f'{{"traceEvents":[{event}]}}')
    row = opened(tmp_path / "t.json", cache).events.collect().row(0, named=True)
    assert (row["source"], row["category"], row["phase"]) == ("kineto", category, "complete")
    assert row["core_index"] is None


numbers = st.one_of(st.integers(-(2**62), 2**62), st.text(max_size=4))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
microseconds = st.integers(0, 10**15).map(lambda ns: Decimal(ns).scaleb(-3))
args = st.dictionaries(
    st.one_of(st.sampled_from(["External id", "correlation", "stream", "device", "bytes", "nrt_sequence_id"]), texts),
    st.one_of(st.integers(0, 2**31 - 1), texts, st.none(), st.lists(st.integers(), max_size=2)),
    max_size=3,
)
spans = st.fixed_dictionaries(
    {"ph": st.just("X"), "name": texts, "ts": microseconds, "dur": microseconds, "pid": numbers, "tid": numbers},
    optional={
        "cat": st.sampled_from(["cpu_op", "kernel", "gpu_memcpy", "privateuse1_driver", "odd,\\n"]),
        "args": args,
    },
)
instants = st.fixed_dictionaries(
    {"ph": st.just("i"), "name": texts, "ts": microseconds, "pid": numbers}, optional={"args": args}
)
arrows = st.fixed_dictionaries(
    {"ph": st.sampled_from("stf"), "name": texts, "ts": microseconds, "pid": numbers, "tid": numbers, "id": numbers},
    optional={"bp": st.sampled_from(["e", "x"]), "cat": texts},
)
counters = st.fixed_dictionaries(
    {
        "ph": st.just("C"),
        "name": texts.filter(lambda t: "/" not in t),
        "ts": microseconds,
        "pid": numbers,
        "args": st.dictionaries(
            texts.filter(lambda t: "/" not in t),
            st.floats(allow_nan=False, allow_infinity=False) | st.integers(0, 9),
            min_size=1,
            max_size=2,
        ),
    }
)
pairs = st.builds(
    lambda first, begin, end, length: [
        {**first, "ph": begin},
        {**{k: v for k, v in first.items() if k != "args"}, "ph": end, "ts": first["ts"] + length},
    ],
    st.fixed_dictionaries(
        {"name": texts, "ts": microseconds, "pid": numbers, "tid": numbers, "cat": texts, "id": st.just("7")},
        optional={"args": args},
    ),
    st.sampled_from("B"),
    st.sampled_from("E"),
    microseconds,
)
traces = st.lists(st.one_of(spans, instants, arrows, counters).map(lambda e: [e]) | pairs, min_size=10, max_size=60)


class _Exact(json.JSONEncoder):
    """Decimals as numbers with all their digits."""

    def default(self, o: object) -> object:
        return float(o) if isinstance(o, Decimal) else super().default(o)


odd_counter = {"ph": "C", "name": "a\n", "ts": 0, "pid": 0, "args": {"": 1.0}}


@example([[odd_counter]])
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(traces)
def test_any_trace_comes_back_equal(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[dict[str, object]]]
) -> None:
    tmp_path = tmp_path_factory.mktemp("any")
    events = [{"ph": "X", "name": "one", "ts": 1, "dur": 1, "pid": 1, "tid": 1}, *(e for part in parts for e in part)]
    source = tmp_path / "in" / "trace.json"
    source.parent.mkdir()
    source.write_text(json.dumps({"baseTimeNanoseconds": 10**18, "traceEvents": events}, cls=_Exact))
    assert_same(*round_trip(source, tmp_path / "cache", tmp_path))


def test_samples_of_the_system_trace_come_back_with_core_and_unit(cache: Path, tmp_path: Path) -> None:
    at = 1_796_052_700_000_000_000
    run = {"timestamp": at, "duration": 10, "name": "nc_exec_running", "event_type": "nc_exec_running"}
    run |= {"group": "hardware", "instance_id": "i-1", "process_id": 7, "thread_id": 70, "nc_idx": 0, "exec_id": 1}
    use = {"instance_id": "i-1", "process_id": 7}
    document = {
        "trace_event": [run],
        "device_mem_usage": [{**use, "timestamp": at + n, "nc_idx": n % 2, "total_bytes": 7 * n} for n in range(6)],
        "cpu_util": [{**use, "timestamp": at, "cpu_id": n, "util": 2.5 * n} for n in range(2)],
    }
    source = tmp_path / "in" / "system_profile.json"
    source.parent.mkdir()
    source.write_text(json.dumps(document))
    first, second = round_trip(source, cache, tmp_path)
    samples = first.samples.collect()
    assert samples.height == 8
    assert set(samples["unit"]) == {"B", "%"} and samples["core_index"].drop_nulls().n_unique() == 2
    assert_same_sides(first, second)


def test_times_are_exact_text(tmp_path: Path, cache: Path) -> None:
    source = tmp_path / "t.json"
    event = '{"ph":"X","name":"a","pid":1,"tid":1,"ts":5195674157883.833,"dur":0.007}'
    source.write_text(f'{{"baseTimeNanoseconds":1700000000000000000,"traceEvents":[{event}]}}')
    export(opened(source, cache).inputs("all"), "chrome", tmp_path / "out.json")
    text = (tmp_path / "out.json").read_text()
    assert '"ts":5195674157883.833' in text
    assert '"dur":0.007' in text
    assert '"baseTimeNanoseconds":1700000000000000000' in text


@pytest.mark.parametrize(
    ("session", "expected"),
    [
        ("run", "run.json"),
        ("i-0a_pid_7", "i-0a_pid_7/trace.json"),
        ("i-0a_pid_7/2026-01-01", "i-0a_pid_7/2026-01-01/trace.json"),
        ("../../etc", "profile/profile/etc.json"),
        ("a b.c", "a-b.c.json"),
    ],
)
def test_file_names_give_sessions_their_names_and_stay_inside(session: str, expected: str) -> None:
    assert chrome.file_name(session) == Path(expected)
