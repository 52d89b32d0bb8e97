"""The stand-in's newer version: registers ``torch.neuron`` as well."""

import os
import sys
import types
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "common"))

from neuron_standin import RUNTIME, inspect_at_exit

__version__ = "0.2.new"
launch = RUNTIME.launch
synchronize = RUNTIME.synchronize

torch.neuron = types.SimpleNamespace(synchronize=RUNTIME.synchronize, is_available=lambda: True, device_count=lambda: 1)

if os.environ.get("NEURON_RT_INSPECT_ENABLE") == "1":
    inspect_at_exit({"RUNTIME"})
