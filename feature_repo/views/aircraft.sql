-- What the registry says about an aircraft. A seventh of the flights have no record here; they stay null.
SELECT
    tailnum,
    TIMESTAMPTZ '1970-01-01 00:00:00+00' AS event_timestamp,
    year AS aircraft_built,
    seats AS aircraft_seats,
    engines AS aircraft_engines,
    engine AS aircraft_type
FROM raw.planes
