-- Changes against the oldest row of the last so many hours.
SELECT
    origin,
    known_at AS event_timestamp,
    visib - first_value(visib) OVER one_hour AS visibility_change_1h,
    min(visib) OVER six_hours AS lowest_visibility_6h,
    temp - dewp - first_value(temp - dewp) OVER three_hours AS dew_point_spread_change_3h,
    pressure - first_value(pressure) OVER three_hours AS pressure_change_3h,
    sum(precip_hundredths) OVER six_hours / 100 AS precipitation_6h
FROM staging.weather
WINDOW
    one_hour AS (PARTITION BY origin ORDER BY known_at RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW),
    three_hours AS (PARTITION BY origin ORDER BY known_at RANGE BETWEEN INTERVAL 3 HOUR PRECEDING AND CURRENT ROW),
    six_hours AS (PARTITION BY origin ORDER BY known_at RANGE BETWEEN INTERVAL 5 HOUR PRECEDING AND CURRENT ROW)
