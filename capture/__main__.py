"""``python -m capture`` is ``tracekit-capture``."""

from __future__ import annotations

from capture.cli import main

if __name__ == "__main__":
    main()
