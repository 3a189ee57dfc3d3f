-- Hourly weather by UTC hour, known when the hour is over.
--
-- A wind of 1,048 miles per hour is a misread, so speeds above 200 are unknown. The clock is New York's winter time, so
-- that an hour of the day means the same height of the sun all year.
SELECT
    origin,
    time_hour + INTERVAL 1 HOUR AS known_at,
    extract(hour FROM time_hour - INTERVAL 5 HOUR) AS clock_hour,
    2 * pi() * (extract(dayofyear FROM time_hour) - 1) / 365 AS season,
    temp,
    dewp,
    wind_dir,
    CASE WHEN wind_speed <= 200 THEN wind_speed END AS wind_speed,
    pressure,
    visib,
    precip
FROM raw.weather
