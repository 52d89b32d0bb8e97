"""``tracekit-capture run``: capture a script, changed or not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from capture import launch
from capture.errors import CaptureError
from capture.options import COMPILE_TIME_VARIABLES, DEFAULT_DIRECTORY, DEVICES, MODES, make_options
from capture.text import paragraph, report_lines

OPTION_NAMES = (
    "wait",
    "warmup",
    "active",
    "repeat",
    "device",
    "modes",
    "capture_enabled_for_nc",
    "max_events_per_nc",
    "neff_cache_dir",
    "precache_node_info",
    "correlate_device_time",
    "record_shapes",
    "with_stack",
    "profile_memory",
    "with_flops",
    "compile_debug",
    "ranks",
)


# What --env-only can translate to the runtime's variables; the others are torch.profiler's.
ENV_ONLY_NAMES = frozenset({"capture_enabled_for_nc", "max_events_per_nc", "compile_debug"})


def parse_labels(labels: tuple[str, ...]) -> dict[str, str]:
    """Labels given as NAME=VALUE."""
    parsed = {}
    for label in labels:
        name, equals, value = label.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{label!r} is not NAME=VALUE", param_hint="--label")
        parsed[name] = value
    return parsed


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is a module, as in python -m.")
@click.option("-o", "--output-dir", type=click.Path(path_type=Path), help="[what the script says, else profiles]")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="Your own label; repeatable.")
@click.option("--whole", is_flag=True, help="Capture all of it, whatever the script does.")
@click.option("--optimizer-steps", is_flag=True, help="Each optimizer step ends a step: the script needs no change.")
@click.option("--wait", type=int, help="Steps without the profiler. [2]")
@click.option("--warmup", type=int, help="Steps under the profiler, thrown away. [1]")
@click.option("--active", type=int, help="Steps recorded. [1]")
@click.option("--repeat", type=int, help="Cycles of the above. [1]")
@click.option("--device", type=click.Choice(DEVICES), help="[auto]")
@click.option("--modes", help=f"Neuron: of {', '.join(MODES)}. [DEVICE,RUNTIME]")
@click.option("--cores", "capture_enabled_for_nc", help='Neuron: NeuronCores to capture, such as "0,2-5". [all]')
@click.option("--max-events", "max_events_per_nc", type=int, help="Neuron: runtime events kept per core.")
@click.option("--neff-cache", "neff_cache_dir", help="Neuron: cache to copy the NEFFs from.")
@click.option("--precache-node-info/--no-precache-node-info", default=None, help="Neuron.")
@click.option("--correlate-device-time/--no-correlate-device-time", default=None, help="Neuron.")
@click.option("--record-shapes/--no-record-shapes", default=None, help="Input shapes. [on]")
@click.option("--with-stack", is_flag=True, default=None, help="Python stacks: costly.")
@click.option("--profile-memory", is_flag=True, default=None, help="Allocations.")
@click.option("--with-flops", is_flag=True, default=None, help="Estimated FLOPs.")
@click.option("--compile-debug", is_flag=True, default=None, help="Names and source lines in newly compiled graphs.")
@click.option("--ranks", help='Ranks to profile, such as "0,4-7". [all]')
@click.option("--env-only", is_flag=True, help="No torch.profiler: only the runtime's NEURON_RT_INSPECT_* variables.")
@click.option(
    "--device-profile",
    type=click.Choice(["off", "model", "session"]),
    default="model",
    show_default=True,
    help="With --env-only: device traces per model, per session, or none.",
)
@click.option(
    "--skip",
    default=3,
    show_default=True,
    help="With --env-only and model: executions of each model to skip as warm-up.",
)
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    script: str,
    arguments: tuple[str, ...],
    is_module: bool,
    output_dir: Path | None,
    labels: tuple[str, ...],
    env_only: bool,
    device_profile: str,
    skip: int,
    **given: Any,
) -> None:
    """Run SCRIPT under capture, then check what it left.

    By steps if SCRIPT uses capture.session(); else the whole of it is one window. Options given here win over those
    in the script. With torchrun: torchrun --nproc-per-node 4 -m capture run SCRIPT.
    """
    target = launch.Target(script, arguments, is_module)
    own_labels = parse_labels(labels)
    if env_only:
        outcome = _run_env_only(target, output_dir or Path(DEFAULT_DIRECTORY), own_labels, device_profile, skip, given)
    else:
        overrides = {name: given[name] for name in OPTION_NAMES if given[name] is not None}
        if "modes" in overrides:
            overrides["modes"] = [mode.strip() for mode in overrides["modes"].split(",") if mode.strip()]
        overrides["labels"] = own_labels
        make_options(overrides)
        unit = "whole" if given["whole"] else "optimizer" if given["optimizer_steps"] else "auto"
        outcome = launch.run_profiled(target, output_dir, overrides, unit)
    _tell(outcome)
    sys.exit(outcome.exit_code or (0 if outcome.report.is_good else 1))


def _tell(outcome: launch.Outcome) -> None:
    click.echo("", err=True)
    for remark in outcome.remark:
        click.echo("\n".join(paragraph("note", remark, indent="")), err=True)
    click.echo("\n".join(report_lines(outcome.report)), err=True)


def _refuse_without_effect(given: dict[str, Any]) -> None:
    unused = {name: value for name, value in given.items() if name not in ENV_ONLY_NAMES}
    names = [name for name, value in unused.items() if (value is not None if name in OPTION_NAMES else value)]
    if names:
        shown = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(names))
        raise CaptureError(
            f"{shown}: without effect together with --env-only, which uses no torch.profiler",
            hint="leave it out, or leave out --env-only",
        )


def _run_env_only(
    target: launch.Target,
    output_dir: Path,
    labels: dict[str, str],
    device_profile: str,
    skip: int,
    given: dict[str, Any],
) -> launch.Outcome:
    """Translate the options to the runtime's variables (vendor: "Neuron Explorer Environment Variables")."""
    _refuse_without_effect(given)
    variables = {
        "NEURON_RT_INSPECT_ENABLE": "1",
        "NEURON_RT_INSPECT_OUTPUT_DIR": str(output_dir.resolve()),
        "NEURON_RT_INSPECT_SYSTEM_PROFILE": "1",
        "NEURON_RT_INSPECT_DEVICE_PROFILE": {"off": "0"}.get(device_profile, device_profile),
    }
    if device_profile == "model" and skip > 0:
        variables["NEURON_RT_INSPECT_DEVICE_PROFILE_NUM_WARMUP"] = str(skip)
    if given["capture_enabled_for_nc"]:
        variables["NEURON_RT_INSPECT_EVENT_FILTER_NC"] = given["capture_enabled_for_nc"]
    if given["max_events_per_nc"]:
        variables["NEURON_RT_INSPECT_SYS_TRACE_MAX_EVENTS_PER_NC"] = str(given["max_events_per_nc"])
    if given["compile_debug"]:
        variables.update(dict.fromkeys(COMPILE_TIME_VARIABLES, "1"))
    for name, value in variables.items():
        click.echo(f"  {name}={value}", err=True)
    modes = ["RUNTIME"] if device_profile == "off" else ["DEVICE", "RUNTIME"]
    return launch.run_with_variables(target, output_dir, variables, labels, modes)
