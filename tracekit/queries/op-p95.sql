-- Duration of one name: count, median and 95th percentile over all profiles.
-- :op = aten::mm
-- :lane = dispatch
SELECT COUNT(*) AS call_count, QUANTILE_CONT(duration_ns, 0.5) AS median_ns,
       QUANTILE_CONT(duration_ns, 0.95) AS p95_ns
FROM durations WHERE name = :op AND lane = :lane
