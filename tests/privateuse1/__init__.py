"""A simulated PrivateUse1 accelerator, so that plain CPU torch writes real PrivateUse1 Kineto traces.

See README.md in this folder.
"""

from __future__ import annotations

from tests.privateuse1.backend import Backend, Copy, Launch, activities, load_backend
from tests.privateuse1.build import BackendUnavailableError

__all__ = ["Backend", "BackendUnavailableError", "Copy", "Launch", "activities", "load_backend"]
