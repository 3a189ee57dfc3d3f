-- How a carrier's departures for an airport did over four weeks, closed every midnight (UTC) after one of them.
--
-- Few departures tell little: both figures are drawn towards those of all carriers as if by five departures more.
WITH days AS (
    SELECT
        carrier,
        dest,
        date_trunc('day', departed_at AT TIME ZONE 'UTC') + INTERVAL 1 DAY AS closed,
        count(*) AS departed,
        count(*) FILTER (dep_delay > 15) AS late,
        sum(greatest(-30, least(dep_delay, 180)))::BIGINT AS delay
    FROM staging.departures
    WHERE departed_at IS NOT NULL
    GROUP BY ALL
)
SELECT
    carrier,
    dest,
    closed AT TIME ZONE 'UTC' AS event_timestamp,
    (sum(late) OVER weeks + 0.2 * 5) / (sum(departed) OVER weeks + 5) AS carrier_late_rate_28d,
    (sum(delay) OVER weeks + 12 * 5) / (sum(departed) OVER weeks + 5) AS carrier_mean_delay_28d
FROM days
WHERE closed AT TIME ZONE 'UTC' <= getvariable('as_of')
WINDOW weeks AS (
    PARTITION BY carrier, dest ORDER BY closed RANGE BETWEEN INTERVAL 27 DAY PRECEDING AND CURRENT ROW
)
