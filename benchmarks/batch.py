"""Measure ``tracekit batch`` on a synthetic archive: throughput against one file at a time, kills, and queries.

    python benchmarks/batch.py .cache/batch --count 1000 --corrupt 20 --kills 10

Makes ``--count`` gzipped traces of a training loop on GPUs (operators, runtime calls and kernels with arguments;
1 to 13 MB of JSON, sizes spread evenly on a logarithmic scale; a kernel is slower from one build on), ``--corrupt``
of them broken. Prints MB of JSON per second of one file at a time and of the batch, their ratio, what a query of one
operator reads and takes, and whether an archive made with ``--kills`` kills is the same as the clean one. On a shared
machine compare processor seconds and ratios, not wall seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from isal import igzip

OPS = (
    "aten::mm",
    "aten::addmm",
    "aten::layer_norm",
    "aten::gelu",
    "aten::softmax",
    "aten::bmm",
    "aten::add",
    "aten::mul",
)
BUILDS = 20
SLOWER_FROM = 13
RANKS = 8


def make(root: Path, count: int, corrupt: int, scale: float) -> int:
    """Write the captures and ``list.txt``; bytes of JSON in all."""
    chance = random.Random(1)
    bodies = [body(chance, int(scale * 1_600 * 12 ** (i / 15)), slow) for slow in (False, True) for i in range(16)]
    lines, total = [], 0
    broken = set(random.Random(2).sample(range(count), corrupt))
    for i in range(count):
        build = i * BUILDS // count
        text = header(i) + bodies[i % 16 + 16 * (build >= SLOWER_FROM)]
        path = root / f"build{build:02}" / f"run{i:04}_rank{i % RANKS}" / "trace.json.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        packed = igzip.compress(text, compresslevel=1)
        if i in broken:
            packed = [b"", packed[:200], os.urandom(4_000), b"{}", packed[:9] + os.urandom(2_000)][i % 5]
        else:
            total += len(text)
        path.write_bytes(packed)
        os.utime(path, (1_700_000_000, 1_700_000_000))
        lines.append(f"{path.relative_to(root)}\tcommit=b{build:02}\tinstance=i{i % 4}")
    (root / "list.txt").write_text("\n".join(lines) + "\n")
    return total


def header(i: int) -> bytes:
    base = 1_767_225_600_000_000_000 + i * 3_600 * 10**9
    facts = {
        "schemaVersion": 1,
        "distributedInfo": {"rank": i % RANKS, "world_size": RANKS},
        "baseTimeNanoseconds": base,
    }
    return json.dumps(facts)[:-1].encode() + b', "traceEvents": ['


def body(chance: random.Random, launches: int, slow: bool) -> bytes:
    """Eight steps with ``launches`` operators in all, each with a runtime call and a kernel."""
    events = []
    clock = 0.0
    per_step = launches // 8
    for step in range(8):
        begun = clock
        for n in range(per_step):
            ident = step * per_step + n + 1
            op = OPS[ident % len(OPS)]
            took = chance.uniform(8, 40)
            kernel = chance.uniform(4, 90) * (1.25 if slow and op == "aten::mm" else 1)
            shapes = [[chance.randrange(1, 4096), 1024], [1024, 4096]]
            args = {"External id": ident, "Record function id": 0, "Ev Idx": ident, "Input Dims": shapes}
            same = {"ph": "X", "pid": 4242, "tid": 4242}
            launch = {"External id": ident, "cbid": 211, "correlation": ident}
            work = {"External id": ident, "device": 0, "context": 1, "stream": 7, "correlation": ident}
            work |= {"registers per thread": 168, "grid": [64, 4, 1], "block": [256, 1, 1], "warps per SM": 12.5}
            name = f"sm90_xmma_{op[6:]}_f32_tn_n_tilesize128x128"
            at = round(clock + 9, 3)
            events += [
                {**same, "cat": "cpu_op", "name": op, "ts": round(clock, 3), "dur": round(took, 3), "args": args},
                {**same, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": round(clock + 2, 3), "dur": 4.1}
                | {"args": launch},
                {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": name, "ts": at, "dur": round(kernel, 3)}
                | {"args": work},
            ]
            clock += max(took, kernel) + chance.uniform(0, 10)
        mark = {"ph": "X", "pid": 4242, "tid": 4242, "cat": "user_annotation", "name": f"ProfilerStep#{step}"}
        events.append(mark | {"ts": begun, "dur": clock - begun})
    return b",\n".join(json.dumps(e).encode() for e in events) + b"]}"


SINGLE = (
    "import sys, time, resource, tracekit\n"
    "tracekit.ingest([sys.argv[2]], sys.argv[1])\n"
    "begun, used = time.perf_counter(), time.process_time()\n"
    "for path in sys.argv[3:]: tracekit.ingest([path], sys.argv[1])\n"
    "print(time.perf_counter() - begun, time.process_time() - used)\n"
)


def single(root: Path, work: Path) -> tuple[float, float]:
    """MB of JSON per second, and per processor second, of one file at a time in one warm process."""
    paths = [p for p in sorted(root.rglob("trace.json.gz"))[::37] if intact(p)][:24]
    size = sum(len(igzip.decompress(p.read_bytes())) for p in paths[1:])
    shutil.rmtree(work, ignore_errors=True)
    out = subprocess.check_output([sys.executable, "-c", SINGLE, work, *paths], text=True)
    wall, used = map(float, out.split())
    return size / 1e6 / wall, size / 1e6 / used


def intact(path: Path) -> bool:
    return path.stat().st_size > 20_000


def batch(root: Path, archive: Path, *more: str) -> tuple[float, float]:
    """Wall and processor seconds of one batch."""
    command = [sys.executable, "-m", "tracekit", "batch", f"@{root / 'list.txt'}", "-o", str(archive), *more]
    command += ["--results", f"{archive}.json"]
    begun, used = time.perf_counter(), children()
    subprocess.run(command, check=False)
    return time.perf_counter() - begun, children() - used


def children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def killed(root: Path, archive: Path, kills: int, whole_s: float) -> None:
    """Start the batch and kill its process group at a random moment, ``kills`` times; then let it finish."""
    chance = random.Random(3)
    for _ in range(kills):
        command = [sys.executable, "-m", "tracekit", "batch", f"@{root / 'list.txt'}", "-o", str(archive)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            process.wait(chance.uniform(2, max(4, 2 * whole_s / (kills + 1))))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        print(f"  killed with {len(list(archive.glob('profile=*')))} profiles")
    batch(root, archive)


def same(a: Path, b: Path) -> bool:
    names = {p.relative_to(a) for p in a.glob("profile=*/*")}
    return names == {p.relative_to(b) for p in b.glob("profile=*/*")} and all(
        (a / n).read_bytes() == (b / n).read_bytes() for n in names
    )


QUERY = (
    "import sys, time, resource, tracekit\n"
    "archive = tracekit.open(sys.argv[1])\n"
    "sql = sys.argv[2]\n"
    "from tracekit.query import collect\n"
    "def io(): return sum(int(l.split()[1]) for l in open('/proc/self/io') if l.startswith('rchar'))\n"
    "for turn in ('cold', 'warm', 'again')[: 1 if ' gaps ' in sql else 3]:\n"
    "    begun, before = time.perf_counter(), io()\n"
    "    rows = collect(archive.query(sql))\n"
    "    print(turn, round(time.perf_counter() - begun, 2), 's', io() - before, 'bytes read', rows.rows()[:3])\n"
    "print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, 'MiB')\n"
)
SCAN = (
    "SELECT COUNT(*) AS n, QUANTILE_CONT(end_ns - start_ns, 0.95) AS p95_ns FROM events "
    "WHERE name = 'aten::mm' AND lane = 'dispatch'"
)


def queries(archive: Path) -> None:
    stored = sum(p.stat().st_size for p in archive.glob("profile=*/*"))
    print(f"archive: {stored / 1e6:.1f} MB in {len(list(archive.glob('profile=*')))} profiles")
    from tracekit.query import named_queries

    for name, sql in {
        "p95 without the index": SCAN,
        **{q.name: q.filled({}) for q in named_queries().values()},
    }.items():
        print(f"query {name}:")
        subprocess.run([sys.executable, "-c", QUERY, archive, sql], check=False)


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--corrupt", type=int, default=20)
    parser.add_argument("--scale", type=float, default=1.0, help="of the captures' sizes (default 1)")
    parser.add_argument("--kills", type=int, default=10)
    args = parser.parse_args()
    source, clean = args.folder / "captures", args.folder / "clean"
    shutil.rmtree(args.folder, ignore_errors=True)
    size = make(source, args.count, args.corrupt, args.scale) / 1e6
    print(f"{args.count} captures, {args.corrupt} corrupt, {size:.0f} MB of JSON")
    wall_rate, used_rate = single(source, args.folder / "single")
    wall, used = batch(source, clean)
    print(f"one at a time: {wall_rate:.1f} MB/s, {used_rate:.1f} MB per processor second")
    print(f"batch: {size / wall:.1f} MB/s, {size / used:.1f} MB per processor second, {wall:.0f} s")
    print(f"ratio: {size / wall / wall_rate:.2f} of wall, {size / used / used_rate:.2f} of processor time")
    again, _ = batch(source, clean)
    print(f"nothing to do: {again:.1f} s")
    queries(clean)
    if args.kills:
        killed(source, args.folder / "killed", args.kills, wall)
        print(f"the same archive after {args.kills} kills: {same(clean, args.folder / 'killed')}")


if __name__ == "__main__":
    main()
