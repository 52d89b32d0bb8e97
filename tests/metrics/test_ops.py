"""Operator statistics: tracekit's own rules, and torch's to the nanosecond."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import tracekit
from tests.metrics.build import chain, event, inputs, window
from tests.parity import recordings, reference
from tests.shared_data import CORPUS, NEURON, corpus_truth, needs_shared
from tracekit.metrics.ops import OPS, ops
from tracekit.sources._chrome_categories import place

Row = dict[str, Any]


def host(kind: str, name: str, start: int, end: int, **columns: object) -> Row:
    lane = columns.pop("lane", "dispatch")
    values: Row = {"process_id": 1, "thread_id": 1, "phase": "complete", **columns}
    return event(kind, start, end, lane=str(lane), name=name, **values)


def op(name: str, start: int, end: int, **columns: object) -> Row:
    return host("op", name, start, end, category="cpu_op", **columns)


def profiled(path: Path, archive: Path) -> tracekit.Profile:
    opened = tracekit.open(tracekit.ingest([path], archive).path)
    assert isinstance(opened, tracekit.Profile)
    return opened


def by_name(found: pl.LazyFrame, *columns: str) -> dict[str, tuple[Any, ...]]:
    return {row[0]: row[1:] for row in found.select("name", *columns).collect().rows()}


NESTED = [
    op("aten::linear", 0, 100),
    op("aten::t", 5, 15),
    host("call", "launch", 20, 30, lane="runtime", category="cuda_runtime"),
    host("python", "hook.py(3): f", 40, 90, category="python_function"),
    op("aten::add", 50, 60),
    op("aten::add", 10, 90, thread_id=2),
]


def test_self_time_is_without_direct_children() -> None:
    found = ops(inputs(NESTED))
    assert by_name(found, "call_count", "self_cpu_ns", "total_cpu_ns") == {
        "aten::linear": (1, 100 - 10 - 10 - 10, 100),
        "aten::t": (1, 10, 10),
        "aten::add": (2, 90, 90),
    }


def test_device_time_is_that_of_the_chains() -> None:
    events = [host("annotation", "step", 0, 50), op("outer", 0, 40), op("inner", 10, 20), op("idle", 45, 50)]
    chains = [
        chain([9], dispatch_id=3, device_ns=70, hardware_start_ns=100),
        chain([10], dispatch_id=3, device_ns=5, hardware_start_ns=200),
        chain([11], dispatch_id=2, device_ns=11, hardware_start_ns=300),
        chain([], dispatch_id=4, device_ns=0, hardware_start_ns=None),
        chain([12], dispatch_id=None, device_ns=13, hardware_start_ns=400, execution_name="graph"),
        chain([13], dispatch_id=99, device_ns=17, hardware_start_ns=500, execution_name="lost"),
    ]
    found = ops(inputs(events, chains, [window(0, 1000)]))
    assert by_name(found, "kind", "self_device_ns", "total_device_ns", "execution_count", "call_count") == {
        "step": ("annotation", 0, 86, 0, 1),
        "outer": ("op", 11, 86, 1, 1),
        "inner": ("op", 75, 75, 2, 1),
        "idle": ("op", 0, 0, 0, 1),
        "graph": ("execution", 13, 13, 1, 1),
        "lost": ("execution", 17, 17, 1, 1),
    }
    shares = found.select(pl.col("self_device_ratio", "self_cpu_ratio").sum()).collect()
    assert shares.row(0) == pytest.approx((1.0, 1.0))


def test_calls_count_in_the_step_they_start_in() -> None:
    events = [op("a", 0, 10), op("a", 18, 30), op("a", 25, 28), op("a", 50, 60)]
    scope = [window(0, 20, 1), window(20, 40, 2)]
    found = ops(inputs(events, scope=scope), per_step=True).sort("step").select("step", "call_count", "self_cpu_ns")
    assert found.collect().rows() == [(1, 2, 10 + 12 - 3), (2, 1, 3)]
    whole = ops(inputs(events, scope=scope)).select("step", "call_count", "self_cpu_ns").collect()
    assert whole.rows() == [(None, 3, 22)]


def test_distribution_of_calls() -> None:
    found = ops(inputs([op("a", 10 * n, 10 * n + n) for n in range(1, 6)]))
    row = found.collect().row(0, named=True)
    assert (row["mean_cpu_ns"], row["p50_cpu_ns"], row["max_cpu_ns"]) == (3.0, 3.0, 5)
    assert row["p95_cpu_ns"] == pytest.approx(4.8)


@pytest.mark.parametrize(
    ("attrs", "own", "like_torch"),
    [
        pytest.param('{"Input Dims": [[4, 512], []], "Ev Idx": 1}', "[[4, 512], []]", "[[4, 512], []]", id="plain"),
        pytest.param('{"Input Dims":[[[1,2],[3]],[],[[]]]}', "[[], [], []]", "[[], [], []]", id="lists of tensors"),
        pytest.param('{"Input Dims": []}', "[]", "[]", id="no inputs"),
        pytest.param('{"Ev Idx": 1}', None, "[]", id="not recorded"),
        pytest.param('{"x": "\\"Input Dims\\": [[7]]"}', None, "[]", id="quoted"),
        pytest.param(None, None, "[]", id="no attributes"),
    ],
)
def test_shapes(attrs: str | None, own: str | None, like_torch: str) -> None:
    one = inputs([op("a", 0, 1, attrs_json=attrs)])
    assert ops(one, by="shapes").select("shapes").collect().item() == own
    assert ops(one, by="shapes", rules="torch").select("shapes").collect().item() == like_torch


def test_overloads_are_rows_only_on_request() -> None:
    one = inputs([op("aten::add.Tensor", 0, 1), op("aten::add.Scalar", 2, 4), host("annotation", "a::b.c", 5, 6)])
    assert by_name(ops(one), "call_count") == {"aten::add": (2,), "a::b.c": (1,)}
    found = ops(one, by="overload").filter(pl.col("kind") == "op").select("overload", "self_cpu_ns")
    assert sorted(found.collect().rows()) == [("Scalar", 2), ("Tensor", 1)]


@pytest.mark.parametrize(
    ("by", "inside"),
    [("annotation", "forward"), ("module", "nn.Module: Linear_0"), ("frame", "train.py(7): step")],
)
def test_where_a_call_was_made(by: str, inside: str) -> None:
    events = [
        host("annotation", "ProfilerStep#3", 0, 100),
        host("annotation", "forward", 1, 90),
        host("python", "train.py(7): step", 2, 80),
        host("python", "nn.Module: Linear_0", 3, 70),
        host("python", "torch/nn/modules/linear.py(130): forward", 4, 60),
        op("aten::linear", 5, 50),
        op("aten::mm", 6, 40),
        op("aten::mm", 95, 99),
    ]
    found = ops(inputs(events), by=by).filter(pl.col("kind") == "op").select("name", "inside", "self_cpu_ns")
    assert sorted(found.collect().rows(), key=str) == sorted(
        [("aten::linear", inside, 11), ("aten::mm", inside, 34), ("aten::mm", None, 4)], key=str
    )


def test_nothing_in_nothing_out() -> None:
    for rules in ("own", "torch"):
        for by in ("name", "shapes", "module"):
            empty = ops(inputs([]), by=by, rules=rules).collect()
            assert empty.height == 0
            assert empty.schema == OPS.schema


# ---------------------------------------------------------------- invariants

calls = st.lists(
    st.tuples(
        st.sampled_from(["s", "t"]), st.integers(1, 2), st.sampled_from("abc"), st.integers(0, 40), st.integers(0, 15)
    ),
    max_size=25,
)
Call = tuple[str, int, str, int, int]


def rows_of(case: list[Call]) -> list[Row]:
    return [op(n, start, start + length, session=s, thread_id=t) for s, t, n, start, length in case]


WINDOWS = [window(0, 100, None, session) for session in ("s", "t")]


@settings(max_examples=25, deadline=None)
@given(calls)
def test_steps_add_up_to_the_whole(case: list[Call]) -> None:
    tiles = [window(start, start + 10, start, session) for session in ("s", "t") for start in range(0, 100, 10)]
    sums = ["call_count", "self_cpu_ns", "total_cpu_ns"]
    stepped = ops(inputs(rows_of(case), scope=tiles), per_step=True)
    added = stepped.group_by("session", "name").agg(pl.col(sums).sum()).sort("session", "name").collect()
    whole = ops(inputs(rows_of(case), scope=WINDOWS)).select("session", "name", *sums).sort("session", "name")
    assert added.equals(whole.collect())


@settings(max_examples=25, deadline=None)
@given(calls, st.integers(-(10**18), 10**18))
def test_time_shift_order_and_strangers_change_nothing(case: list[Call], shift: int) -> None:
    def of_s(found: pl.LazyFrame) -> pl.DataFrame:
        return found.filter(pl.col("session") == "s").collect()

    plain = of_s(ops(inputs(rows_of(case), scope=WINDOWS)))
    alone = rows_of([call for call in case if call[0] == "s"])
    assert_frame_equal(of_s(ops(inputs(alone, scope=WINDOWS))), plain)
    later = [row | {"start_ns": row["start_ns"] + shift, "end_ns": row["end_ns"] + shift} for row in alone]
    moved = [window(shift, 100 + shift, None, "s")]
    assert_frame_equal(of_s(ops(inputs(later, scope=moved))), plain)
    reordered = [{"event_id": n, **row} for n, row in enumerate(alone, start=1)][::-1]
    assert_frame_equal(of_s(ops(inputs(reordered, scope=WINDOWS))), plain)


# ---------------------------------------------------------------- torch's rules

CATEGORIES = ("cpu_op", "user_annotation", "python_function", "privateuse1_runtime", "privateuse1_driver", "kernel")
ids = st.integers(0, 4)
activity = st.fixed_dictionaries(
    {
        "cat": st.sampled_from([*CATEGORIES, "gpu_memcpy", "gpu_user_annotation", "cuda_runtime", "overhead"]),
        "name": st.sampled_from(["one", "two", "aten::is_leaf", "ProfilerStep#1", "ProfilerStep#2", "gloo:barrier"]),
        "tid": st.sampled_from([7, 8]),
        "start": st.integers(0, 30),
        "length": st.integers(2, 20),
        "external": ids,
        "correlation": ids,
        "finished": st.booleans(),
    }
)
instant = st.fixed_dictionaries({"name": st.sampled_from(["[memory]", "[OutOfMemory]"]), "start": st.integers(0, 55)})


def trace_of(spans: list[Row], instants: list[Row]) -> dict[str, Any]:
    def us(ns: int) -> Decimal:
        return Decimal(ns) / 1000

    entries: list[Row] = []
    for span in spans:
        args = {"correlation": span["correlation"]} | ({"External id": span["external"]} if span["external"] else {})
        if not span["finished"] and span["cat"] in reference.FRAMEWORK:  # only these can be left open
            args["finished"] = False
        times = {"ts": us(span["start"]), "dur": us(span["length"])}
        entries.append({"ph": "X", "pid": 7, **{k: span[k] for k in ("cat", "name", "tid")}, **times, "args": args})
    for at in instants:
        common = {"ph": "i", "cat": "cpu_instant_event", "pid": 7, "tid": 8}
        entries.append({**common, "name": at["name"], "ts": us(at["start"]), "args": {}})
    return {"traceEvents": entries}


def stored(trace: dict[str, Any]) -> list[Row]:
    """The rows that the Chrome reader gives for such a trace."""
    rows = []
    for n, entry in enumerate(trace["traceEvents"], start=1):
        lane, kind = place(entry["cat"], entry["name"])
        start, args = int(entry["ts"] * 1000), entry["args"]
        rows.append(
            event(
                kind, start, start + int(entry.get("dur", 0) * 1000), lane=lane, name=entry["name"], event_id=n,
                category=entry["cat"], phase="complete" if entry["ph"] == "X" else "instant", process_id=entry["pid"],
                thread_id=entry["tid"], external_id=args.get("External id"), correlation_id=args.get("correlation"),
                attrs_json=json.dumps(args),
            )
        )  # fmt: skip
    return rows


NUMBERS = ("call_count", "self_cpu_ns", "total_cpu_ns", "self_device_ns", "total_device_ns")


def keyed(found: pl.DataFrame, name: Callable[[str], str] = str) -> dict[reference.Key, tuple[int, ...]]:
    keys = [
        (
            name(row["name"]),
            row["kind"].startswith("device"),
            row["kind"].endswith("annotation"),
            row["overload"] or "",
            row["shapes"] or "",
        )
        for row in found.to_dicts()
    ]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, found.select(NUMBERS).rows(), strict=True))


@settings(max_examples=60, deadline=None)
@given(st.lists(activity, max_size=25), st.lists(instant, max_size=4))
def test_torch_rules_equal_the_reference_on_any_trace(spans: list[Row], instants: list[Row]) -> None:
    trace = trace_of(spans, instants)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(trace, file, default=float)
        file.flush()
        expected = reference.key_averages(Path(file.name), has_device=True)
    found = ops(inputs(stored(trace), scope=[window(0, 1000)]), rules="torch").collect()
    assert keyed(found) == {
        key: (row.calls, row.self_cpu_ns, row.cpu_total_ns, row.self_device_ns, row.device_total_ns)
        for key, row in expected.items()
    }


@pytest.mark.torch
@pytest.mark.parametrize("name", recordings.ALL)
def test_torch_rules_equal_key_averages(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    recording = recordings.ALL[name](tmp_path)
    measured = profiled(recording.trace, tmp_path / "archive").inputs("all")
    torch_names = ("calls", "self_cpu_ns", "cpu_total_ns", "self_device_ns", "device_total_ns")

    def demangled(text: str) -> str:
        return str(torch._C._demangle(text)) if len(text) > 1 else text

    for by, rows in (("name", recording.by_name), ("shapes", recording.by_shape), ("overload", recording.by_overload)):
        expected = {
            (r["name"], r["on_device"], r["is_annotation"], r["overload"], r["shapes"]): tuple(
                r[n] for n in torch_names
            )
            for r in rows
        }
        assert keyed(ops(measured, by=by, rules="torch").collect(), demangled) == expected


@pytest.mark.torch
def test_own_rules_lose_no_device_time(tmp_path: Path) -> None:
    """Where torch's table loses what operators launched (README of tests/parity, rule 7), ours has it all."""
    pytest.importorskip("torch")
    recording = recordings.ALL["privateuse1"](tmp_path)
    measured = profiled(recording.trace, tmp_path / "archive").inputs("all")
    kernels = [r for r in recording.by_name if r["on_device"] and not r["is_annotation"]]
    work = ops(measured).filter(pl.col("kind") == "op").select(pl.col("self_device_ns", "execution_count").sum())
    assert work.collect().row(0) == (sum(r["self_device_ns"] for r in kernels), sum(r["calls"] for r in kernels))
    torch_ops = [r for r in recording.by_name if not r["on_device"] and not r["is_annotation"]]
    assert sum(r["self_device_ns"] for r in torch_ops) < sum(r["self_device_ns"] for r in kernels)


