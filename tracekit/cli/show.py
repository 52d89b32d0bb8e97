"""``tracekit show METRIC PATH``: one metric as a table; every metric is a sub-command."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import click

from tracekit.cli.findings import print_findings
from tracekit.cli.given import Given, path_argument
from tracekit.cli.output import NO_HEADINGS, chosen_scope, console, emit, format_option, scope_options
from tracekit.metrics import METRICS
from tracekit.metrics.base import Metric, Option, OptionValue

_EPILOG = """\b
Examples:
  tracekit show ops capture/
  tracekit show gaps runs/ --longer-than 100us --format csv
  tracekit show devices trace.json.gz --all
"""
_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def parse_duration(value: str | int) -> int:
    """``100us``, ``1.5ms``: a number and a unit, as whole nanoseconds.

    Raises:
        BadParameter: if it is neither that nor a whole number (of nanoseconds).
    """
    text = str(value).strip()
    number = text.rstrip("nuµms")
    try:
        return int(Decimal(number) * _UNITS[text[len(number) :] or "ns"])
    except (InvalidOperation, KeyError) as error:
        raise click.BadParameter(f"{text!r} is not a duration such as 100us") from error


class _Metrics(click.Group):
    """One sub-command per metric."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(METRICS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return metric_command(METRICS[cmd_name]) if cmd_name in METRICS else None


def metric_command(metric: Metric) -> click.Command:
    """The command that shows a metric, with a flag for each of its options."""

    def run(
        given: Given,
        step: int | None,
        everything: bool,
        form: str | None,
        output: Path | None,
        limit: int,
        **options: OptionValue,
    ) -> None:
        profile = given.open()
        frame = profile.metric(metric.name, scope=chosen_scope(step, everything), **options).collect(engine="streaming")
        if metric.sort_by:
            frame = frame.sort(metric.sort_by, descending=True, maintain_order=True)
        if metric.name == "advice" and form in (None, "table") and output is None:
            print_findings(console(), frame, limit=limit or None, evidence=True)
            return
        headings = {"group": str(options["by"])} if options.get("by") else NO_HEADINGS
        emit(
            frame,
            metric.table,
            form,
            output,
            columns=metric.screen,
            limit=limit or None,
            more="--limit 0",
            headings=headings,
        )

    decorated: Callable[..., object] = run
    for option in metric.options:
        decorated = _flag(option)(decorated)
    decorated = click.option("--limit", default=30, show_default=True, help="Rows on screen; 0 shows all.")(decorated)
    decorated = path_argument(scope_options(format_option(decorated)))
    columns = "\n".join(f"  {c.name}: {c.doc}" for c in metric.table.columns)
    return click.command(metric.name, help=metric.doc, epilog=f"\b\nColumns:\n{columns}\n")(decorated)


def _flag(option: Option) -> Callable[[Callable[..., object]], Callable[..., object]]:
    kind: Any = str
    if option.is_duration:
        kind = parse_duration
    elif option.choices:
        kind = click.Choice(option.choices)
    elif isinstance(option.default, bool):
        return click.option(f"--{option.name.replace('_', '-')}", option.name, is_flag=True, help=option.doc)
    elif isinstance(option.default, int):
        kind = int
    return click.option(
        f"--{option.name.replace('_', '-')}",
        option.name,
        type=kind,
        default=option.default,
        show_default=option.default is not None,
        help=option.doc,
    )


@click.group(cls=_Metrics, epilog=_EPILOG)
def command() -> None:
    """Show one metric of PATH as a table.

    PATH is an archive, a stored profile, or raw input.
    """
