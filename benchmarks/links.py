"""Measure linking: does its time grow linearly, is it quicker than reading, is its memory bounded?

    python benchmarks/links.py                     # 10 k, 100 k and 1 M events, a tenth of them executions
    python benchmarks/links.py --events 1000000 --gpu

Makes a capture of one process (trace.json and Neuron Explorer's system table; with --gpu a CUDA trace, in which no call
has an External id), ingests it in a process of its own and
reads how long reading and linking took from the ingest's own progress; then links the stored events again in
another process, to see what linking alone needs in memory. Nothing is compared with a limit here: machines differ.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from tracekit import links
from tracekit.archive import scan
from tracekit.ingestion import ingest

PER_EXECUTION = 10
"""Events of one execution: two operators, call, stream event, submit, three stages, two physical cores."""
_BASE_NS = 1_796_052_700_000_000_000
_BASE_HEADER_NS = 1_790_857_026_000_000_000
_SEQUENCE = 1 << 48
_PERIOD_NS = 400_000


_IDS = '"External id": %'
_LAUNCH = _IDS + ', "nrt_sequence_id": %'
_NEURON = (
    ("cpu_op", "aten::linear", "4242", 0, 60, '"Record function id": %'),
    ("cpu_op", "aten::mm", "4242", 10, 40, _IDS),
    ("privateuse1_runtime", "aten::mm", "4242", 15, 20, _LAUNCH),
    ("privateuse1_driver", "aten::mm", "0", 34, 300, _LAUNCH),
)
_GPU = (
    *(("cpu_op", f"aten::outer_{depth}", "4242", depth, 90 - 2 * depth, '"Ev Idx": %') for depth in range(7)),
    ("cpu_op", "aten::mm", "4242", 10, 40, _IDS),
    ("cuda_runtime", "cudaLaunchKernel", "4242", 15, 20, '"correlation": %'),
    ("kernel", "gemm", "7", 40, 30, '"correlation": %, "device": 0, "stream": 7'),
)
"""Category, name, tid, start and length in µs, args with ``%`` for External id or correlation, then sequence number."""


def make(folder: Path, executions: int, *, gpu: bool) -> None:
    """Write a capture of ``executions`` executions: a trace.json and, for Neuron, an Explorer export."""
    number = pl.int_range(executions, eager=True).alias("n").to_frame()
    capture = folder / "i-0123456789abcdef0_pid_4242" / "1796052700000000000"
    capture.mkdir(parents=True)
    (capture / "trace.json").write_text(_trace(number, _GPU if gpu else _NEURON))
    if not gpu:
        (folder / "explorer").mkdir()
        _system(number).write_parquet(folder / "explorer" / "SystemProfileEvents.parquet")


def _trace(number: pl.DataFrame, events: Sequence[tuple[str, str, str, int, int, str]]) -> str:
    """Some events per execution, one per line, in order of time."""
    start_us = (_BASE_NS - _BASE_HEADER_NS) // 1000 + pl.col("n") * (_PERIOD_NS // 1000)
    lines = []
    for category, name, thread, shift, length, args in events:
        head = f'"ph": "X", "cat": "{category}", "name": "{name}", "pid": 4242, "tid": {thread}, "dur": {length}.125'
        values = [start_us + shift, pl.col("n") + 1, pl.lit(_SEQUENCE) + pl.col("n")][: 1 + args.count("%")]
        text = _filled('{"ts": %.250, ' + head + ', "args": {' + args + "}}", *values)
        lines.append(text.alias(f"{category}{shift}"))
    rows = number.select(lines).select(pl.concat_str(pl.all(), separator=",\n"))
    header = json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": _BASE_HEADER_NS})[:-1]
    return f'{header}, "traceEvents": [\n' + ",\n".join(rows.to_series()) + "\n]}\n"


def _system(number: pl.DataFrame) -> pl.DataFrame:
    """Six rows per execution, as Neuron Explorer exports them."""
    execution = '"exec_id": %, "model_id": "10000000000000005219"'
    submit = '"nrta_seq_id": %, "model_id": "10000000000000005219"'
    rows = (
        ("nrta_execute_schedule", "neuron_rt", None, 35_000, 4_000, submit, _SEQUENCE),
        ("kbl_exec_pre", "neuron_rt", None, 39_500, 4_500, execution, 1),
        ("kbl_exec_wait", "neuron_rt", None, 44_500, 280_000, execution, 1),
        ("kbl_exec_post", "neuron_rt", None, 325_000, 2_500, execution, 1),
        ("nc_exec_running", "neuron_hw", 4, 52_000, 264_000, execution, 1),
        ("nc_exec_running", "neuron_hw", 5, 52_300, 263_400, execution, 1),
    )
    start = pl.lit(_BASE_NS) + pl.col("n") * _PERIOD_NS
    parts = [
        number.select(
            name=pl.lit(name),
            start_ts=start + shift,
            end_ts=start + shift + length,
            trace_event_source=pl.lit(source),
            instance_id=pl.lit("i-0123456789abcdef0"),
            process_id=pl.lit(4242, pl.Int64),
            thread_id=pl.lit(4249, pl.Int64),
            nc_idx=pl.lit(0, pl.Int64),
            pcore_idx=pl.lit(core, pl.Int64),
            extra_attributes_json=_filled("{" + attributes + "}", pl.col("n") + first),
        )
        for name, source, core, shift, length, attributes, first in rows
    ]
    return pl.concat(parts).sort("start_ts").with_row_index("id").cast({"id": pl.Int64})


def _filled(template: str, *values: pl.Expr) -> pl.Expr:
    """``template`` with each ``%`` replaced by a value."""
    first, *rest = template.split("%")
    pieces = [part for value, text in zip(values, rest, strict=True) for part in (value, pl.lit(text))]
    return pl.concat_str(pl.lit(first), *pieces)


def peak_mb() -> int:
    """Largest resident memory of this process so far (Linux: of this program, not of the one that started it)."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (text for text in status.read_text().splitlines() if text.startswith("VmHWM"))
        return int(line.split()[1]) // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def measure_ingest(source: Path, archive: Path) -> dict[str, float]:
    """Seconds of reading and of linking inside one ingest."""
    began = time.perf_counter()
    linking = began

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal linking
        if stage == "link" and linking == began:
            linking = time.perf_counter()

    result = ingest([source], archive, progress=progress)
    ended = time.perf_counter()
    return {"events": result.event_count, "read": linking - began, "link": ended - linking, "rss": peak_mb()}


