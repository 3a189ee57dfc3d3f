-- What becomes known about a flight and when: its schedule, its departure, its landing, and that it is overdue.
--
-- Schedules are public a day ahead. A flight is overdue from 15 minutes after its scheduled departure until it leaves,
-- or for four hours, after which it counts as cancelled. Delays are clipped, so that one stranded flight does not speak
-- for an airport. All measures are integers: their sums are exact in any order.
WITH overdue AS (
    SELECT
        *,
        minutes_after(scheduled_at, 15) AS overdue_from,
        least(departed_at, minutes_after(scheduled_at, 240)) AS overdue_until
    FROM staging.flights
    WHERE departed_at IS NULL OR departed_at > minutes_after(scheduled_at, 15)
)
SELECT
    carrier, origin, dest, landed_at AS known_at, 0 AS scheduled,
    1 AS landed, (arr_delay > 15)::INTEGER AS late, greatest(-60, least(arr_delay, 180))::INTEGER AS delay,
    0 AS departed, 0 AS left_late, 0 AS departure_delay, 0 AS overdue
FROM staging.flights
WHERE landed_at IS NOT NULL
UNION ALL
SELECT
    carrier, origin, dest, departed_at, 0,
    0, 0, 0,
    1, (dep_delay > 15)::INTEGER, greatest(-30, least(dep_delay, 180))::INTEGER, 0
FROM staging.flights
WHERE departed_at IS NOT NULL
UNION ALL
SELECT carrier, origin, dest, overdue_from, 0, 0, 0, 0, 0, 0, 0, 1 FROM overdue
UNION ALL
SELECT carrier, origin, dest, overdue_until, 0, 0, 0, 0, 0, 0, 0, -1 FROM overdue
UNION ALL
SELECT carrier, origin, dest, minutes_after(scheduled_at, -1440), 1, 0, 0, 0, 0, 0, 0, 0 FROM staging.flights
