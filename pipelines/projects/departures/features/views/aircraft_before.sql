-- The last departure of an aircraft; of two that are told for one minute, the one for the later hour.
SELECT
    tailnum,
    departed_at AS event_timestamp,
    dep_delay AS last_departure_delay,
    distance AS last_departure_distance
FROM staging.departures
WHERE departed_at IS NOT NULL AND tailnum IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY tailnum, departed_at ORDER BY scheduled_at DESC, departure) = 1
