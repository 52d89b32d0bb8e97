"""``tracekit chains`` and ``tracekit chain`` on the shared captures: for people and for machines."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner, Result

from tests.shared_data import CORPUS, NEURON, SAMPLES, needs_shared
from tracekit.cli import chain, chains
from tracekit.ingestion import ingest
from tracekit.links.summary import CHAIN_SUMMARY
from tracekit.profile import Profile

pytestmark = needs_shared


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    return Profile(ingest([NEURON / "train_2proc"], tmp_path_factory.mktemp("archive")).path)


def run(command: object, *arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(command, [str(a) for a in arguments])  # type: ignore[arg-type]
    assert result.exit_code == code, result.output
    if "json" not in arguments and not code:
        assert all(len(line) <= 80 for line in result.output.splitlines()), result.output
    return result


def truth() -> list[dict[str, object]]:
    processes = json.loads((NEURON / "train_2proc/truth.json").read_text())["processes"]
    return [c for p in processes for c in p["chains"]]


def test_chains_count_and_measure_every_operator_as_the_truth_does(train: Profile):
    rows = json.loads(run(chains.command, train.path, "--format", "json").output)
    assert list(rows[0]) == list(CHAIN_SUMMARY.names)
    by_op = {row["name"]: row for row in rows}
    known = truth()
    assert set(by_op) == {c["op"] for c in known}
    for op, row in by_op.items():
        mine = [c for c in known if c["op"] == op]
        ran = [c for c in mine if c["hardware"]]
        assert row["chain_count"] == len(mine)
        assert row["complete_count"] == len(ran)
        assert row["missing_hardware_count"] == len(mine) - len(ran)
        assert row["to_submit_total_ns"] == sum(c["submit"][0] - c["dispatch"][0] for c in mine)  # type: ignore[index]
        assert row["to_start_total_ns"] == sum(c["hardware"][0] - c["submit"][0] for c in ran)  # type: ignore[index]
        device = pl.Series([c["device_ns"] for c in ran])
        assert row["device_total_ns"] == device.sum()
        assert row["device_median_ns"] == int(device.median())  # type: ignore[arg-type]
        assert row["device_p95_ns"] == device.quantile(0.95, "nearest")


def test_chains_on_screen_say_where_chains_break(train: Profile):
    text = run(chains.command, train.path).output
    assert text.startswith("150 chains, 144 complete; 6 without hardware")
    for op in ("aten::mm", "aten::_softmax"):
        assert op in text
    assert "submit" in text and "start" in text and "device" in text
    assert "more operators" in run(chains.command, train.path, "--limit", 2).output


def test_a_step_holds_its_own_chains(train: Profile):
    every = json.loads(run(chains.command, train.path, "--format", "json").output)
    one = json.loads(run(chains.command, train.path, "--step", 4, "--format", "json").output)
    assert 0 < sum(r["chain_count"] for r in one) < sum(r["chain_count"] for r in every)


def test_one_chain_is_drawn_with_its_hops(train: Profile):
    text = run(chain.command, train.path, "--op", "aten::mul").output
    wanted = ("aten::mul (call)", "stream 0", "nrta_execute_schedule", "kbl_exec_wait", "nc_exec_running core 4")
    assert [w for w in wanted if w not in text] == []
    assert "dispatch → submit" in text
    assert "complete" in text


def test_one_chain_as_json_is_exact(train: Profile):
    document = json.loads(run(chain.command, train.path, "--op", "aten::mm", "--nth", 5, "--format", "json").output)
    made = document["chain"]
    (wanted,) = [c for c in truth() if c["dispatch"][0] == made["dispatch_start_ns"] and c["op"] == "aten::mm"]  # type: ignore[index]
    assert [made["submit_ns"], made["submit_end_ns"]] == wanted["submit"]
    assert [made["hardware_start_ns"], made["hardware_end_ns"]] == wanted["hardware"]
    ids = [e["event_id"] for e in document["events"]]
    assert len(ids) == len(set(ids)) == 9
    assert all(e["from_id"] in ids and e["to_id"] in ids for e in document["links"])
    assert {e["lane"] for e in document["events"]} == {"dispatch", "stream", "runtime", "hardware"}
    spans = {h["hop"]: h["length_ns"] for h in document["hops"]}
    assert spans["hardware"] == wanted["device_ns"]


def test_every_event_of_a_chain_finds_it(train: Profile):
    document = json.loads(run(chain.command, train.path, "--op", "aten::relu", "--format", "json").output)
    for event in document["events"]:
        again = json.loads(run(chain.command, train.path, event["event_id"], "--format", "json").output)
        assert again == document


def test_the_cut_tail_is_drawn_as_far_as_it_goes(train: Profile):
    cut = train.chains.filter(~pl.col("complete")).collect().row(0, named=True)
    text = run(chain.command, train.path, cut["dispatch_id"]).output
    assert "without an event of lane hardware" in text
    assert "the capture has no event of lane hardware for it" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--op", "aten::mul_"], "aten::mul", id="near-name"),
        pytest.param(["--op", "aten::mul", "--nth", "999"], "--nth 1 to", id="too-many"),
        pytest.param(["77777777777777"], "no event 77777777777777", id="no-such-event"),
    ],
)
def test_what_is_not_there_is_said_with_a_way_on(train: Profile, arguments: list[str], words: str):
    result = run(chain.command, train.path, *arguments, code=1)
    assert words in str(result.exception)


def test_an_event_that_launched_nothing_is_said_so(train: Profile):
    read = train.events.filter(pl.col("name") == "nrt_tensor_read").collect()["event_id"][0]
    assert "launched nothing" in str(run(chain.command, train.path, read, code=1).exception)


def test_usage_needs_an_event_or_an_operator(train: Profile):
    run(chain.command, train.path, code=2)
    run(chain.command, train.path, 5, "--op", "aten::mm", code=2)


def test_a_gpu_trace_is_drawn_too(tmp_path: Path):
    path = ingest([CORPUS / "hta/mi250_minitoy.json.gz"], tmp_path).path
    assert "complete" in run(chains.command, path).output
    text = run(chain.command, path, "--op", "aten::mm").output
    assert "hip" in text
    assert "hardware" in text


def test_a_trace_without_a_device_has_no_chains(tmp_path: Path):
    path = ingest([CORPUS / "hta/cpu_only.json.gz"], tmp_path).path
    assert run(chains.command, path).output.startswith("no chains")
    assert "has no chains" in str(run(chain.command, path, "--op", "aten::mm", code=1).exception)


def test_chains_of_the_framework_alone_say_so_and_what_to_do(tmp_path: Path):
    shutil.copytree(SAMPLES / "neuron" / "rms_naive" / "capture", tmp_path / "in")
    next((tmp_path / "in").rglob("ntrace.pb")).unlink()
    path = ingest([tmp_path / "in"], tmp_path / "archive").path
    text = " ".join(run(chains.command, path).output.split())
    assert text.startswith("6 chains, and none reaches the hardware")
    assert "hop" not in text and "complete" not in text
    assert "ProfileMode.RUNTIME" in text


def test_chains_of_compiled_graphs_alone_say_what_to_do(tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "neff_10000000000000005219_vnc_0.neff").write_bytes(b"graph")
    text = " ".join(run(chains.command, ingest([tmp_path / "in"], tmp_path / "archive").path).output.split())
    assert text.startswith("no chains")
    assert "capture with torch.profiler and NeuronConfig" in text
