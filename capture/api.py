"""The three ways to capture from Python: a ``with`` block, one call, a decorator."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from capture.options import DEFAULT_DIRECTORY, environment_overrides, make_options
from capture.recorder import Session

Result = TypeVar("Result")


def session(output_dir: str | os.PathLike[str] | None = None, **options: Any) -> Session:
    """Capture the steps of a ``with`` block.

    Args:
        output_dir: where captures go ("profiles" when left out); ``tracekit-capture run -o DIR`` puts a relative one
            below DIR.
        options: fields of ``Options``, such as ``wait=2, warmup=1, active=1, labels={"batch": 4}``.

    Returns:
        A session; call its ``step()`` at the end of every step.

    Raises:
        CaptureError: an option is not known or not valid.
    """
    base = environment_overrides().get("output_dir")
    directory = Path(base or "", output_dir or "") if base or output_dir else Path(DEFAULT_DIRECTORY)
    return Session(directory, make_options(options))


def profile(
    function: Callable[..., object],
    *arguments: object,
    output_dir: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Session:
    """Call a function as often as the schedule needs, each call one step, and capture it.

    Args:
        function: what to capture.
        arguments: its positional arguments, the same in every call.
        output_dir: as for ``session``.
        options: as for ``session``.

    Returns:
        The ended session; ``directory`` says where the trace is.
    """
    with session(output_dir, **options) as running:
        for _ in range(running.options.step_count):
            function(*arguments)
            running.step()
    return running


def profiled(
    output_dir: str | os.PathLike[str] | None = None, **options: Any
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Decorate a step function: its first calls are captured, then it runs as before.

    The capture starts at the first call and ends with the schedule, or when the program ends.
    """

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        running = session(output_dir, **options)
        state = {"is_done": False}

        @functools.wraps(function)
        def wrapper(*arguments: Any, **keywords: Any) -> Result:
            if not state["is_done"] and not running.is_active:
                running.start()
            result = function(*arguments, **keywords)
            running.step()
            if not state["is_done"] and running.step_count >= running.options.step_count:
                running.stop()
                state["is_done"] = True
            return result

        return wrapper

    return decorate
