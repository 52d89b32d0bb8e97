"""``tracekit gate A B``: fail when B is worse than A by more than is allowed."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.padding import Padding
from rich.text import Text

from tracekit import gate
from tracekit.cli.output import OutputFile, chosen_scope, console, scope_options
from tracekit.cli.sides import open_side, remarks, replacements
from tracekit.comparison import diff
from tracekit.errors import QueryError

_EPILOG = """\b
Examples:
  tracekit gate baseline.json capture/ --max-device-time +5%
  tracekit gate before/ after/ --max-gap not_dispatched=+10% --junit gate.xml
  tracekit gate baseline.json capture/ --config pyproject.toml
\b
A file holds the limits in a [gate] (or [tool.tracekit.gate]) table:
  [gate]
  device_time = "+5%"
  executions = "+0"
  gap = { not_dispatched = "+10%", total = "+5%" }
Names are those of the options, with or without max.
\b
Exit codes: 0 every limit holds, 1 a limit is exceeded (or the input is at
fault), 2 wrong usage.
"""


@click.command(epilog=_EPILOG)
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option("--max-device-time", metavar="LIMIT", help="Limit of the device time, e.g. +5%, +20us.")
@click.option("--max-host-time", metavar="LIMIT", help="Limit of the host's working time.")
@click.option("--max-window", metavar="LIMIT", help="Limit of the measured time (per step).")
@click.option("--max-executions", metavar="LIMIT", help="Limit of the executions, e.g. +0.")
@click.option("--max-gap", "gaps", multiple=True, metavar="CAUSE=LIMIT", help="Limit of a gap cause (or total=…).")
@click.option(
    "--max", "others", multiple=True, metavar="MEASURE=LIMIT", help="Limit of any measure of `tracekit diff`."
)
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="TOML file with a [gate] table."
)
@click.option("--github", is_flag=True, help="Print GitHub annotations too.")
@click.option("--junit", type=OutputFile(), help="Write a JUnit XML file.")
@scope_options
@click.option("--cache", type=click.Path(path_type=Path), help="Archive for raw input (default: user's cache).")
def command(
    a: Path,
    b: Path,
    gaps: tuple[str, ...],
    others: tuple[str, ...],
    config: Path | None,
    github: bool,
    junit: Path | None,
    step: int | None,
    everything: bool,
    cache: Path | None,
    **limits: str | None,
) -> None:
    """Fail when B is worse than A by more than the limits allow.

    A is the baseline: a capture, a stored profile, or a file of `tracekit baseline`. A limit is a share
    (+5%), an amount of time with its unit (+20us), or a count (+0). Growth beyond it passes only where the
    test of `tracekit diff` finds that chance explains it (p ≥ 0.01); a B without any device work where A has
    some fails.
    """
    try:
        wanted = _limits(limits, gaps, others, config)
        gate.check_names(wanted)
    except QueryError as error:
        raise click.UsageError(str(error)) from error
    if not wanted:
        raise click.UsageError("no limit given: use --max-device-time, --max-executions, --max-gap, --max or --config")
    scope = chosen_scope(step, everything)
    compared = diff(open_side(a, cache, scope), open_side(b, cache, scope))
    outcomes = gate.check(compared, wanted)
    out = console()
    for outcome in outcomes:
        mark, style = ("ok", "green") if outcome.passed else ("FAIL", "bold red")
        out.print(f"{mark:4}", style=style, end=" ")
        out.print(outcome.reason, soft_wrap=True)
    failed = not all(o.passed for o in outcomes)
    for line in [*remarks(compared), *(replacements(compared) if failed else [])]:
        out.print(Padding(Text(line), (0, 0, 0, 5)))
    if github:
        click.echo(gate.github_annotations(outcomes))
    if junit:
        junit.write_text(gate.junit(outcomes, f"{compared.a.name} → {compared.b.name}"), encoding="utf-8")
    sys.exit(1 if failed else 0)


def _limits(
    named: dict[str, str | None], gaps: tuple[str, ...], others: tuple[str, ...], config: Path | None
) -> list[gate.Limit]:
    found = gate.parse_limits(_section(config)) if config else []
    found += [gate.parse_limit(name, text) for name, text in named.items() if text is not None]
    for pair, prefix in [*((g, "gap.") for g in gaps), *((o, "") for o in others)]:
        measure, equals, text = pair.rpartition("=")
        if not equals:
            raise click.UsageError(f"{pair!r} is not NAME=LIMIT")
        found.append(gate.parse_limit(prefix + measure, text))
    return found


def _section(config: Path) -> dict[str, object]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        document = tomllib.loads(config.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise QueryError(f"{config}: not a TOML file: {error}") from error
    section = document.get("gate", document.get("tool", {}).get("tracekit", {}).get("gate"))
    if not isinstance(section, dict) or not section:
        problem = "has no [gate] table" if section is None else "its [gate] table holds no limit"
        raise QueryError(f"{config}: {problem}", hint='write [gate] with device_time = "+5%"')
    return section
