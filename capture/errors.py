"""What can go wrong in a capture, in words a user can act on."""

from __future__ import annotations

import sys
import warnings


class CaptureError(Exception):
    """A capture cannot start, or cannot go on.

    Args:
        problem: what is wrong, and where, in one line.
        hint: what to do about it, in one line.
    """

    def __init__(self, problem: str, *, hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.problem} ({self.hint})" if self.hint else self.problem


class CaptureWarning(UserWarning):
    """A capture goes on, but not as it was asked for."""


def warn(message: str) -> None:
    """Warn, at the line of the user's program that called into this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("capture", "contextlib"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, CaptureWarning, stacklevel=level + 1)
