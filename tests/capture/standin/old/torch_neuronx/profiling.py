"""The documented API, without the newer options."""

from neuron_api import BaseConfig, NeuronProfiler, ProfileMode

__all__ = ["NeuronConfig", "NeuronProfiler", "ProfileMode"]


class NeuronConfig(BaseConfig):
    def __init__(self, modes=None, profile_output_dir="./profile_output", max_events_per_nc=None):
        super().__init__(modes, profile_output_dir, max_events_per_nc=max_events_per_nc)
