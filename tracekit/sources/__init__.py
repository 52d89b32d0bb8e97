"""Readers, one file per format; ``SOURCES`` is the only list of them."""

from __future__ import annotations
