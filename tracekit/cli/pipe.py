"""Output into a pipe whose reader leaves early, as ``| head`` does."""

from __future__ import annotations

import io
import os
import sys


class _Unread(io.FileIO):
    """A file descriptor that drops what nobody reads any more."""

    def write(self, block: object, /) -> int:
        try:
            return super().write(block)  # type: ignore[arg-type]
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return memoryview(block).nbytes  # type: ignore[arg-type]


def outlive_reader() -> None:
    """Let a command finish, with its own exit code, when whoever reads its output has seen enough.

    A verdict (``tracekit gate … | head``) stays what it is, and under ``set -o pipefail`` a reader that
    leaves is no failure. Streams that are not files (a notebook's) and terminals stay as they are.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        is_file = isinstance(stream, io.TextIOWrapper) and isinstance(stream.buffer, io.BufferedWriter | io.FileIO)
        if not is_file or stream.isatty():
            continue
        stream.flush()
        raw = _Unread(stream.fileno(), "wb", closefd=False)
        buffered = io.BufferedWriter(raw)
        setattr(sys, name, io.TextIOWrapper(buffered, stream.encoding, stream.errors, line_buffering=name == "stderr"))
