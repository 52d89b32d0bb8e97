"""What can go wrong in a capture, in words a user can act on."""

from __future__ import annotations


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
