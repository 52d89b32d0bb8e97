"""The command line: one file per command; the only place that prints, exits and shows progress.

Exit codes: 0 done; 1 the input, the archive or the query is at fault (one line says what, where and what
to do); 2 wrong usage. ``tracekit gate`` exits 1 when a limit is exceeded, ``tracekit analyze`` 1 when
nothing in the capture has a time, ``tracekit doctor`` 1 when a capture needs care and 2 when it is unusable.
"""

from __future__ import annotations

import importlib
import sys
from typing import cast

import click

from tracekit._version import __version__
from tracekit.cli.pipe import outlive_reader
from tracekit.errors import VERIFY_HINT, TracekitError, damage

COMMANDS = {
    "analyze": "Answer where the time went (the main command).",
    "info": "Show what a capture or a profile holds.",
    "show": "Show one metric as a table.",
    "artifacts": "List NEFF, NTFF and trace files, and what is wrong with them.",
    "chains": "Show where the chains from operator to hardware break.",
    "chain": "Draw one chain.",
    "diff": "Compare two profiles.",
    "gate": "Fail when one profile is worse than another.",
    "baseline": "Keep a profile's measures in a small file.",
    "doctor": "Check whether a capture is fit to be analysed.",
    "report": "Write one self-contained HTML file.",
    "export": "Write a profile for Perfetto, Chrome, a database or a table tool.",
    "ingest": "Store captures as a profile in an archive.",
    "batch": "Store many captures, in parallel or on a cluster.",
    "query": "Ask an archive in SQL, or interactively.",
    "trend": "Follow a measure over runs, and find where it stepped.",
    "archive": "List, check, label and remove the profiles of an archive.",
}
"""Command → help line; the module ``tracekit.cli.<command>`` exports ``command`` and is loaded when it is run."""


class _Group(click.Group):
    """A group whose commands are imported when they are needed, so that ``--help`` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"tracekit.cli.{cmd_name.replace('-', '_')}")
        return cast(click.Command, module.command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


_EPILOG = """\b
Examples:
  tracekit analyze capture/                 answer for a fresh capture
  tracekit ingest capture/ -o runs/         keep it in an archive
  tracekit show gaps runs/ --by cause       one metric
\b
Shell completion (bash; also zsh_source, fish_source):
  eval "$(_TRACEKIT_COMPLETE=bash_source tracekit)"
"""


@click.group(
    cls=_Group, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80}
)
@click.version_option(__version__, prog_name="tracekit")
def cli() -> None:
    """Find out where the time goes when PyTorch runs on AWS Trainium."""


def main() -> None:
    """Run the command line; errors a user can cause become one line and exit code 1."""
    outlive_reader()
    try:
        cli.main(prog_name="tracekit", standalone_mode=False)
    except click.exceptions.Exit as leaving:
        sys.exit(leaving.exit_code)
    except click.Abort:
        _fail("interrupted", "", 130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except TracekitError as error:
        _fail(error.problem if not error.args else str(error.args[0]), error.hint, 1)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _fail(f"{place}{error.strerror or error}", "", 1)
    except Exception as error:
        problem = damage(error)
        if problem is None:
            raise
        _fail(f"a stored file is damaged: {problem}", VERIFY_HINT, 1)


def _fail(problem: str, hint: str, code: int) -> None:
    from tracekit.cli.output import printable

    message = printable(problem).rstrip(".")
    click.echo(f"tracekit: {message}" + (f"; {printable(hint)}" if hint else ""), err=True)
    sys.exit(code)
