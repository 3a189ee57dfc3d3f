-- What the carrier's flights from this origin tell, every 30 minutes, from what was known by then.
--
-- Running totals on a dense grid: the total of a window is the difference of two of them, exact at every point.
-- Rows exist only where a flight was on the public schedule of the last 30 days: before a key first appears, nobody
-- could know of it.
WITH known AS (
    SELECT
        carrier,
        origin,
        greatest(grid_point(INTERVAL 30 MINUTE, known_at), (SELECT min(moment) FROM staging.grid)) AS event_timestamp,
        max(grid_point(INTERVAL 30 MINUTE, known_at)) FILTER (scheduled = 1) AS last_scheduled,
        sum(landed) AS landed,
        sum(late) AS late,
        sum(departed) AS departed,
        sum(left_late) AS left_late,
        sum(departure_delay) AS departure_delay,
        sum(overdue) AS overdue
    FROM staging.movements
    GROUP BY ALL
),
points AS (
    SELECT carrier, origin, moment AS event_timestamp
    FROM (SELECT DISTINCT carrier, origin FROM staging.flights)
    CROSS JOIN staging.grid
    WHERE time_bucket(INTERVAL 30 MINUTE, moment) = moment
),
totals AS (
    SELECT
        carrier,
        origin,
        event_timestamp,
        max(last_scheduled) OVER so_far AS last_scheduled,
        coalesce(sum(landed) OVER so_far, 0)::BIGINT AS landed,
        coalesce(sum(late) OVER so_far, 0)::BIGINT AS late,
        coalesce(sum(departed) OVER so_far, 0)::BIGINT AS departed,
        coalesce(sum(left_late) OVER so_far, 0)::BIGINT AS left_late,
        coalesce(sum(departure_delay) OVER so_far, 0)::BIGINT AS departure_delay,
        coalesce(sum(overdue) OVER so_far, 0)::BIGINT AS overdue
    FROM points
    LEFT JOIN known USING (carrier, origin, event_timestamp)
    WINDOW so_far AS (PARTITION BY carrier, origin ORDER BY event_timestamp)
),
recent AS (
    SELECT
        carrier,
        origin,
        event_timestamp,
        last_scheduled,
        overdue,
        departed - lag(departed, 6, 0) OVER steps AS departed_3h,
        left_late - lag(left_late, 6, 0) OVER steps AS left_late_3h,
        departure_delay - lag(departure_delay, 6, 0) OVER steps AS departure_delay_3h,
        landed - lag(landed, 48, 0) OVER steps AS landed_24h,
        late - lag(late, 48, 0) OVER steps AS late_24h,
        departed - lag(departed, 48, 0) OVER steps AS departed_24h,
        departure_delay - lag(departure_delay, 48, 0) OVER steps AS departure_delay_24h
    FROM totals
    WINDOW steps AS (PARTITION BY carrier, origin ORDER BY event_timestamp)
)
SELECT
    carrier,
    origin,
    event_timestamp,
    overdue AS carrier_origin_overdue,
    shrunk(left_late_3h, departed_3h, 0.2, 2) AS carrier_origin_left_late_rate_3h,
    shrunk(departure_delay_3h, departed_3h, 12, 2) AS carrier_origin_mean_departure_delay_3h,
    shrunk(late_24h, landed_24h, 0.22, 2) AS carrier_origin_late_rate_24h,
    shrunk(departure_delay_24h, departed_24h, 12, 2) AS carrier_origin_mean_departure_delay_24h
FROM recent
WHERE last_scheduled > event_timestamp - INTERVAL 30 DAY
