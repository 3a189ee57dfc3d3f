-- What flights to the destination tell, every hour, from what was known by then.
--
-- Running totals on a dense grid: the total of a window is the difference of two of them, exact at every point.
-- Rows exist only where a flight was on the public schedule of the last 30 days: before a key first appears, nobody
-- could know of it.
WITH known AS (
    SELECT
        dest,
        greatest(grid_point(INTERVAL 60 MINUTE, known_at), (SELECT min(moment) FROM staging.grid)) AS event_timestamp,
        max(grid_point(INTERVAL 60 MINUTE, known_at)) FILTER (scheduled = 1) AS last_scheduled,
        sum(landed) AS landed,
        sum(late) AS late,
        sum(delay) AS delay,
        sum(overdue) AS overdue
    FROM staging.movements
    GROUP BY ALL
),
points AS (
    SELECT dest, moment AS event_timestamp
    FROM (SELECT DISTINCT dest FROM staging.flights)
    CROSS JOIN staging.grid
    WHERE time_bucket(INTERVAL 60 MINUTE, moment) = moment
),
totals AS (
    SELECT
        dest,
        event_timestamp,
        max(last_scheduled) OVER so_far AS last_scheduled,
        coalesce(sum(landed) OVER so_far, 0)::BIGINT AS landed,
        coalesce(sum(late) OVER so_far, 0)::BIGINT AS late,
        coalesce(sum(delay) OVER so_far, 0)::BIGINT AS delay,
        coalesce(sum(overdue) OVER so_far, 0)::BIGINT AS overdue
    FROM points
    LEFT JOIN known USING (dest, event_timestamp)
    WINDOW so_far AS (PARTITION BY dest ORDER BY event_timestamp)
),
recent AS (
    SELECT
        dest,
        event_timestamp,
        last_scheduled,
        overdue,
        landed - lag(landed, 3, 0) OVER steps AS landed_3h,
        late - lag(late, 3, 0) OVER steps AS late_3h,
        delay - lag(delay, 3, 0) OVER steps AS delay_3h,
        landed - lag(landed, 6, 0) OVER steps AS landed_6h,
        delay - lag(delay, 6, 0) OVER steps AS delay_6h,
        landed - lag(landed, 24, 0) OVER steps AS landed_24h,
        late - lag(late, 24, 0) OVER steps AS late_24h
    FROM totals
    WINDOW steps AS (PARTITION BY dest ORDER BY event_timestamp)
)
SELECT
    dest,
    event_timestamp,
    overdue AS dest_overdue,
    shrunk(late_3h, landed_3h, 0.22, 2) AS dest_late_rate_3h,
    shrunk(delay_3h, landed_3h, 7, 2) AS dest_mean_delay_3h,
    shrunk(delay_6h, landed_6h, 7, 2) AS dest_mean_delay_6h,
    shrunk(late_24h, landed_24h, 0.22, 2) AS dest_late_rate_24h
FROM recent
WHERE last_scheduled > event_timestamp - INTERVAL 30 DAY
