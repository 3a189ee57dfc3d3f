-- The flights table as it stood at the cut: schedules a day ahead, departures once they left, arrivals once they landed.
--
-- Used by the time-travel replay only. The aircraft is blanked until the departure, since only a flight that leaves
-- is sure to have one.
WITH timed AS (
    SELECT
        flights.*,
        time_hour + to_minutes(minute) AS scheduled_at,
        time_hour + to_minutes(minute + dep_delay) AS departed_at,
        CASE WHEN arr_delay IS NOT NULL THEN
            next_clock(time_hour + to_minutes(minute + dep_delay), coalesce(tzone, 'America/Puerto_Rico'),
                minutes_of_clock(arr_time))
        END AS landed_at
    FROM source.flights
    LEFT JOIN source.airports ON airports.faa = flights.dest
)
SELECT * EXCLUDE (scheduled_at, departed_at, landed_at) REPLACE (
    CASE WHEN departed_at <= getvariable('as_of') THEN tailnum END AS tailnum,
    CASE WHEN departed_at <= getvariable('as_of') THEN dep_time END AS dep_time,
    CASE WHEN departed_at <= getvariable('as_of') THEN dep_delay END AS dep_delay,
    CASE WHEN landed_at <= getvariable('as_of') THEN arr_time END AS arr_time,
    CASE WHEN landed_at <= getvariable('as_of') THEN arr_delay END AS arr_delay,
    CASE WHEN landed_at <= getvariable('as_of') THEN air_time END AS air_time
)
FROM timed
WHERE scheduled_at BETWEEN getvariable('since') AND getvariable('as_of') + INTERVAL 1 DAY
