-- The weather of the last completed hour at the origin.
--
-- Temperature itself is left out: a model trained to September would read the season from it.
SELECT
    origin,
    known_at AS event_timestamp,
    humid AS humidity,
    temp - dewp AS dew_point_spread,
    wind_speed,
    round(wind_speed * cos(radians(wind_dir)), 3) AS wind_north,
    round(wind_speed * sin(radians(wind_dir)), 3) AS wind_east,
    pressure,
    pressure - first_value(pressure) OVER three_hours AS pressure_change_3h,
    visib AS visibility,
    precip_hundredths / 100 AS precipitation_1h,
    sum(precip_hundredths) OVER six_hours / 100 AS precipitation_6h
FROM staging.weather
WINDOW
    three_hours AS (PARTITION BY origin ORDER BY known_at RANGE BETWEEN INTERVAL 3 HOUR PRECEDING AND CURRENT ROW),
    six_hours AS (PARTITION BY origin ORDER BY known_at RANGE BETWEEN INTERVAL 5 HOUR PRECEDING AND CURRENT ROW)
