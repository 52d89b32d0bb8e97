"""Measure ``tracekit ingest`` against the floor and the peers, each as a whole process.

    python benchmarks/ingest.py .cache/t100.json .cache/t1g.json
    python benchmarks/ingest.py .cache/t100.json --peers .cache/peers     # venvs made with --install

Prints, per file and route: wall seconds, processor seconds of the whole process tree, peak memory of the tree (its
proportional set size, in which pages that processes share count once; in brackets the sum of resident sizes, in which
they count once per process), MB of JSON per second, and how many times longer it took than tracekit in the same run.
Every route runs ``--repeat`` times; the best of each is shown. On a shared machine compare processor seconds and
ratios, not wall seconds.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
PEERS = {"hta": "HolisticTraceAnalysis", "tracelens": "git+https://github.com/AMD-AGI/TraceLens"}
"""Peer → what pip installs it from. (``tracelens`` on PyPI is something else.)"""

CODE = {
    "read": "import sys\nwith open(sys.argv[1], 'rb', 0) as f:\n while f.read(1 << 22): pass",
    "gunzip": ("import sys\nfrom isal import igzip\nwith igzip.open(sys.argv[1]) as f:\n while f.read(1 << 22): pass"),
    "simdjson": "import sys, simdjson\nsimdjson.Parser().parse(open(sys.argv[1], 'rb').read())",
    "msgspec": (
        "import sys, gc, msgspec\ngc.disable()\n"
        "class T(msgspec.Struct): traceEvents: list[msgspec.Raw]\n"
        "msgspec.json.decode(open(sys.argv[1], 'rb').read(), type=T)"
    ),
    "polars": (
        "import sys, polars as pl\n"
        "args = pl.Struct({'External id': pl.Int64, 'correlation': pl.Int64, 'stream': pl.Int64})\n"
        "event = pl.Struct({'ph': pl.String, 'cat': pl.String, 'name': pl.String, 'pid': pl.String,"
        " 'tid': pl.String, 'ts': pl.Float64, 'dur': pl.Float64, 'args': args})\n"
        "pl.read_json(sys.argv[1], schema={'traceEvents': pl.List(event)})"
    ),
    "hta": (
        "import sys, os, tempfile\n"
        "from hta.common.trace import Trace\n"
        "t = Trace(trace_files={0: os.path.abspath(sys.argv[1])}, trace_dir='')\n"
        "t.parse_traces(use_multiprocessing=False)\n"
    ),
    "tracelens": ("import sys\nfrom TraceLens import TreePerfAnalyzer\nTreePerfAnalyzer.from_file(sys.argv[1])\n"),
}


@dataclass
class Cost:
    """What one run took."""

    wall_s: float
    processor_s: float
    peak_mb: float
    resident_mb: float


class Watch(threading.Thread):
    """Samples memory and processor time of a process and its descendants."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._root = psutil.Process(pid)
        self.peak_bytes = 0
        self.resident_bytes = 0
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.1):
            share = resident = 0
            try:
                for process in [self._root, *self._root.children(recursive=True)]:
                    memory = process.memory_full_info()
                    share += memory.pss
                    resident += memory.rss
            except psutil.Error:
                continue
            self.peak_bytes = max(self.peak_bytes, share)
            self.resident_bytes = max(self.resident_bytes, resident)


def measure(command: list[str]) -> Cost | None:
    """Run a command to its end; None if it fails."""
    before, start = os.times(), time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=ROOT)
    watch = Watch(process.pid)
    watch.start()
    _, errors = process.communicate()
    wall = time.perf_counter() - start
    watch.stopped.set()
    watch.join()
    if process.returncode:
        print(f"  failed: {errors.decode(errors='replace').strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(wall, used, watch.peak_bytes / 1e6, watch.resident_bytes / 1e6)


def commands(path: Path, archive: Path, peers: Path | None) -> dict[str, list[str]]:
    """Command per route, in the order of the table."""
    packed = path.suffix == ".gz"
    routes = {"tracekit ingest": [sys.executable, "-m", "tracekit", "ingest", str(path), "-o", str(archive)]}
    routes["floor: read" if not packed else "floor: gunzip (isal)"] = _code("gunzip" if packed else "read", path)
    if not packed:
        routes["floor: simdjson parse"] = _code("simdjson", path)
        routes["floor: msgspec parse"] = _code("msgspec", path)
        routes["polars.read_json"] = _code("polars", path)
    for name in PEERS:
        python = peers / name / "bin" / "python" if peers else None
        if python and python.exists():
            routes[f"{name}, load only"] = [str(python), "-c", CODE[name], str(path)]
    return routes


def _code(name: str, path: Path) -> list[str]:
    return [sys.executable, "-c", CODE[name], str(path)]


def json_bytes(path: Path) -> int:
    """Size of the trace as JSON."""
    if path.suffix != ".gz":
        return path.stat().st_size
    with gzip.open(path) as file:
        return sum(len(block) for block in iter(lambda: file.read(1 << 24), b""))


def table(path: Path, repeat: int, peers: Path | None, only: str) -> None:
    """Measure every route on one file and print the table."""
    size = json_bytes(path)
    best: dict[str, Cost] = {}
    for _ in range(repeat):
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            for name, command in commands(path, Path(folder) / "archive", peers).items():
                if only not in name:
                    continue
                cost = measure(command)
                if cost is None:
                    continue
                known = best.setdefault(name, cost)
                best[name] = Cost(
                    min(known.wall_s, cost.wall_s),
                    min(known.processor_s, cost.processor_s),
                    max(known.peak_mb, cost.peak_mb),
                    max(known.resident_mb, cost.resident_mb),
                )
    print(f"\n{path.name}: {size / 1e6:.0f} MB of JSON, best of {repeat}")
    print(f"{'route':26}{'wall s':>9}{'cpu s':>9}{'peak MB (resident)':>20}{'MB/s':>8}{'× wall':>8}{'× cpu':>8}")
    own = next(iter(best.values()))
    for name, cost in best.items():
        speed = size / 1e6 / cost.wall_s
        ratio, cpu_ratio = cost.wall_s / own.wall_s, cost.processor_s / own.processor_s
        memory = f"{cost.peak_mb:11.0f} ({cost.resident_mb:6.0f})"
        numbers = f"{cost.wall_s:9.2f}{cost.processor_s:9.2f}{memory}{speed:8.0f}{ratio:8.2f}{cpu_ratio:8.2f}"
        print(f"{name:26}{numbers}")


def install(peers: Path) -> None:
    """Make a throw-away environment for each peer; one that cannot be installed is left out."""
    for name, package in PEERS.items():
        folder = peers / name
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        done = subprocess.run([str(folder / "bin" / "pip"), "install", "-q", package], check=False)
        if done.returncode:
            shutil.rmtree(folder)
            print(f"{name}: cannot be installed here")


def main() -> None:
    """Parse the command line and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help="traces")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--peers", type=Path, help="folder with the peers' environments")
    parser.add_argument("--install", action="store_true", help="make them first")
    parser.add_argument("--only", default="", help="part of a route's name")
    args = parser.parse_args()
    if args.install:
        install(args.peers)
    for path in args.paths:
        table(path.resolve(), args.repeat, args.peers.resolve() if args.peers else None, args.only)


if __name__ == "__main__":
    main()
