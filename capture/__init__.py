"""Make profile directories on a Trainium machine (or a GPU box, or a laptop) that are worth copying.

``with capture.session("profiles") as s: ... s.step()`` captures steps; ``tracekit-capture`` does it for a script
that cannot be changed. Nothing here imports torch before a capture starts, and nothing imports ``tracekit``:
what the two share is the directory on disk (see ``capture.manifest``).
"""

from __future__ import annotations

from capture.api import profile, profiled, session
from capture.checks import Finding, Report, check
from capture.errors import CaptureError, CaptureWarning
from capture.options import Options
from capture.recorder import Session

__all__ = [
    "CaptureError",
    "CaptureWarning",
    "Finding",
    "Options",
    "Report",
    "Session",
    "check",
    "profile",
    "profiled",
    "session",
]
