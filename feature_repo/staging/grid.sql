-- A regular time grid up to the newest known moment: trailing windows are exact at its points.
--
-- It begins the day before the first flight, or, where only rows since `from` are wanted, with the day before that: the
-- windows on the grid are at most a day long. What was known before its first point counts at that point.
SELECT unnest(generate_series(
    greatest(
        (SELECT time_bucket(INTERVAL 1 DAY, min(scheduled_at)) - INTERVAL 1 DAY FROM staging.flights),
        time_bucket(INTERVAL 1 DAY, getvariable('from')::TIMESTAMPTZ) - INTERVAL 1 DAY
    ),
    least(getvariable('as_of')::TIMESTAMPTZ, getvariable('until')::TIMESTAMPTZ),
    INTERVAL 15 MINUTE
)) AS moment
