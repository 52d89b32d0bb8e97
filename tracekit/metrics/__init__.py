"""Metrics, one file each; ``METRICS`` is the only list of them."""

from __future__ import annotations
