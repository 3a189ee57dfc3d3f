-- The hour that has just ended, with the hour of the day and the season in it.
SELECT
    origin,
    known_at AS event_timestamp,
    origin AS station,
    clock_hour::VARCHAR AS clock_hour,
    round(cos(season), 4) AS season_cosine,
    round(sin(season), 4) AS season_sine,
    temp AS temperature,
    temp - dewp AS dew_point_spread,
    wind_speed,
    round(wind_speed * cos(radians(wind_dir)), 3) AS wind_north,
    round(wind_speed * sin(radians(wind_dir)), 3) AS wind_east,
    pressure,
    visib AS visibility,
    precip AS precipitation
FROM staging.weather
