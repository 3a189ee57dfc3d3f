-- The last completed leg of an aircraft, known when it landed: of two in one minute the more delayed, then the longer.
SELECT
    tailnum,
    landed_at AS event_timestamp,
    max(arr_delay) AS last_leg_delay,
    arg_max(distance, (arr_delay, distance)) AS last_leg_distance
FROM staging.flights
WHERE landed_at IS NOT NULL AND tailnum IS NOT NULL
GROUP BY tailnum, landed_at
