"""Worker processes for large traces, started as plain subprocesses so that any main program can have them.

What they are asked and answer stands in ``_chrome_wire``.
"""

from __future__ import annotations

import gc
import os
import queue
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Protocol

import msgspec
import pyarrow as pa

from tracekit.sources._chrome_piece import Piece, bracketed, read_piece
from tracekit.sources._chrome_result import Result
from tracekit.sources._chrome_wire import ask

_CODE = "import sys; sys.path[:] = sys.argv[2:]; from tracekit.sources._chrome_wire import main; main(int(sys.argv[1]))"


_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # One allocator that keeps what it has, instead of three: a worker stays about 15 MB smaller and faults less.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(96 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(96 << 20),
}


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
        # Bytes that have to be handed over are kept until they are read: fewer of them at a time.
        self.in_flight = count + 2 if descriptor is None else 2 * count + 2
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
                    with suppress(OSError):
                        pipe.close()
            process.wait()
        self._threads.shutdown()

    def submit(self, piece: Piece, body: bytes | None) -> Future[Result]:
        """See ``Pool.submit``."""
        return self._threads.submit(self._run, piece, body)

    def _run(self, piece: Piece, body: bytes | None) -> Result:
        process = self._idle.get()
        try:
            if process.stdin is None or process.stdout is None:
                raise EOFError
            return ask(process.stdin, process.stdout, piece, body)
        except (OSError, EOFError, ValueError, msgspec.DecodeError, pa.ArrowInvalid):
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
        env=_ENVIRONMENT | os.environ,
    )
