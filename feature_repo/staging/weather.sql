-- Hourly weather by UTC hour, known when the hour is over.
--
-- Local hours repeat when daylight saving ends, UTC hours do not. A wind of 1,048 miles per hour is a misread, so
-- speeds above 200 are unknown. Precipitation counts in hundredths of an inch, so that its sums are exact.
SELECT
    origin,
    time_hour AS hour_start,
    time_hour + INTERVAL 1 HOUR AS known_at,
    temp,
    dewp,
    humid,
    wind_dir,
    CASE WHEN wind_speed <= 200 THEN wind_speed END AS wind_speed,
    round(precip * 100)::BIGINT AS precip_hundredths,
    pressure,
    visib
FROM raw.weather
