"""``key_averages()`` of torch as the oracle: recordings, the rules, and an independent reference."""
