"""docs/capture.md names what the code has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path

import click
import pytest

from capture import checks, host, manifest
from capture.cli import cli
from capture.options import Options

REPOSITORY = Path(__file__).resolve().parents[2]
TEXT = (REPOSITORY / "docs" / "capture.md").read_text()


def test_every_finding_is_explained() -> None:
    source = Path(checks.__file__).read_text()
    codes = set(re.findall(r'"((?:[a-z]+-)+[a-z]+|killed|incomplete)"', source))
    assert len(codes) > 15
    assert [code for code in sorted(codes) if f"`{code}`" not in TEXT] == []


def test_every_section_and_field_of_the_manifest_is_listed(make_manifest: Callable[..., manifest.Manifest]) -> None:
    made = make_manifest(host=host.host_section(), process=host.rank_section(None))
    made.start_clock()
    named = [*asdict(made), *made.host, *made.process, *made.clock, *host.neuron_versions()]
    assert [name for name in named if f"`{name}`" not in TEXT] == []
    assert [name for name in named if f"``{name}``" not in str(manifest.__doc__)] == []


@pytest.mark.parametrize("page", ["docs/capture.md", *(f"capture/examples/{n}.py" for n in ("rmsnorm", "unchanged"))])
def test_commands_in_the_text_exist(page: str) -> None:
    """Every tracekit-capture command shown parses: its sub-command and options are there."""
    lines = re.findall(r"tracekit-capture ([a-z]+ [^`\n(]*)", (REPOSITORY / page).read_text())
    assert lines
    for line in lines:
        words = shlex.split(line.split("  ")[0].split("#")[0].replace("[--json]", "--json"))
        command = cli.commands[words[0]]
        known = {
            option for p in command.params if isinstance(p, click.Option) for option in (*p.opts, *p.secondary_opts)
        }
        before_script = words[1 : next((n for n, w in enumerate(words) if w.endswith(".py")), len(words))]
        assert {word for word in before_script if word.startswith("-")} <= known, line


def test_options_are_documented_where_they_are_defined() -> None:
    assert [entry.name for entry in fields(Options) if f"    {entry.name}: " not in str(Options.__doc__)] == []
