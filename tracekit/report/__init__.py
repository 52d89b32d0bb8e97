"""The self-contained HTML report."""

from __future__ import annotations
