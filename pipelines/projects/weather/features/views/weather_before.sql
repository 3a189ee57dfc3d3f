-- Changes against the row of exactly so many hours before; unknown where that hour is missing.
SELECT
    now.origin,
    now.known_at AS event_timestamp,
    now.temp - one.temp AS temperature_change_1h,
    now.temp - three.temp AS temperature_change_3h,
    now.temp - yesterday.temp AS temperature_change_24h,
    now.pressure - three.pressure AS pressure_change_3h,
    now.dewp - three.dewp AS dew_point_change_3h,
    followed.temp - yesterday.temp AS change_that_followed_yesterday
FROM staging.weather AS now
LEFT JOIN staging.weather AS one ON one.origin = now.origin AND one.known_at = now.known_at - INTERVAL 1 HOUR
LEFT JOIN staging.weather AS three ON three.origin = now.origin AND three.known_at = now.known_at - INTERVAL 3 HOUR
LEFT JOIN staging.weather AS followed ON followed.origin = now.origin AND followed.known_at = now.known_at - INTERVAL 18 HOUR
LEFT JOIN staging.weather AS yesterday
    ON yesterday.origin = now.origin AND yesterday.known_at = now.known_at - INTERVAL 24 HOUR
