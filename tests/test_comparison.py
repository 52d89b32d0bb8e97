from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import tracekit
from tests.shared_data import NEURON, SAMPLES, needs_shared
from tracekit import baseline, gate
from tracekit.comparison import Comparison, diff
from tracekit.errors import ArchiveError
from tracekit.sides import MEASURES, SIDE_OPS, Side, side


def compared(a: Path, b: Path, archive: Path, scope: str = "steps") -> Comparison:
    sides = []
    for path in (a, b):
        profile = tracekit.open(tracekit.ingest([path], archive).path)
        assert isinstance(profile, tracekit.Profile)
        sides.append(side(profile.id, profile.inputs(scope)))
    return diff(*sides)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("archive")


def assert_parts_sum(found: Comparison) -> None:
    change = {row["measure"]: row["change"] for row in found.totals.iter_rows(named=True)}
    assert found.ops["device_change_ns"].sum() == pytest.approx(change["device_time"], abs=1e-3)
    assert found.ops["host_change_ns"].sum() == pytest.approx(change["host_self_time"], abs=1e-3)
    causes = sum(v for k, v in change.items() if k.startswith("gap."))
    assert causes == pytest.approx(change["gap"], abs=1e-3)
    parts = sum(change[p] for p in ("device_only", "host_only", "both", "neither"))
    assert parts == pytest.approx(change["window"], abs=1e-3)


@needs_shared
def test_rmsnorm_six_executions_become_one(archive: Path) -> None:
    found = compared(NEURON / "rms_naive" / "capture", NEURON / "rms_fused" / "capture", archive)
    executions, device = found.total("executions"), found.total("device_time")
    assert (executions["a"], executions["b"], executions["verdict"]) == (6, 1, "changed")
    assert (device["a"], device["b"]) == (2_355_000, 403_300)
    assert round(100 * float(str(device["change_ratio"])), 1) == -82.9
    assert device["verdict"] == "unproven", "one sample proves nothing"
    (replaced,) = found.replaced.to_dicts()
    assert replaced["a_names"].count("aten::mul") == 3 and len(replaced["a_names"]) == 6
    assert replaced["b_names"] == ["aten::_fused_rms_norm"]
    status = dict(found.ops.select("name", "status").iter_rows())
    assert status["aten::rsqrt"] == "removed" and status["aten::_fused_rms_norm"] == "added"
    assert_parts_sum(found)


@pytest.mark.parametrize("name", ["neuron/train_small/capture", "neuron/rms_naive/capture", "cpu/train"])
def test_a_profile_against_itself_is_zero_everywhere(archive: Path, name: str) -> None:
    found = compared(SAMPLES / name, SAMPLES / name, archive)
    assert found.totals["change"].to_list() == [0.0] * found.totals.height
    assert set(found.totals["verdict"]) == {"same"}
    assert set(found.ops["status"]) == {"same"}
    assert found.replaced.is_empty()


@pytest.mark.parametrize("pair", [("rms_naive", "rms_compiled"), ("train_small", "rms_naive")])
def test_parts_sum_to_the_whole_change(archive: Path, pair: tuple[str, str]) -> None:
    a, b = (SAMPLES / "neuron" / name / "capture" for name in pair)
    assert_parts_sum(compared(a, b, archive, scope="all"))
    assert_parts_sum(compared(a, b, archive))


def test_gate_fails_one_way_and_passes_the_other(archive: Path) -> None:
    naive, fused = (SAMPLES / "neuron" / name / "capture" for name in ("rms_naive", "rms_fused"))
    limits = [gate.parse_limit("device_time", "+5%"), gate.parse_limit("executions", "+0")]
    worse = gate.check(compared(fused, naive, archive), limits)
    better = gate.check(compared(naive, fused, archive), limits)
    assert [o.passed for o in worse] == [False, False]
    assert [o.passed for o in better] == [True, True]
    assert "403,300 → 2,355,000 ns (+483.9 %)" in worse[0].reason
    assert gate.junit(worse, "x").count("<failure") == 2
    assert gate.github_annotations(worse).startswith("::error title=tracekit gate::device_time")
    assert "%25" in gate.github_annotations(worse)


def test_a_baseline_stands_for_the_profile(archive: Path, tmp_path: Path) -> None:
    profile = tracekit.open(tracekit.ingest([SAMPLES / "neuron" / "train_small" / "capture"], archive).path)
    assert isinstance(profile, tracekit.Profile)
    measured = side(profile.id, profile.inputs())
    path = tmp_path / "baseline.json"
    path.write_text(baseline.to_json(measured), encoding="utf-8")
    assert baseline.is_baseline(path)
    found = diff(baseline.from_json(path), measured)
    assert set(found.totals["verdict"]) == {"same"} and found.replaced.is_empty()
    assert path.stat().st_size < 100_000


@pytest.mark.parametrize(
    "content", ["{}", '{"format": "tracekit-baseline", "version": 99}', "no json", '{"format": 1}']
)
def test_damaged_baselines_are_explained(tmp_path: Path, content: str) -> None:
    (tmp_path / "b.json").write_text(content)
    with pytest.raises(ArchiveError) as caught:
        baseline.from_json(tmp_path / "b.json")
    assert "b.json" in str(caught.value) and "\n" not in str(caught.value)


def test_comparison_as_json_round_trips(archive: Path) -> None:
    from tracekit.cli.sides import as_json, markdown

    naive, fused = (SAMPLES / "neuron" / name / "capture" for name in ("rms_naive", "rms_fused"))
    found = compared(naive, fused, archive)
    document = json.loads(as_json(found))
    assert {r["measure"] for r in document["totals"]} == set(found.totals["measure"])
    text = markdown(found)
    assert "6 → 1" in text and "2,355.0 → 403.3 µs (−82.9 %)" in text
    assert found.ops.filter(pl.col("status") == "added").height == 1


def test_the_public_function_takes_profiles_and_paths(archive: Path) -> None:
    stored = [tracekit.ingest([SAMPLES / "neuron" / n / "capture"], archive).path for n in ("rms_naive", "rms_fused")]
    found = tracekit.diff(stored[0], tracekit.Profile(stored[1]))
    assert found.total("executions")["change"] == -5


def test_a_comparison_shows_itself_in_a_line_and_in_a_notebook() -> None:
    def of(name: str, device: float) -> Side:
        samples = {measure: [0.0] for measure in MEASURES} | {"device_time": [device], "executions": [6.0]}
        sequence = pl.DataFrame(schema={"name": pl.String, "device_ns": pl.Int64})
        return Side(name, samples, SIDE_OPS.empty(), sequence, per_step=False)

    compared = diff(of("<a>", 2_355_000.0), of("b", 403_300.0))
    assert repr(compared) == "<Comparison <a> → b: device_time 2,355.0 → 403.3 µs, executions 6 → 6>"
    shown = compared._repr_html_()
    assert "&lt;a&gt; → b" in shown and "<a>" not in shown
    assert "<th>device_time, µs</th><td>2,355.0</td><td>403.3</td><td>−1,951.7</td><td>−82.9 %</td>" in shown
    assert "gap.runtime" not in shown
    same = diff(of("a", 0.0), of("b", 0.0))
    assert "executions 6 → 6" in repr(same)
