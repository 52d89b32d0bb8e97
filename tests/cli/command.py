"""Run the command as a user would: the same entry point, in this process so that it is quick."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from tracekit.cli import main


class _Stream(io.TextIOWrapper):
    """Text output that is not a terminal and whose bytes can be read back."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def text(self) -> str:
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode("utf-8")


@contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    with patch.dict(os.environ, changes):
        yield


def tracekit(*args: str | Path, cache: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run ``tracekit ARGS``; ``cache`` is given as the user's cache directory."""
    changes = env | ({"XDG_CACHE_HOME": str(cache)} if cache else {})
    command = ["tracekit", *map(str, args)]
    out, err, code = _Stream(), _Stream(), 0
    with _environment(changes), patch.object(sys, "argv", command), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    return subprocess.CompletedProcess(command, code, out.text(), err.text())


def assert_fits(text: str, width: int = 80) -> None:
    """No line is wider than the terminal."""
    wide = [line for line in text.splitlines() if len(line) > width]
    assert not wide, wide[:3]


def assert_one_line(result: subprocess.CompletedProcess[str], *, code: int = 1) -> None:
    """An error in one line on standard error, without a traceback."""
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert result.stderr.startswith("tracekit: ")
