-- Operators with the most device time, over all profiles of a span of time.
-- :from = 1970-01-01
-- :to = 2100-01-01
-- :limit = 20
SELECT c.name, COUNT(*) AS execution_count, SUM(c.device_ns) AS device_ns, MAX(c.device_ns) AS longest_ns,
       COUNT(DISTINCT c.profile) AS profile_count
FROM chains c JOIN runs r ON c.profile = r.profile
WHERE c.hardware_start_ns IS NOT NULL AND r.started_at >= CAST(:from AS DATE) AND r.started_at < CAST(:to AS DATE)
GROUP BY c.name ORDER BY device_ns DESC, c.name LIMIT :limit