def measure_links(stored: Path) -> dict[str, float]:
    """Seconds and memory of linking stored events, and how much was linked."""
    frames = {name: scan([stored], name) for name in ("events", "flows", "sessions")}
    before, began = peak_mb(), time.perf_counter()
    linked = links.build(frames["events"], frames["flows"], frames["sessions"])
    seconds = time.perf_counter() - began
    complete = int(linked.chains["complete"].sum())
    return {"seconds": seconds, "grown": peak_mb() - before, "links": linked.links.height, "complete": complete}


def measure(executions: int, *, gpu: bool) -> tuple[dict[str, float], dict[str, float]]:
    """Both measurements, each in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        source, archive = Path(folder) / "capture", Path(folder) / "archive"
        make(source, executions, gpu=gpu)
        fresh = multiprocessing.get_context("spawn")
        with fresh.Pool(1, maxtasksperchild=1) as pool:
            ingested = pool.apply(measure_ingest, (source, archive))
        (stored,) = archive.glob("profile=*")
        with fresh.Pool(1, maxtasksperchild=1) as pool:
            linked = pool.apply(measure_links, (stored,))
    return ingested, linked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true", help="a CUDA trace instead of a Neuron capture")
    parser.add_argument("--events", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    print("   events   complete chains   read s   clock+link s   link alone s   µs/event   grown MB   ingest peak MB")
    asked = parser.parse_args()
    for events in asked.events:
        ingested, linked = measure(events // PER_EXECUTION, gpu=asked.gpu)
        per_event = linked["seconds"] / ingested["events"] * 1e6
        print(
            f"{ingested['events']:>9,}{linked['complete']:>18,}{ingested['read']:>9.2f}{ingested['link']:>15.2f}"
            f"{linked['seconds']:>15.2f}{per_event:>11.2f}{linked['grown']:>11,}{ingested['rss']:>17,}"
        )


if __name__ == "__main__":
    main()
