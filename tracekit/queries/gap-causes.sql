-- Why devices were idle, by machine type: the causes sum to the gaps.
SELECT r.instance_type, SUM(g.gap_ns) AS gap_ns, SUM(g.not_dispatched_ns) AS not_dispatched_ns,
       SUM(g.dispatching_ns) AS dispatching_ns, SUM(g.runtime_ns) AS runtime_ns, SUM(g.collective_ns) AS collective_ns,
       SUM(g.copy_ns) AS copy_ns, SUM(g.model_switch_ns) AS model_switch_ns, SUM(g.unknown_ns) AS unknown_ns
FROM gaps g JOIN runs r ON g.profile = r.profile
GROUP BY r.instance_type ORDER BY gap_ns DESC
