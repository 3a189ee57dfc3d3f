-- One row a departure: ranked an hour before its hour begins, its delay known when it leaves.
SELECT
    departure,
    airport_hour,
    carrier,
    dest,
    tailnum,
    time_hour - INTERVAL 1 HOUR AS decision_time,
    CASE WHEN dep_delay > 120 THEN 3 WHEN dep_delay > 60 THEN 2 WHEN dep_delay > 15 THEN 1 ELSE 0 END AS label,
    departed_at,
    CASE WHEN departed_at IS NULL THEN 'cancelled' END AS no_outcome
FROM staging.departures
