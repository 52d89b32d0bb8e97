"""Run the real command as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def tracekit(*args: str | Path, cache: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run ``tracekit ARGS``; ``cache`` is given as the user's cache directory."""
    environment = {**os.environ, **env} | ({"XDG_CACHE_HOME": str(cache)} if cache else {})
    command = [sys.executable, "-m", "tracekit", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)


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
