from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import assert_fits, tracekit
from tests.shared_data import SAMPLES
from tracekit.cli import COMMANDS, cli

FUSED = SAMPLES / "neuron" / "rms_fused" / "capture"
NAIVE = SAMPLES / "neuron" / "rms_naive" / "capture"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    result = tracekit(name, "--help")
    assert result.returncode == 0, result.stderr
    assert "Examples:" in result.stdout or "Commands:" in result.stdout
    assert_fits(result.stdout)


def test_commands_are_all_there() -> None:
    import click

    context = click.Context(cli)
    assert all(cli.get_command(context, name) for name in COMMANDS)
    assert cli.get_command(context, "nonsense") is None


def test_completion_names_commands() -> None:
    result = tracekit(_TRACEKIT_COMPLETE="bash_complete", COMP_WORDS="tracekit an", COMP_CWORD="1")
    assert "analyze" in result.stdout


def on_terminal(*args: str | Path, **env: str) -> str:
    """Output of a command on a real terminal."""
    main, side = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", **env}
    process = subprocess.Popen(
        [sys.executable, "-m", "tracekit", *map(str, args)], stdout=side, stderr=side, env=environment
    )
    os.close(side)
    text = b""
    while True:
        try:
            block = os.read(main, 65536)
        except OSError:
            break
        if not block:
            break
        text += block
    process.wait()
    os.close(main)
    return text.decode()


def test_colours_on_a_terminal_only_and_not_with_no_color(cache: Path) -> None:
    coloured = on_terminal("analyze", FUSED, "--cache", cache)
    assert "\x1b[1m" in coloured
    plain = on_terminal("analyze", FUSED, "--cache", cache, NO_COLOR="1")
    assert "\x1b[3" not in plain


@pytest.mark.parametrize(
    ("args", "unbuffered", "code"),
    [
        (("analyze", FUSED), "", 0),
        (("analyze", FUSED), "1", 0),
        (("analyze", FUSED, "--format", "json"), "", 0),
        (("gate", FUSED, NAIVE, "--max-device-time", "+5%", "--github"), "", 1),
        (("gate", NAIVE, FUSED, "--max-device-time", "+5%", "--github"), "", 0),
        (("analyze", "--nonsense", FUSED), "", 2),
    ],
    ids=["table", "unbuffered", "json", "gate fails", "gate passes", "usage"],
)
def test_a_reader_that_leaves_changes_no_exit_code(
    args: tuple[str | Path, ...], unbuffered: str, code: int, cache: Path
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    result = subprocess.run(
        [sys.executable, "-m", "tracekit", *map(str, args), "--cache", str(cache)],
        stdout=writing, stderr=subprocess.PIPE, text=True, check=False,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )  # fmt: skip
    os.close(writing)
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    assert "BrokenPipe" not in result.stderr
