-- The hour that has just ended.
SELECT
    origin,
    known_at AS event_timestamp,
    origin AS station,
    clock_hour,
    visib AS visibility,
    humid AS humidity,
    temp AS temperature,
    temp - dewp AS dew_point_spread,
    wind_speed,
    round(wind_speed * cos(radians(wind_dir)), 3) AS wind_north,
    round(wind_speed * sin(radians(wind_dir)), 3) AS wind_east,
    pressure,
    precip_hundredths / 100 AS precipitation
FROM staging.weather
