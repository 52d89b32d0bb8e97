from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import tracekit
from tests.metrics.build import Row, chain, event, inputs, window
from tests.shared_data import NEURON, SAMPLES, needs_shared
from tracekit.fusing import PATTERNS
from tracekit.metrics.advice import ADVICE, advice
from tracekit.metrics.base import Inputs


def executions(names: list[str], *, length: int = 10, gap: int = 5, core: int = 0) -> Inputs:
    rows, chains = [], []
    for n, name in enumerate(names):
        start = n * (length + gap)
        rows.append(event("execution", start, start + length, name="kernel", core_index=core))
        chains.append(
            chain(
                [n + 1],
                name=f"aten::{name}",
                core_index=core,
                device_ns=length,
                hardware_start_ns=start,
                hardware_end_ns=start + length,
            )
        )
    return inputs(rows, chains)


def found(given: Inputs, finding: str = "fuse") -> list[Row]:
    return advice(given).filter(pl.col("finding") == finding).collect().to_dicts()


RMS = ["mul", "mean", "add", "rsqrt", "mul", "mul"]


def test_rmsnorm_is_recognised_and_named() -> None:
    (row,) = found(executions(["mm", *RMS, "mm"]))
    assert row["subject"] == "RMSNorm"
    assert "torch.nn.functional.rms_norm" in row["next_step"]
    assert row["evidence_ids"] == [2, 3, 4, 5, 6, 7]
    assert row["at_stake_ns"] == 6 * 10 + 5 * 5 - 10, "span of the run minus its longest execution"


def test_rmsnorm_without_weight_is_told_apart() -> None:
    (row,) = found(executions([*RMS[:5], "mm"]))
    assert row["subject"] == "RMSNorm without weight"


def test_repeated_patterns_are_counted_once_each() -> None:
    (row,) = found(executions(RMS * 3))
    assert row["occurrence_count"] == 3 and len(row["evidence_ids"]) == 12


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.name)
def test_every_pattern_is_found(pattern) -> None:
    names = [sorted(names)[0].removeprefix("aten::") for names in pattern.operators]
    assert pattern.name in {row["subject"] for row in found(executions(["mm", *names, "mm"]))}


def test_other_orders_and_other_cores_are_not_a_pattern() -> None:
    assert not found(executions(["mean", "mul", "add", "mul", "rsqrt", "mul"]))
    first = executions(RMS[:3])
    assert not found(first)


def test_elementwise_runs_are_for_the_compiler_unless_a_pattern_explains_them() -> None:
    (row,) = found(executions(["mm", "add", "mul", "tanh", "sub", "mm"]), "compile")
    assert row["evidence_ids"] == [2, 3, 4, 5]
    assert not found(executions(["mm", "add", "mul", "tanh", "mm"]), "compile")
    assert not found(executions(["mm", *RMS, "mm"]), "compile")
    assert not found(executions(["add", "mul", "mm", "tanh", "sub"]), "compile")


def in_a_row(names: list[str], gaps: list[int], between: list[Row], scope: list[Row] | None = None) -> Inputs:
    """Executions of 10 µs, each after its gap, with other events beside them."""
    starts = [10_000 * n + sum(gaps[: n + 1]) for n in range(len(names))]
    rows = [event("execution", start, start + 10_000, name="kernel") for start in starts]
    chains = [
        chain([n + 1], name=f"aten::{name}", device_ns=10_000, hardware_start_ns=start, hardware_end_ns=start + 10_000)
        for n, (name, start) in enumerate(zip(names, starts, strict=True))
    ]
    return inputs([*rows, *between], chains, scope)


ELEMENTWISE = ["add", "mul", "tanh", "sub", "add"]


def test_a_run_claims_no_more_of_a_gap_than_a_launch() -> None:
    (row,) = found(in_a_row(ELEMENTWISE, [0, 2_000, 90_000_000, 0, 5_000], []), "compile")
    assert row["at_stake_ns"] == 4 * 10_000 + 2_000 + 100_000 + 5_000
    (row,) = found(in_a_row(RMS, [90_000_000, 0, 90_000_000, 0, 0, 0], []), "fuse")
    assert row["at_stake_ns"] == 5 * 10_000 + 100_000


@pytest.mark.parametrize(
    ("between", "is_cut"),
    [
        pytest.param(event("collective", 20_500, 21_000), True, id="collective"),
        pytest.param(event("copy_in", 20_500, 21_000), True, id="copy-on-device"),
        pytest.param(event("copy_in", 20_500, 21_000, lane="runtime"), True, id="copy-by-host"),
        pytest.param(event("collective", 20_500, 21_000, core_index=1), False, id="other-core"),
        pytest.param(event("collective", 10_500, 19_000), False, id="hidden-behind-an-execution"),
    ],
)
def test_runs_end_where_data_moves_in_a_gap(between: Row, is_cut: bool) -> None:
    gaps = [0, 0, 2_000, 0, 0, 0]
    assert bool(found(in_a_row(RMS, gaps, [between]), "fuse")) is not is_cut
    assert bool(found(in_a_row(ELEMENTWISE, gaps[:5], [between]), "compile")) is not is_cut


def test_runs_end_with_their_step() -> None:
    scope = [window(0, 20_000, 1), window(20_000, 60_000, 2)]
    assert not found(in_a_row(RMS, [0] * 6, [], scope), "fuse")
    assert not found(in_a_row(ELEMENTWISE, [0] * 5, [], scope), "compile")


