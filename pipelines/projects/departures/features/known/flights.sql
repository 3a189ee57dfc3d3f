-- The flights table as it stood at the cut: schedules a day ahead, the rest once a flight has left.
SELECT * REPLACE (
    CASE WHEN time_hour + to_minutes(minute + dep_delay) <= getvariable('as_of') THEN tailnum END AS tailnum,
    CASE WHEN time_hour + to_minutes(minute + dep_delay) <= getvariable('as_of') THEN dep_delay END AS dep_delay
)
FROM source.flights
WHERE time_hour + to_minutes(minute) BETWEEN getvariable('since') AND getvariable('as_of') + INTERVAL 1 DAY
