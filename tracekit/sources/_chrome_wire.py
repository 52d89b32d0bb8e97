"""What goes between the reader and its worker processes, and the worker's side of it.

A message is its header's length (8 bytes, little endian), the header as MessagePack, and what the header announces.
A worker inherits the open file, or is sent the bytes of each piece.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import IO

import msgspec
import pyarrow as pa

from tracekit.sources._chrome_events import Loss, Report
from tracekit.sources._chrome_piece import Piece, read_piece
from tracekit.sources._chrome_result import Mark, Result, ThreadFact


class Header(msgspec.Struct, array_like=True):
    """Everything of a ``Result`` but its batches, and how long those are as Arrow IPC streams."""

    start: int
    state: str
    stop: int
    event_count: int
    marks: list[Mark]
    threads: list[ThreadFact]
    counts: list[tuple[str, str | None, int]]
    losses: list[Loss]
    labels: list[tuple[int, int, str | None, str | None]]
    lengths: list[int]


class Task(msgspec.Struct, array_like=True):
    """A piece to read; its bytes follow, or the worker reads them from the file."""

    piece: Piece
    is_sent: bool


def main(descriptor: int) -> None:
    """Serve pieces on standard input and output until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    pa.set_cpu_count(1)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    space = bytearray(0)
    while True:
        try:
            task = msgspec.msgpack.decode(_receive(requests), type=Task)
            size = task.piece.stop - task.piece.start
            if len(space) < size + 2:
                space = bytearray(size + 2)
            with memoryview(space)[: size + 2] as buffer:
                _load(buffer, task, requests, descriptor)
                answer(answers, read_piece(buffer, task.piece))
        except EOFError:
            return


def _load(buffer: memoryview, task: Task, requests: IO[bytes], descriptor: int) -> None:
    """Put the bytes of a piece between brackets."""
    inner = buffer[1:-1]
    buffer[0], buffer[-1] = ord("["), ord("]")
    sent = task.is_sent
    if len(inner) != (requests.readinto(inner) if sent else os.preadv(descriptor, [inner], task.piece.start)):  # type: ignore[attr-defined]
        raise EOFError


def answer(pipe: IO[bytes], result: Result) -> None:
    """Send a result."""
    streams = [_stream(batch) for batch in (result.events, result.flows, result.samples)]
    send(pipe, msgspec.msgpack.encode(_header(result, streams)), *streams)


def ask(requests: IO[bytes], answers: IO[bytes], piece: Piece, body: bytes | None) -> Result:
    """Have a worker read a piece; ``body`` is its bytes if the worker does not read the file itself."""
    send(requests, msgspec.msgpack.encode(Task(piece, body is not None)), body or b"")
    header = msgspec.msgpack.decode(_receive(answers), type=Header)
    events, flows, samples = (_batch(_exactly(answers, n)) if n else None for n in header.lengths)
    report = Report(
        {loss.code: loss for loss in header.losses}, {(pid, tid): (p, t) for pid, tid, p, t in header.labels}
    )
    return Result(
        header.start,
        header.state,
        header.stop,
        header.event_count,
        events,
        flows,
        samples,
        header.marks,
        header.threads,
        header.counts,
        report,
    )


def send(pipe: IO[bytes], header: bytes, *bodies: bytes | pa.Buffer) -> None:
    pipe.write(len(header).to_bytes(8, "little") + header)
    for body in bodies:
        pipe.write(body)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes:
    return _exactly(pipe, int.from_bytes(_exactly(pipe, 8), "little"))


def _exactly(pipe: IO[bytes], length: int) -> bytes:
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError
    return data


def _batch(data: bytes) -> pa.RecordBatch:
    return pa.ipc.open_stream(pa.py_buffer(data)).read_next_batch()


def _stream(batch: pa.RecordBatch | None) -> pa.Buffer:
    if batch is None:
        return pa.py_buffer(b"")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _header(result: Result, streams: list[pa.Buffer]) -> Header:
    return Header(
        result.start,
        result.state,
        result.stop,
        result.event_count,
        result.marks,
        result.threads,
        result.counts,
        list(result.report.losses.values()),
        [(pid, tid, p, t) for (pid, tid), (p, t) in result.report.labels.items()],
        [stream.size for stream in streams],
    )
