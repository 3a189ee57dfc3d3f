-- One row an hour and airport: decided when the hour is over, its outcome known three hours later.
SELECT
    now.origin,
    now.known_at AS decision_time,
    CASE WHEN later.visib >= 10 THEN 'clear' WHEN later.visib >= 3 THEN 'hazy' ELSE 'low' END AS label,
    later.known_at
FROM staging.weather AS now
JOIN staging.weather AS later ON later.origin = now.origin AND later.known_at = now.known_at + INTERVAL 3 HOUR
WHERE later.visib IS NOT NULL
