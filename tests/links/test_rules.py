"""One rule, one small capture."""

from __future__ import annotations

import polars as pl

from tracekit import links, tables
from tracekit.links import Linked

T = 1_796_052_700_000_000_000


class Rows:
    """Writes events by hand; times are ns after a common start, ids are given back."""

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []
        self.flows: list[dict[str, object]] = []

    def add(self, lane: str, kind: str, name: str, start: int, end: int, **columns: object) -> int:
        row = {"event_id": len(self.events) + 1, "session": "s", "is_primary": True, "source": "kineto"}
        row |= {"lane": lane, "kind": kind, "name": name, "start_ns": T + start, "end_ns": T + end}
        self.events.append(row | columns)
        return len(self.events)

    def op(self, name: str, start: int, end: int, **columns: object) -> int:
        return self.add("dispatch", "op", name, start, end, **({"process_id": 1, "thread_id": 1} | columns))

    def call(self, start: int, end: int, name: str = "cudaLaunchKernel", **columns: object) -> int:
        return self.add("runtime", "call", name, start, end, **({"process_id": 1, "thread_id": 1} | columns))

    def kernel(self, start: int, end: int, **columns: object) -> int:
        place = {"process_id": 0, "thread_id": 7, "core_index": 0, "stream_id": 7}
        return self.add("hardware", "execution", "kernel", start, end, **(place | columns))

    def runtime(self, name: str, start: int, end: int, **columns: object) -> int:
        kind = "sync" if name == "kbl_exec_wait" else "call"
        return self.add("runtime", kind, name, start, end, **(_NEURON | columns))

    def running(self, start: int, end: int, core: int = 0, **columns: object) -> int:
        place = {"physical_core": core, "execution_id": 1, "model_id": "9"}
        kind, name = columns.pop("kind", "execution"), columns.pop("name", "nc_exec_running")
        return self.add("hardware", str(kind), str(name), start, end, **(_NEURON | place | columns))

    def flow(self, flow_id: int, phase: str, at: int, *, category: str = "ac2g", thread: tuple[int, int]) -> None:
        self.flows.append(
            {"session": "s", "flow_id": str(flow_id), "category": category, "phase": phase, "at_ns": T + at}
            | {"process_id": thread[0], "thread_id": thread[1], "binds_enclosing": phase == "end"}
        )

    def build(self) -> Linked:
        sessions = tables.SESSIONS.rows([{"session": "s", "path": "s", "process_id": 1}])
        flows = tables.FLOWS.rows(self.flows)
        return links.build(tables.EVENTS.rows(self.events).lazy(), flows.lazy(), sessions.lazy())


_NEURON = {"source": "ntrace", "process_id": 1, "thread_id": 9, "core_index": 0}


def chain_of(linked: Linked, event: int) -> dict[str, object]:
    (found,) = linked.chains.filter(pl.col("hardware_ids").list.contains(event)).to_dicts()
    return found


def test_flow_links_where_no_id_does():
    rows = Rows()
    op = rows.op("aten::mm", 0, 100)
    call, other = rows.call(10, 20), rows.call(30, 40)
    first, second = rows.kernel(50, 60), rows.kernel(60, 70)
    for number, start, end in ((5, 10, 60), (6, 35, 50)):
        rows.flow(number, "start", start, thread=(1, 1))
        rows.flow(number, "end", end, thread=(0, 7))
    linked = rows.build()
    assert (chain_of(linked, first)["launch_id"], chain_of(linked, second)["launch_id"]) == (other, call)
    assert chain_of(linked, first)["dispatch_id"] == op
    assert linked.links.filter(pl.col("to_id") == first)["method"].to_list() == ["flow"]
    assert chain_of(linked, first)["method"] == "enclosure"


def test_forward_backward_arrows_launch_nothing():
    rows = Rows()
    rows.call(10, 20)
    work = rows.kernel(50, 60)
    rows.flow(5, "start", 10, category="fwdbwd", thread=(1, 1))
    rows.flow(5, "end", 50, category="fwdbwd", thread=(0, 7))
    assert chain_of(rows.build(), work)["launch_id"] is None


def test_correlations_that_mean_none_join_nothing():
    rows = Rows()
    for nothing in (0, -1):
        rows.call(10, 20, correlation_id=nothing)
        rows.kernel(50, 60, correlation_id=nothing)
    linked = rows.build()
    assert linked.links.is_empty()
    assert linked.chains.filter(pl.col("hardware_ids").list.len() > 0).height == 2
    assert "unlinked_work" in linked.notes["code"].to_list()


