-- A regular time grid from the day before the first flight to the newest known moment: trailing windows are exact at its points.
SELECT unnest(generate_series(
    (SELECT time_bucket(INTERVAL 1 DAY, min(scheduled_at)) - INTERVAL 1 DAY FROM staging.flights),
    getvariable('as_of')::TIMESTAMPTZ,
    INTERVAL 15 MINUTE
)) AS moment
