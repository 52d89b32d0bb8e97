-- One operator across builds (label commit), in order of their first run; a regression shows as a rising median.
-- :op = aten::mm
-- :lane = dispatch
SELECT r.label_commit, COUNT(*) AS call_count, QUANTILE_CONT(d.duration_ns, 0.5) AS median_ns,
       QUANTILE_CONT(d.duration_ns, 0.95) AS p95_ns, MIN(r.started_at) AS first_run
FROM durations d JOIN runs r ON d.profile = r.profile
WHERE d.name = :op AND d.lane = :lane
GROUP BY r.label_commit ORDER BY first_run, r.label_commit