def test_a_graph_launch_has_many_kernels_and_each_its_chain():
    rows = Rows()
    call = rows.call(10, 20, "cudaGraphLaunch", correlation_id=5)
    work = [rows.kernel(30 + 10 * n, 38 + 10 * n, correlation_id=5) for n in range(4)]
    linked = rows.build()
    assert [chain_of(linked, w)["submit_id"] for w in work] == [call] * 4
    assert linked.chains.height == 4


def test_a_launch_without_work_is_a_chain_that_breaks_at_the_hardware():
    rows = Rows()
    done, lost = rows.call(10, 20, correlation_id=5), rows.call(30, 40, "cudaMemcpyAsync", correlation_id=6)
    rows.call(50, 60, "cudaEventRecord", correlation_id=7)
    rows.call(70, 80, "cudaLaunchHostFunc", correlation_id=8)
    rows.kernel(30, 40, correlation_id=5)
    chains = rows.build().chains
    assert chains["submit_id"].to_list() == [done, lost]
    assert chains["missing"].to_list() == [None, "hardware"]
    assert chains["kind"].to_list() == ["execution", "copy"]


def test_processes_that_share_a_trace_keep_their_correlations_apart():
    rows = Rows()
    calls = {p: [rows.call(10 * n + p, 10 * n + 5, process_id=p, correlation_id=n) for n in (1, 2)] for p in (1, 2)}
    calls[1].append(rows.call(40, 45, process_id=1, correlation_id=3))
    calls[2].append(rows.call(50, 55, process_id=2, correlation_id=4))
    work = {
        d: [rows.kernel(100 + 10 * n, 105 + 10 * n, process_id=d, correlation_id=n) for n in (1, 2)] for d in (0, 1)
    }
    work[0].append(rows.kernel(150, 155, process_id=0, correlation_id=3))
    work[1].append(rows.kernel(150, 155, process_id=1, correlation_id=4))
    linked = rows.build()
    for device, process in ((0, 1), (1, 2)):
        assert [chain_of(linked, w)["launch_id"] for w in work[device]] == calls[process]
    assert "ambiguous_links" not in linked.notes["code"].to_list()


def test_external_ids_that_echo_correlations_name_no_operator():
    rows = Rows()
    rows.op("aten::old", 0, 5, external_id=77, thread_id=3)
    op = rows.op("aten::mm", 10, 40, external_id=2)
    rows.call(20, 30, external_id=77, correlation_id=77)
    work = rows.kernel(50, 60, external_id=77, correlation_id=77)
    assert chain_of(rows.build(), work)["dispatch_id"] == op


def test_an_external_id_names_an_operator_that_has_ended():
    rows = Rows()
    op = rows.op("aten::mm", 0, 10, external_id=3)
    call = rows.add("dispatch", "call", "aten::mm", 20, 30, process_id=1, thread_id=5, external_id=3, sequence_id=40)
    stream = rows.add("stream", "call", "aten::mm", 25, 60, process_id=1, stream_id=0, external_id=3, sequence_id=40)
    (chain,) = rows.build().chains.to_dicts()
    assert (chain["dispatch_id"], chain["launch_id"], chain["stream_id"]) == (op, call, stream)
    assert chain["complete"]


def test_work_in_the_framework_trace_of_another_backend_runs_through_its_stream():
    rows = Rows()
    op = rows.op("aten::mm", 0, 30, external_id=3)
    ids = {"external_id": 3, "sequence_id": 40, "correlation_id": 8}
    call = rows.add("dispatch", "call", "simLaunch", 10, 20, process_id=1, thread_id=1, **ids)
    stream = rows.add("stream", "call", "aten::mm", 15, 60, process_id=1, stream_id=2, **ids)
    work = rows.kernel(25, 55, **ids)
    chain = chain_of(rows.build(), work)
    assert (chain["dispatch_id"], chain["launch_id"], chain["stream_id"]) == (op, call, stream)
    assert (chain["submit_id"], chain["submit_ns"]) == (call, T + 10)
    assert (chain["name"], chain["method"], chain["complete"]) == ("aten::mm", "id", True)


def test_work_that_names_its_operator_but_has_no_call_keeps_the_operator():
    rows = Rows()
    op = rows.op("aten::mm", 0, 30, external_id=3)
    rows.call(5, 8, correlation_id=1)
    work = rows.kernel(50, 60, external_id=3, correlation_id=9)
    linked = rows.build()
    chain = chain_of(linked, work)
    assert (chain["dispatch_id"], chain["launch_id"], chain["missing"]) == (op, None, "runtime")
    assert linked.links.filter(pl.col("to_id") == work)["from_id"].to_list() == [op]


