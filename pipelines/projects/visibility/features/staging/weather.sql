-- Hourly weather by UTC hour, known when the hour is over.
--
-- A wind of 1,048 miles per hour is a misread, so speeds above 200 are unknown. The clock is New York's winter time, so
-- that an hour of the day means the same height of the sun all year. Precipitation counts in hundredths of an inch, so
-- that its sums are exact.
SELECT
    origin,
    time_hour + INTERVAL 1 HOUR AS known_at,
    extract(hour FROM time_hour - INTERVAL 5 HOUR) AS clock_hour,
    temp,
    dewp,
    humid,
    wind_dir,
    CASE WHEN wind_speed <= 200 THEN wind_speed END AS wind_speed,
    pressure,
    visib,
    round(precip * 100)::BIGINT AS precip_hundredths
FROM raw.weather
