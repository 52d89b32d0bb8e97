"""The stand-in's older version: ``synchronize`` lies in this package only."""

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "common"))

from neuron_standin import RUNTIME, inspect_at_exit

__version__ = "0.1.old"
launch = RUNTIME.launch
synchronize = RUNTIME.synchronize


def is_available() -> bool:
    return True


if os.environ.get("NEURON_RT_INSPECT_ENABLE") == "1":
    inspect_at_exit({"RUNTIME"})
