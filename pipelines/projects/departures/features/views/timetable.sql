-- The schedule of a departure.
SELECT
    departure,
    scheduled_at - INTERVAL 1 DAY AS event_timestamp,
    origin AS airport,
    carrier AS airline,
    dest AS destination,
    hour AS departure_hour,
    minute AS departure_minute,
    distance
FROM staging.departures
