-- Hosts whose ranks are busier than the average rank of the same run, collectives left out.
WITH busy AS (SELECT profile, session, SUM(device_ns) AS device_ns FROM chains
              WHERE kind <> 'collective' GROUP BY profile, session),
     average AS (SELECT profile, AVG(device_ns) AS mean_ns, COUNT(*) AS ranks FROM busy GROUP BY profile)
SELECT COALESCE(s.host_name, s.instance_id) AS host, COUNT(*) AS session_count,
       AVG(b.device_ns / a.mean_ns) AS busy_ratio
FROM busy b JOIN average a ON b.profile = a.profile
     JOIN sessions s ON b.profile = s.profile AND b.session = s.session
WHERE a.ranks > 1 AND a.mean_ns > 0
GROUP BY host ORDER BY busy_ratio DESC, host