# ---------------------------------------------------------------- shared data

TRUTH = {name: truth["cpu_ops"] for name, truth in corpus_truth().items() if "cpu_ops" in truth}


@pytest.mark.parametrize("name", TRUTH)
def test_corpus_self_time(name: str, tmp_path: Path) -> None:
    truth = TRUTH[name]
    profile = profiled(CORPUS / name, tmp_path)
    found = ops(profile.inputs("all")).collect()
    operators = found.filter(pl.col("kind") == "op")
    assert (operators.height, operators["call_count"].sum(), operators["self_cpu_ns"].sum()) == (
        truth["op_names"],
        truth["calls"],
        truth["self_ns_total"],
    )
    rows = operators.select("name", "call_count", "total_cpu_ns", "self_cpu_ns")
    assert {row[0]: row for row in rows.rows()}.items() >= {row[0]: tuple(row) for row in truth["top_self"]}.items()
    assert found["self_device_ns"].sum() == profile.chains.select(pl.col("device_ns").sum()).collect().item()


@needs_shared
def test_rms_norm(tmp_path: Path) -> None:
    profile = profiled(NEURON / "rms_naive" / "capture", tmp_path)
    found = by_name(ops(profile.inputs("all")), "self_device_ns", "execution_count", "self_device_ratio")
    assert found["aten::mul"] == (1_164_500, 3, pytest.approx(0.494, abs=0.001))
    assert sum(row[0] for row in found.values()) == 2_355_000
    assert sum(row[1] for row in found.values()) == 6
