-- The weather table as it stood at the cut: an hour is known when it is over.
SELECT * FROM source.weather
WHERE time_hour >= getvariable('since') AND time_hour + INTERVAL 1 HOUR <= getvariable('as_of')
