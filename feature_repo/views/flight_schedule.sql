-- The schedule of a flight. Months are left out on purpose: a model trained to September has never seen December.
--
-- Schedules are public a day ahead. `departures_nearby` counts departures up to 30 minutes later from the same
-- airport, so it is known when the last of them is public.
SELECT
    flight_id,
    minutes_after(scheduled_at, 30 - 1440) AS event_timestamp,
    carrier AS airline,
    origin AS airport,
    dest AS destination,
    dayname(local_date) AS weekday,
    lpad((local_minute // 60)::VARCHAR, 2, '0') AS departure_hour,
    local_minute AS departure_minute,
    distance,
    scheduled_block,
    count(*) OVER (
        PARTITION BY origin ORDER BY utc(scheduled_at)
        RANGE BETWEEN INTERVAL 30 MINUTE PRECEDING AND INTERVAL 30 MINUTE FOLLOWING
    ) AS departures_nearby
FROM staging.flights
