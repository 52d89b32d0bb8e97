"""Make benchmark traces: a real one with torch.profiler, and replicas of it as large as asked.

    python benchmarks/make_trace.py .cache/t100.json                    # records (needs torch), about 120 MB
    python benchmarks/make_trace.py .cache/t1g.json --from .cache/t100.json --size 1.09e9
    python benchmarks/make_trace.py .cache/t1g.json.gz --from .cache/t1g.json --gzip

A replica repeats the event array with the time of every copy shifted behind the last, so times stay rising and
nothing but the size changes. The file around the array (its header) is kept byte for byte.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path

from isal import igzip

_TIME = re.compile(rb'("ts": )(\d+)')
_EVENTS = b'"traceEvents": ['


def record(path: Path, size: float) -> None:
    """Record training steps of a small transformer until the trace has at least ``size`` bytes."""
    steps = 2
    while True:
        _record_steps(path, steps)
        got = path.stat().st_size
        if got >= size:
            return
        steps = int(steps * size / got * 1.02) + 1


def _record_steps(path: Path, steps: int) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.manual_seed(0)
    torch.set_num_threads(2)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    data = torch.randn(4, 16, 64)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=True) as profiler:
        for _ in range(steps):
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()
            profiler.step()
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(made))
        made.replace(path)


def replicate(source: Path, path: Path, size: float) -> None:
    """Write ``source``'s events again and again, shifted in time, until ``size`` bytes are reached."""
    text = source.read_bytes()
    head_end = text.index(_EVENTS) + len(_EVENTS)
    tail_start = text.rindex(b"]", 0, text.rindex(b'"traceName"'))
    body = text[head_end:tail_start].rstrip()
    times = [int(m[2]) for m in _TIME.finditer(body)]
    span = max(times) - min(times) + 1
    del times
    with path.open("wb") as out:
        out.write(text[:head_end])
        copy = 0
        while copy == 0 or out.tell() + len(body) / 2 < size:
            if copy:
                out.write(b",")
            out.write(_shifted(body, span * copy) if copy else body)
            copy += 1
        out.write(b"\n  ]" + text[tail_start + 1 :])


def _shifted(body: bytes, shift: int) -> bytes:
    return _TIME.sub(lambda m: m[1] + b"%d" % (int(m[2]) + shift), body)


def compress(source: Path, path: Path) -> None:
    """Gzip ``source`` as one member."""
    with source.open("rb") as src, igzip.open(path, "wb", compresslevel=2) as out:
        while block := src.read(1 << 22):
            out.write(block)


def main() -> None:
    """Parse the command line and make one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="file to write")
    parser.add_argument("--size", type=float, default=121e6, help="least size in bytes (default 121e6)")
    parser.add_argument("--from", dest="source", type=Path, help="replicate (or gzip) this trace, record none")
    parser.add_argument("--gzip", action="store_true", help="gzip --from to the path")
    args = parser.parse_args()
    args.path.parent.mkdir(parents=True, exist_ok=True)
    if args.gzip:
        compress(args.source, args.path)
    elif args.source:
        replicate(args.source, args.path, args.size)
    else:
        record(args.path, args.size)
    print(f"{args.path}: {args.path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
