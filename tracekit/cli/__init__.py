"""The command line: one file per command; the only place that prints, exits and shows progress."""

from __future__ import annotations
