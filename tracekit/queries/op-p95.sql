-- Duration of one operator on the host: median, 95th percentile and count over all profiles.
-- :op = aten::mm
SELECT COUNT(*) AS call_count, QUANTILE_CONT(end_ns - start_ns, 0.5) AS median_ns,
       QUANTILE_CONT(end_ns - start_ns, 0.95) AS p95_ns
FROM events WHERE name = :op AND lane = 'dispatch'
