-- NEFFs that appear in more than one run, the most widespread first.
WITH seen AS (SELECT model_hash, COUNT(DISTINCT profile) AS run_count, MAX(size_bytes) AS size_bytes
              FROM artifacts WHERE role = 'neff' AND model_hash IS NOT NULL GROUP BY model_hash)
SELECT model_hash, run_count, size_bytes FROM seen WHERE run_count > 1 ORDER BY run_count DESC, model_hash
