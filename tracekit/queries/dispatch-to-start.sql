-- How long work waits from its operator's start on the host to its start on the device, by run.
SELECT profile, COUNT(*) AS execution_count,
       QUANTILE_CONT(hardware_start_ns - dispatch_start_ns, 0.5) AS median_ns,
       QUANTILE_CONT(hardware_start_ns - dispatch_start_ns, 0.95) AS p95_ns
FROM chains WHERE hardware_start_ns IS NOT NULL AND dispatch_start_ns IS NOT NULL
GROUP BY profile ORDER BY p95_ns DESC, profile
