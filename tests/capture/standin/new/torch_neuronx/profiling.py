"""The documented API with all its options."""

from neuron_api import BaseConfig, NeuronProfiler, ProfileMode

__all__ = ["NeuronConfig", "NeuronProfiler", "ProfileMode"]


class NeuronConfig(BaseConfig):
    def __init__(
        self,
        modes=None,
        profile_output_dir="./profile_output",
        max_events_per_nc=None,
        capture_enabled_for_nc=None,
        neff_cache_dir=None,
        precache_node_info=True,
        correlate_device_time=False,
    ):
        super().__init__(
            modes,
            profile_output_dir,
            max_events_per_nc=max_events_per_nc,
            capture_enabled_for_nc=capture_enabled_for_nc,
            neff_cache_dir=neff_cache_dir,
            precache_node_info=precache_node_info,
            correlate_device_time=correlate_device_time,
        )
