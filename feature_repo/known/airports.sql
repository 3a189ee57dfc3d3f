-- Airports as they stood at the cut: what is recorded of them (place, time zone) was known before the first flight.
SELECT * FROM source.airports
