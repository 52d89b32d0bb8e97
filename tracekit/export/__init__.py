"""Exports to formats of other tools."""

from __future__ import annotations
