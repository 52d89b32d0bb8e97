"""Children that the program forks while, or after, it is captured."""

from __future__ import annotations

import contextlib
import ctypes


def skip_destructors_at_exit() -> None:
    """Let this process, a forked child, leave before the destructors of its C++ libraries run.

    Once torch's profiler was on, libkineto has a thread. Its destructor waits for it at exit, but fork copies no
    threads: the child would hang for ever (torch 2.13, also without this package). ``exit`` calls what was registered
    last first, so that streams are closed, then the process ends with its own exit code. Python's own clean-up is
    over by then. Without glibc nothing is changed.
    """
    libc = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError):
        register, leave, close_streams = libc.on_exit, libc._exit, libc.fcloseall
        register(leave, None)
        register(close_streams, None)