def test_a_synchronous_submit_encloses_its_stages():
    rows = Rows()
    submit = rows.runtime("nrt_execute", 0, 100, model_id="9")
    rows.runtime("kbl_exec_pre", 10, 20, execution_id=1, model_id="9")
    wait = rows.runtime("kbl_exec_wait", 20, 80, execution_id=1, model_id="9")
    work = rows.running(30, 70)
    chain = chain_of(rows.build(), work)
    assert (chain["submit_id"], chain["wait_id"], chain["method"]) == (submit, wait, "enclosure")


def test_an_exec_id_that_comes_again_is_another_execution():
    rows = Rows()
    spans = [(0, 50), (1_000, 1_050)]
    waits, works = [], []
    for start, end in spans:
        rows.runtime("kbl_exec_pre", start, start + 5, execution_id=1, model_id="9")
        waits.append(rows.runtime("kbl_exec_wait", start + 5, end, execution_id=1, model_id="9"))
        works.append([rows.running(start + 10, end - 10, core) for core in (0, 1)])
    linked = rows.build()
    assert linked.chains["hardware_ids"].to_list() == works
    assert linked.chains["wait_id"].to_list() == waits
    assert "ambiguous_links" in linked.notes["code"].to_list()


def test_device_time_is_the_union_of_the_physical_cores():
    rows = Rows()
    for core, span in enumerate([(0, 10), (5, 20), (30, 40), (32, 35)]):
        rows.running(*span, core)
    alone = rows.running(0, 7, 0, model_id="other")
    linked = rows.build()
    assert sum(c["device_ns"] for c in linked.chains.to_dicts() if c["model_id"] == "9") == 30
    assert chain_of(linked, alone)["device_ns"] == 7


def test_hardware_without_exec_ids_follows_the_stages_in_order():
    rows = Rows()
    waits, works = [], []
    for n in range(3):
        rows.runtime("kbl_exec_pre", 100 * n, 100 * n + 5, execution_id=n, model_id="9")
        waits.append(rows.runtime("kbl_exec_wait", 100 * n + 5, 100 * n + 60, execution_id=n, model_id="9"))
        works.append([rows.running(100 * n + 10 + c, 100 * n + 50, c, execution_id=None) for c in (0, 1)])
    linked = rows.build()
    assert linked.chains["hardware_ids"].to_list() == works
    assert linked.chains["wait_id"].to_list() == waits
    assert set(linked.chains["method"]) == {"order"}


def test_a_collective_is_a_chain_of_its_own_behind_the_same_submit():
    rows = Rows()
    submit = rows.runtime("nrta_execute_schedule", 0, 4, sequence_id=70, model_id="9")
    rows.runtime("kbl_exec_pre", 5, 9, execution_id=1, model_id="9")
    work = [rows.running(20, 90, core) for core in (0, 1)]
    reduce = [rows.running(60 + core, 80, core, kind="collective", name="cc_running") for core in (0, 1)]
    linked = rows.build()
    first, second = chain_of(linked, work[0]), chain_of(linked, reduce[0])
    assert (first["hardware_ids"], second["hardware_ids"]) == (work, reduce)
    assert (first["kind"], second["kind"]) == ("execution", "collective")
    assert first["submit_id"] == second["submit_id"] == submit
    assert linked.chains.height == 2


def test_a_sequence_number_on_two_launches_is_settled_by_time_and_noted():
    rows = Rows()
    calls = [
        rows.add("dispatch", "call", "aten::mm", at, at + 5, process_id=1, thread_id=1, sequence_id=70)
        for at in (0, 50)
    ]
    submits = [rows.runtime("nrta_execute_schedule", at, at + 4, sequence_id=70) for at in (10, 60)]
    linked = rows.build()
    assert linked.chains["launch_id"].to_list() == calls
    assert linked.chains["submit_id"].to_list() == submits
    (note,) = linked.notes.filter(pl.col("code") == "ambiguous_links")["message"].to_list()
    assert "sequence numbers" in note


def test_runtime_copies_are_no_chains():
    rows = Rows()
    rows.add("runtime", "copy_in", "nrt_tensor_write", 0, 10, **_NEURON)
    assert rows.build().chains.is_empty()


def test_unsigned_ids_link_and_the_largest_is_none() -> None:
    """Ids of 2^63 and above are stored as negative numbers."""
    rows = Rows()
    first, second = rows.call(0, 5, correlation_id=-(2**63)), rows.call(10, 15, correlation_id=-(2**63) + 1)
    work = [rows.kernel(20, 30, correlation_id=-(2**63)), rows.kernel(40, 50, correlation_id=-(2**63) + 1)]
    rows.call(60, 65, name="cudaGetDevice", correlation_id=-1)
    rows.kernel(70, 80, correlation_id=-1)
    made = rows.build().links
    assert {(f, t) for f, t in made.select("from_id", "to_id").rows()} == {(first, work[0]), (second, work[1])}
