-- One row an hour and airport: decided when the hour is over, its outcome known six hours later.
SELECT
    now.origin,
    now.known_at AS decision_time,
    later.temp - now.temp AS label,
    later.known_at
FROM staging.weather AS now
JOIN staging.weather AS later ON later.origin = now.origin AND later.known_at = now.known_at + INTERVAL 6 HOUR
WHERE later.temp IS NOT NULL AND now.temp IS NOT NULL
