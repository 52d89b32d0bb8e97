"""The vendor's profiling API, in whatever version is installed.

Documented (Neuron SDK 2.31 "Capture profiles with Neuron Explorer"): ``torch_neuronx.profiling`` has
``NeuronConfig(modes, max_events_per_nc, capture_enabled_for_nc, profile_output_dir, neff_cache_dir,
precache_node_info)``, given to ``torch.profiler.profile`` as ``experimental_config``; ``ProfileMode``; and
``NeuronProfiler(config).export_trace`` for ``on_trace_ready``, which puts trace.json beside the runtime's traces.
``correlate_device_time`` is seen in public code. Earlier previews had a ``NeuronProfiler`` with other
arguments and no ``NeuronConfig``: not supported, and said so.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capture.errors import CaptureError
from capture.options import Options

REQUIRED = ("modes", "profile_output_dir")
OPTIONAL = (
    "capture_enabled_for_nc",
    "max_events_per_nc",
    "neff_cache_dir",
    "precache_node_info",
    "correlate_device_time",
)


@dataclass(frozen=True)
class NeuronSetup:
    """What ``torch.profiler.profile`` needs, and what could not be had.

    Args:
        config: goes to ``experimental_config``.
        export: ``NeuronProfiler(config).export_trace``.
        modes: names of the modes in use.
        dropped: options that this version does not have, by name.
    """

    config: object
    export: Callable[[object], object]
    modes: tuple[str, ...]
    dropped: tuple[str, ...]


def build(output_dir: Path, options: Options) -> NeuronSetup:
    """Make the vendor's objects for a capture.

    Options that this version of torch_neuronx does not know are dropped and listed; the modes and the
    output directory are required.

    Raises:
        CaptureError: the API is not there, or refuses what is required.
    """
    api = _import_api()
    modes, unknown_modes = _modes(api.ProfileMode, options.modes)
    wanted = {name: getattr(options, name) for name in OPTIONAL if getattr(options, name) is not None}
    required: dict[str, object] = {"modes": modes, "profile_output_dir": str(output_dir)}
    config, dropped = _construct(api.NeuronConfig, required, wanted)
    try:
        export = api.NeuronProfiler(config).export_trace
    except (TypeError, AttributeError) as error:
        raise CaptureError(
            f"torch_neuronx.profiling.NeuronProfiler has no export_trace for a NeuronConfig: {error}",
            hint="update torch_neuronx, or capture with: tracekit-capture run --env-only",
        ) from error
    used = tuple(mode for mode in options.modes if mode not in unknown_modes)
    return NeuronSetup(config, export, used, (*(f"modes={mode}" for mode in unknown_modes), *dropped))


def _import_api() -> Any:
    try:
        api = importlib.import_module("torch_neuronx.profiling")
    except ImportError as error:
        raise CaptureError(
            f"torch_neuronx.profiling cannot be imported: {error}",
            hint="update torch_neuronx, or capture with: tracekit-capture run --env-only",
        ) from error
    missing = [name for name in ("NeuronConfig", "ProfileMode", "NeuronProfiler") if not hasattr(api, name)]
    if missing:
        raise CaptureError(
            f"torch_neuronx.profiling has no {', '.join(missing)}",
            hint="this torch_neuronx is too old: update it, or use tracekit-capture run --env-only",
        )
    return api


def _modes(profile_mode: Any, names: tuple[str, ...]) -> tuple[list[object], list[str]]:
    known = [getattr(profile_mode, name) for name in names if hasattr(profile_mode, name)]
    unknown = [name for name in names if not hasattr(profile_mode, name)]
    if names and not known:
        raise CaptureError(
            f"this torch_neuronx has none of the modes {', '.join(names)}",
            hint="choose other modes, or update torch_neuronx",
        )
    return known, unknown


def _construct(factory: Any, required: dict[str, object], wanted: dict[str, object]) -> tuple[object, tuple[str, ...]]:
    """Call NeuronConfig with what it takes.

    Its signature decides where it can be read. Where it cannot (C extension, ``**kwargs``), options are
    taken away one by one as the constructor names them in its TypeError.
    """
    accepted = _accepted_names(factory)
    for name in required:
        if accepted is not None and name not in accepted:
            raise CaptureError(
                f"NeuronConfig of this torch_neuronx takes no {name}",
                hint="this torch_neuronx is too old or too new: update torch_neuronx or tracekit",
            )
    kept = {name: value for name, value in wanted.items() if accepted is None or name in accepted}
    while True:
        try:
            config = factory(**required, **kept)
        except (TypeError, ValueError) as error:
            is_unknown = isinstance(error, TypeError) or accepted is None
            refused = next((name for name in kept if is_unknown and _names(error, name)), None)
            if refused is None and isinstance(error, ValueError):
                raise CaptureError(f"NeuronConfig: {error}", hint="correct the option that it names") from error
            if refused is None:
                raise CaptureError(
                    f"NeuronConfig refuses its arguments: {error}",
                    hint="update torch_neuronx or tracekit",
                ) from error
            del kept[refused]
        except RuntimeError as error:
            raise CaptureError(f"NeuronConfig: {error}", hint="correct the option that it names") from error
        else:
            return config, tuple(name for name in wanted if name not in kept)


def _names(error: Exception, name: str) -> bool:
    """Tell whether an error says that an option is unknown; a ValueError may mean its value."""
    text = str(error)
    is_about_names = isinstance(error, TypeError) or re.search(r"unknown|unexpected|unrecogni|unsupported", text, re.I)
    return bool(is_about_names) and name in text


def _accepted_names(factory: Any) -> set[str] | None:
    """Argument names of a constructor; null when it does not tell, or takes any."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL}
