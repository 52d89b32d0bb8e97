"""Signals that ask the program to end: they do it through the ``with`` block, so that the capture is exported."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)


class EndingSignals:
    """Catches SIGTERM and SIGHUP where the program has no handler of its own (nor ignores them, as nohup does).

    Args:
        tell: called with the signal's name.
        is_busy: true while the export runs; it comes first, and the program ends after it.
    """

    def __init__(self, tell: Callable[[str], None], is_busy: Callable[[], bool]) -> None:
        self._tell = tell
        self._is_busy = is_busy
        self._caught: list[signal.Signals] = []
        self.exit_code: int | None = None

    def catch(self) -> None:
        """Take the signals over; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._caught = [number for number in ENDING if signal.getsignal(number) is signal.SIG_DFL]
        for number in self._caught:
            signal.signal(number, self._on_signal)

    def release(self) -> None:
        """Let them end the process again, unless the program has put a handler there meanwhile."""
        with contextlib.suppress(ValueError):  # not the main thread
            for number in self._caught:
                if signal.getsignal(number) == self._on_signal:
                    signal.signal(number, signal.SIG_DFL)
        self._caught = []

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._tell(signal.Signals(number).name)
        if self._is_busy():
            self.exit_code = 128 + number
        else:
            raise SystemExit(128 + number)


def hold() -> set[int]:
    """Make the ending signals wait in this thread.

    Python drops those that reach a child between fork and its first line; a waiting one reaches it after ``resume``.

    Returns:
        For ``resume``: what waited before.
    """
    return {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)}


def resume(before: set[int]) -> None:
    """Let them come again."""
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
