"""Worker processes for large traces, started as plain subprocesses so that any main program can have them.

A worker inherits the open file (or is sent the bytes of each piece), reads pieces and sends back Arrow batches.
"""

from __future__ import annotations

import gc
import os
import queue
import signal
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import IO, Protocol

import msgspec
import pyarrow as pa

from tracekit.sources._chrome_events import Loss, Report
from tracekit.sources._chrome_phases import Mark, Result, ThreadFact
from tracekit.sources._chrome_piece import Piece, read_piece

_CODE = (
    "import sys; sys.path[:] = sys.argv[2:]; from tracekit.sources._chrome_worker import main; main(int(sys.argv[1]))"
)


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
    """A piece to read; ``sent`` bytes of it follow, or -1 if the worker reads the file itself."""

    piece: Piece
    sent: int


class Pending(Protocol):
    """A result to wait for."""

    def result(self) -> Result:
        """Wait for it."""


class Pool(Protocol):
    """Something that reads pieces.

    Attributes:
        in_flight: how many pieces to submit ahead.
        reads_itself: whether it reads the file, so that no bytes need be handed over.
    """

    in_flight: int
    reads_itself: bool

    def submit(self, piece: Piece, body: bytes | None) -> Pending:
        """Start on a piece; ``body`` is its bytes, needed unless the pool can read the file itself."""


def bracketed(body: bytes) -> bytes:
    """The bytes of a piece as ``read_piece`` wants them."""
    return b"[%b]" % body


class Inline:
    """Reads pieces in this process, when they are submitted."""

    in_flight = 1
    reads_itself = False

    def submit(self, piece: Piece, body: bytes | None) -> Future[Result]:
        """See ``Pool.submit``."""
        done: Future[Result] = Future()
        collecting = gc.isenabled()
        gc.disable()
        try:
            done.set_result(read_piece(bracketed(body or b""), piece))
        finally:
            if collecting:
                gc.enable()
        return done


class Workers:
    """Reads pieces in other processes; a worker that dies is replaced by reading in this one."""

    def __init__(self, count: int, descriptor: int | None) -> None:
        self.in_flight = 2 * count + 2
        self.reads_itself = descriptor is not None
        self._descriptor = descriptor
        self._threads = ThreadPoolExecutor(count, "tracekit-chrome")
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._started = [_start(descriptor) for _ in range(count)]
        for process in self._started:
            self._idle.put(process)

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(wait=error is None, cancel_futures=True)
        for process in self._started:
            if error is not None:
                process.kill()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            process.wait()
        self._threads.shutdown()

    def submit(self, piece: Piece, body: bytes | None) -> Future[Result]:
        """See ``Pool.submit``."""
        return self._threads.submit(self._run, piece, body)

    def _run(self, piece: Piece, body: bytes | None) -> Result:
        process = self._idle.get()
        try:
            return _ask(process, piece, body)
        except (OSError, EOFError, ValueError, msgspec.DecodeError, pa.ArrowException):
            # Killed, or could not be started: the piece is read here, and the next ones too.
            process.kill()
            if body is None and self._descriptor is not None:
                body = os.pread(self._descriptor, piece.stop - piece.start, piece.start)
            return read_piece(bracketed(body or b""), piece)
        finally:
            self._idle.put(process)


def _start(descriptor: int | None) -> subprocess.Popen[bytes]:
    inherited = () if descriptor is None else (descriptor,)
    command = [sys.executable, "-c", _CODE, str(-1 if descriptor is None else descriptor), *sys.path]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=inherited,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )


def _ask(process: subprocess.Popen[bytes], piece: Piece, body: bytes | None) -> Result:
    if process.stdin is None or process.stdout is None:
        raise EOFError
    _send(process.stdin, msgspec.msgpack.encode(Task(piece, -1 if body is None else len(body))), body or b"")
    header = msgspec.msgpack.decode(_receive(process.stdout), type=Header)
    events, flows, samples = (_batch(_exactly(process.stdout, n)) if n else None for n in header.lengths)
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


def _send(pipe: IO[bytes], header: bytes, *bodies: bytes | pa.Buffer) -> None:
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


def main(descriptor: int) -> None:
    """Serve pieces on standard input and output until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    pa.set_cpu_count(1)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            task = msgspec.msgpack.decode(_receive(requests), type=Task)
            body = _exactly(requests, task.sent) if task.sent >= 0 else b""
        except EOFError:
            return
        piece = task.piece
        if task.sent < 0:
            body = os.pread(descriptor, piece.stop - piece.start, piece.start)
        result = read_piece(bracketed(body), piece)
        del body
        streams = [_stream(batch) for batch in (result.events, result.flows, result.samples)]
        _send(answers, msgspec.msgpack.encode(_header(result, streams)), *streams)


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