def test_the_costliest_runs_are_the_evidence() -> None:
    gaps = [0] * 4 + [0] + [0, 50_000, 0, 0]
    (row,) = found(in_a_row([*ELEMENTWISE[:4], "mm", *ELEMENTWISE[:4]], gaps, []), "compile")
    assert row["evidence_ids"] == [6, 7, 8, 9, 1, 2, 3, 4]


def test_no_finding_without_evidence() -> None:
    given = inputs([event("op", 0, 10, lane="dispatch")])
    assert advice(given).collect().is_empty()
    assert advice(inputs([])).collect().schema == ADVICE.schema


def late(wait: int) -> Inputs:
    """Two executions, the second of which is dispatched ``wait`` after the first ended."""
    rows = [event("execution", 0, 100), event("execution", 100 + wait, 200 + wait)]
    start, submitted = 100 + wait - 2, 100 + wait - 1
    ran = {"device_ns": 100, "dispatch_end_ns": submitted}
    chains = [
        chain([1], dispatch_start_ns=0, submit_ns=0, hardware_start_ns=0, hardware_end_ns=100, **ran),
        chain(
            [2],
            dispatch_start_ns=start,
            submit_ns=submitted,
            hardware_start_ns=100 + wait,
            hardware_end_ns=200 + wait,
            **ran,
        ),
    ]
    return inputs(rows, chains, [window(0, 200 + wait, 1)])


def test_host_bound_needs_a_tenth_of_the_time() -> None:
    (row,) = found(late(100), "host_bound")
    assert row["at_stake_ns"] == 99 and row["evidence_ids"] == [2]
    assert not found(late(10), "host_bound")


def test_synchronisation_counts_only_before_more_work_is_dispatched() -> None:
    rows = [event("execution", 0, 10), event("op", 90, 95, lane="dispatch"), event("sync", 5, 60, lane="dispatch")]
    (row,) = found(inputs(rows, scope=[window(0, 100, 1)]), "synchronisation")
    assert row["at_stake_ns"] == 50
    ending = [event("execution", 0, 10), event("op", 1, 5, lane="dispatch"), event("sync", 5, 60, lane="dispatch")]
    assert not found(inputs(ending, scope=[window(0, 100, 1)]), "synchronisation")


def test_recompilation_inside_the_window() -> None:
    rows = [event("op", 0, 100, lane="dispatch"), event("model", 40, 60, lane="runtime", name="model_load")]
    (row,) = found(inputs(rows), "recompilation")
    assert row["at_stake_ns"] == 20 and row["evidence_ids"] == [2] and row["evidence"] == "event"


@needs_shared
def test_naive_rmsnorm_and_not_the_fused_one(cache: Path) -> None:
    for name, expected in (("rms_naive", ["RMSNorm"]), ("rms_fused", []), ("rms_compiled", [])):
        profile = tracekit.open(NEURON / name / "capture", cache=cache)
        assert isinstance(profile, tracekit.Profile)
        rows = profile.metric("advice").collect()
        assert rows.filter(pl.col("finding") == "fuse")["subject"].to_list() == expected


def test_scalar_copied_in_each_step_of_the_sample(cache: Path) -> None:
    profile = tracekit.open(SAMPLES / "neuron" / "train_small" / "capture", cache=cache)
    assert isinstance(profile, tracekit.Profile)
    rows = profile.metric("advice").collect()
    scalar = rows.filter(pl.col("finding") == "scalar_copy")
    assert scalar.height
    ids = scalar["evidence_ids"].explode()
    moved = profile.events.filter(pl.col("event_id").is_in(ids.implode())).select("moved_bytes").collect()
    assert moved["moved_bytes"].max() <= 16  # type: ignore[operator]
    assert rows["at_stake_ns"].min() > 0  # type: ignore[operator]


def test_the_rank_that_comes_late_is_named(cache: Path) -> None:
    profile = tracekit.open(SAMPLES / "neuron" / "train_small" / "capture", cache=cache)
    assert isinstance(profile, tracekit.Profile)
    rows = profile.metric("advice").filter(pl.col("finding") == "straggler").collect()
    late = profile.metric("collectives").filter(pl.col("late_ns") > 0).collect()
    assert rows["subject"].to_list() == [f"rank {r}" for r in late["rank"]] == ["rank 1"]
    assert rows["at_stake_ns"].to_list() == late["late_ns"].to_list()


@pytest.mark.parametrize(("late", "expected"), [((60, 20), [0]), ((60, 60), []), ((5, 60), [1])])
def test_ranks_that_take_turns_are_no_stragglers(
    late: tuple[int, int], expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tracekit.metrics import advice as module

    arrivals = [event("collective", 0, 500, session=f"s{rank}") for rank in range(2)]
    scope = [window(0, 1_000, 1, f"s{rank}") for rank in range(2)]
    rows = [{"session": f"s{r}", "rank": r, "late_ns": ns, "last_count": 1} for r, ns in enumerate(late)]
    monkeypatch.setattr(module, "_result", lambda *_: pl.LazyFrame(rows))
    found = module._stragglers(inputs(arrivals, scope=scope), pl.LazyFrame()).collect()
    assert found["subject"].to_list() == [f"rank {rank}" for rank in expected]
