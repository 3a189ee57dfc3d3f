-- How the same flight number did over the last four weeks, closed every midnight (UTC) after one of its landings.
WITH days AS (
    SELECT
        carrier,
        flight,
        origin,
        grid_point(INTERVAL 1 DAY, landed_at) AS event_timestamp,
        count(*) AS landed,
        count(*) FILTER (arr_delay > 15) AS late,
        sum(greatest(-60, least(arr_delay, 180)))::BIGINT AS delay
    FROM staging.flights
    WHERE landed_at IS NOT NULL
    GROUP BY ALL
)
SELECT
    carrier,
    flight,
    origin,
    event_timestamp,
    shrunk(sum(late) OVER weeks, sum(landed) OVER weeks, 0.22, 5) AS flight_late_rate_28d,
    shrunk(sum(delay) OVER weeks, sum(landed) OVER weeks, 7, 5) AS flight_mean_delay_28d
FROM days
WHERE event_timestamp <= getvariable('as_of')
WINDOW weeks AS (
    PARTITION BY carrier, flight, origin ORDER BY utc(event_timestamp)
    RANGE BETWEEN INTERVAL 27 DAY PRECEDING AND CURRENT ROW
)
