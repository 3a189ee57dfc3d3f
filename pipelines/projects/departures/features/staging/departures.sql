-- Departures in UTC: when each was scheduled, and when it left.
SELECT
    carrier || flight || '-' || origin || '-' || strftime(time_hour AT TIME ZONE 'UTC', '%Y%m%dT%HZ')
        || lpad(minute::VARCHAR, 2, '0') AS departure,
    origin || '-' || strftime(time_hour AT TIME ZONE 'UTC', '%Y%m%dT%HZ') AS airport_hour,
    carrier,
    tailnum,
    origin,
    dest,
    distance,
    hour,
    minute,
    time_hour,
    time_hour + to_minutes(minute) AS scheduled_at,
    time_hour + to_minutes(minute + dep_delay) AS departed_at,
    dep_delay
FROM raw.flights
